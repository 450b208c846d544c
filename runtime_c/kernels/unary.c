/* unary.c: functions of one number, elementwise. */
#include "poet/kernels/unary.h"

#include "poet/math.h"

enum { LARGEST_POWER = 64 };

void poet_erf_f32(size_t n, const float *x, float *y)
{
    for (; n > 0; n--) *y++ = poet_erff(*x++);
}

void poet_sqrt_f32(size_t n, const float *x, float *y)
{
    for (; n > 0; n--) *y++ = poet_sqrtf(*x++);
}

void poet_exp_f32(size_t n, const float *x, float *y)
{
    for (; n > 0; n--) *y++ = poet_expf(*x++);
}

void poet_log_f32(size_t n, const float *x, float *y)
{
    for (; n > 0; n--) *y++ = poet_logf(*x++);
}

void poet_abs_f32(size_t n, const float *x, float *y)
{
    for (; n > 0; n--) {
        const float v = *x++;

        *y++ = v < 0.0f ? -v : v;
    }
}

void poet_reciprocal_f32(size_t n, const float *x, float *y)
{
    for (; n > 0; n--) *y++ = 1.0f / *x++;
}

void poet_erf_dx_f32(size_t n, const float *x, const float *dy, float *dx)
{
    for (; n > 0; n--) {
        const float v = *x++;

        *dx++ = *dy++ * (0x1.20dd76p+0f * poet_expf(-(v * v)));
    }
}

void poet_sqrt_dx_f32(size_t n, const float *y, const float *dy, float *dx)
{
    for (; n > 0; n--) {
        const float v = *y++;

        *dx++ = *dy++ / (v + v);
    }
}

void poet_abs_dx_f32(size_t n, const float *x, const float *dy, float *dx)
{
    for (; n > 0; n--) {
        const float v = *x++, d = *dy++;

        *dx++ = v > 0.0f ? d : v < 0.0f ? -d : 0.0f;
    }
}

void poet_reciprocal_dx_f32(size_t n, const float *y, const float *dy, float *dx)
{
    for (; n > 0; n--) {
        const float v = *y++;

        *dx++ = -*dy++ * (v * v);
    }
}

static float power(float x, int32_t whole, float exponent)
{
    int32_t n = whole < 0 ? -whole : whole;
    float y = 1.0f;

    if (n > LARGEST_POWER) return poet_expf(exponent * poet_logf(x));
    while (n > 0) {
        if ((n & 1) != 0) y *= x;
        n >>= 1;
        if (n > 0) x *= x;
    }
    return whole < 0 ? 1.0f / y : y;
}

void poet_pow_f32(size_t n, int32_t whole, float exponent, const float *x, float *y)
{
    for (; n > 0; n--) *y++ = power(*x++, whole, exponent);
}

void poet_pow_dx_f32(size_t n, float factor, int32_t whole, float exponent, const float *x, const float *dy,
                     float *dx)
{
    for (; n > 0; n--) *dx++ = *dy++ * (factor * power(*x++, whole, exponent));
}
