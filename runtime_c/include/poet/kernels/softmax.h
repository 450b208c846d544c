/* softmax.h: softmax and its logarithm. x is [rows][n][inner]; sums run over n ascending.
 * In place is allowed. */
#ifndef POET_KERNELS_SOFTMAX_H
#define POET_KERNELS_SOFTMAX_H

#include "poet/poet.h"

/* y = e / sum e, e = e^(x - max) */
void poet_softmax_f32(int32_t rows, int32_t n, int32_t inner, const float *x, float *y);

/* dx = y (dy - sum dy y) */
void poet_softmax_dx_f32(int32_t rows, int32_t n, int32_t inner, const float *y, const float *dy,
                         float *dx);

/* y = (x - max) - log sum e^(x - max) */
void poet_log_softmax_f32(int32_t rows, int32_t n, int32_t inner, const float *x, float *y);

/* dx = dy - e^y sum dy */
void poet_log_softmax_dx_f32(int32_t rows, int32_t n, int32_t inner, const float *y, const float *dy,
                             float *dx);

#endif
