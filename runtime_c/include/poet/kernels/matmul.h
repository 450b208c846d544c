/* matmul.h: products of stacks of matrices, with any strides and broadcast operands. */
#ifndef POET_KERNELS_MATMUL_H
#define POET_KERNELS_MATMUL_H

#include "poet/poet.h"

/* Four loops over the stack, row-major; x, w, y: how far each moves in that operand, 0 where it repeats or,
 * in y, is summed. Strides in floats between rows and between columns of each matrix. */
struct poet_matmul {
    int32_t size0, size1, size2, size3;
    int32_t x0, x1, x2, x3;
    int32_t w0, w1, w2, w3;
    int32_t y0, y1, y2, y3;
    int32_t m, n, k;
    int32_t x_row, x_col; /* x[m][k] */
    int32_t w_row, w_col; /* w[k][n] */
    int32_t y_row, y_col; /* y[m][n] */
    int32_t zeroed;       /* elements of y where the stack is summed, else 0 */
};

/* y[i][j] = sum from +0 over the stack, where y repeats, then over k ascending of x[i][k] * w[k][j] */
void poet_matmul_f32(const struct poet_matmul *s, const float *x, const float *w, float *y);

#endif
