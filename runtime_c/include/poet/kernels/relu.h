/* relu.h: y = x < 0 ? 0 : x. In place is allowed. */
#ifndef POET_KERNELS_RELU_H
#define POET_KERNELS_RELU_H

#include "poet/poet.h"

/* A NaN passes. */
void poet_relu_f32(size_t n, const float *x, float *y);

/* dx = y <= 0 ? 0 : dy */
void poet_relu_dx_f32(size_t n, const float *y, const float *dy, float *dx);

#endif
