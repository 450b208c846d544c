/* mse.h: mean squared error over all elements. */
#ifndef POET_KERNELS_MSE_H
#define POET_KERNELS_MSE_H

#include "poet/poet.h"

/* loss = sum of (x - target)^2 from +0, divided by n */
void poet_mean_squared_error_f32(size_t n, const float *x, const float *target, float *loss);

/* dx = (x - target) factor, factor = 2 / n; in place is allowed */
void poet_mean_squared_error_dx_f32(size_t n, float factor, const float *x, const float *target, float *dx);

#endif
