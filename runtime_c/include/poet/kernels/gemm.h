/* gemm.h: the product of two matrices, for a dense layer and both of its gradients. */
#ifndef POET_KERNELS_GEMM_H
#define POET_KERNELS_GEMM_H

#include "poet/kernels/start.h"

/* Strides in floats between rows and between columns of each operand: a transposed one has them exchanged,
 * and a bias that is the same in each row has b_row = 0. Fastest where y_col is 1. */
struct poet_gemm {
    int32_t m, n, k;
    int32_t x_row, x_col; /* x[m][k] */
    int32_t w_row, w_col; /* w[k][n] */
    int32_t y_row, y_col; /* y[m][n] */
    int32_t b_row, b_col; /* b[m][n] */
};

/* y[i][j] = start + sum over k ascending of x[i][k] * w[k][j]. b may be NULL. */
void poet_gemm_f32(const struct poet_gemm *s, enum poet_start start, const float *x, const float *w,
                   const float *b, float *y);

/* y = alpha * y + beta * b, for an alpha or a beta other than 1: y holds the sums from POET_START_ZERO. b may
 * be NULL. */
void poet_gemm_scale_f32(const struct poet_gemm *s, float alpha, float beta, const float *b, float *y);

/* y = factor * x */
void poet_scale_f32(size_t n, float factor, const float *x, float *y);

#endif
