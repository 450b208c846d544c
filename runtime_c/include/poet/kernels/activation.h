/* activation.h: relatives of Relu and Sigmoid, elementwise. In place is allowed. */
#ifndef POET_KERNELS_ACTIVATION_H
#define POET_KERNELS_ACTIVATION_H

#include "poet/poet.h"

/* y = x > 0 ? x : alpha x; its gradient reads x, or y where alpha is positive */
void poet_leaky_relu_f32(size_t n, float alpha, const float *x, float *y);
void poet_leaky_relu_dx_f32(size_t n, float alpha, const float *x, const float *dy, float *dx);

/* y = x > 0 ? x : alpha (e^x - 1); its gradient reads y */
void poet_elu_f32(size_t n, float alpha, const float *x, float *y);
void poet_elu_dx_f32(size_t n, float alpha, const float *y, const float *dy, float *dx);

/* y = alpha x + beta, held between 0 and 1; its gradient reads y */
void poet_hard_sigmoid_f32(size_t n, float alpha, float beta, const float *x, float *y);
void poet_hard_sigmoid_dx_f32(size_t n, float alpha, const float *y, const float *dy, float *dx);

/* y = x h, h = x / 6 + 0.5 held between 0 and 1 */
void poet_hard_swish_f32(size_t n, const float *x, float *y);
void poet_hard_swish_dx_f32(size_t n, const float *x, const float *dy, float *dx);

/* y = log(1 + e^x) */
void poet_softplus_f32(size_t n, const float *x, float *y);
void poet_softplus_dx_f32(size_t n, const float *x, const float *dy, float *dx);

#endif
