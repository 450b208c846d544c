/* unary.h: functions of one number, elementwise. In place is allowed. */
#ifndef POET_KERNELS_UNARY_H
#define POET_KERNELS_UNARY_H

#include "poet/poet.h"

void poet_erf_f32(size_t n, const float *x, float *y);
void poet_sqrt_f32(size_t n, const float *x, float *y);
void poet_exp_f32(size_t n, const float *x, float *y);
void poet_log_f32(size_t n, const float *x, float *y);
void poet_abs_f32(size_t n, const float *x, float *y);
void poet_reciprocal_f32(size_t n, const float *x, float *y);

/* dx = dy (2 / sqrt(pi) e^-(x x)) */
void poet_erf_dx_f32(size_t n, const float *x, const float *dy, float *dx);

/* dx = dy / (y + y) */
void poet_sqrt_dx_f32(size_t n, const float *y, const float *dy, float *dx);

/* dx = x > 0 ? dy : x < 0 ? -dy : 0 */
void poet_abs_dx_f32(size_t n, const float *x, const float *dy, float *dx);

/* dx = -dy (y y) */
void poet_reciprocal_dx_f32(size_t n, const float *y, const float *dy, float *dx);

/* y = x^whole by squaring where -64 <= whole <= 64; else e^(exponent log x) */
void poet_pow_f32(size_t n, int32_t whole, float exponent, const float *x, float *y);

/* dx = dy (factor x^whole), or with the exponent as above */
void poet_pow_dx_f32(size_t n, float factor, int32_t whole, float exponent, const float *x, const float *dy,
                     float *dx);

#endif
