/* sigmoid.h: sigmoid and tanh. In place is allowed. */
#ifndef POET_KERNELS_SIGMOID_H
#define POET_KERNELS_SIGMOID_H

#include "poet/poet.h"

void poet_sigmoid_f32(size_t n, const float *x, float *y);
void poet_tanh_f32(size_t n, const float *x, float *y);

/* dx = dy (y (1 - y)) */
void poet_sigmoid_dx_f32(size_t n, const float *y, const float *dy, float *dx);

/* dx = dy (1 - y y) */
void poet_tanh_dx_f32(size_t n, const float *y, const float *dy, float *dx);

#endif
