/* gelu.h: x times the normal distribution's integral up to x, exact or by tanh. In place is allowed. */
#ifndef POET_KERNELS_GELU_H
#define POET_KERNELS_GELU_H

#include "poet/poet.h"

/* y = (0.5 x) (1 + erf(x / sqrt 2)) */
void poet_gelu_f32(size_t n, const float *x, float *y);
void poet_gelu_dx_f32(size_t n, const float *x, const float *dy, float *dx);

/* y = (0.5 x) (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
void poet_gelu_tanh_f32(size_t n, const float *x, float *y);
void poet_gelu_tanh_dx_f32(size_t n, const float *x, const float *dy, float *dx);

#endif
