/* gelu.c: x times the normal distribution's integral up to x, exact or by tanh. */
#include "poet/kernels/gelu.h"

#include "poet/math.h"

#define SQRT_HALF 0x1.6a09e6p-1f
#define SQRT_2_BY_PI 0x1.988454p-1f
#define SQRT_1_BY_2_PI 0x1.988454p-2f

void poet_gelu_f32(size_t n, const float *x, float *y)
{
    for (; n > 0; n--) {
        const float v = *x++;

        *y++ = (0.5f * v) * (1.0f + poet_erff(SQRT_HALF * v));
    }
}

void poet_gelu_dx_f32(size_t n, const float *x, const float *dy, float *dx)
{
    for (; n > 0; n--) {
        const float v = *x++;
        const float below = 0.5f * (1.0f + poet_erff(SQRT_HALF * v));
        const float density = SQRT_1_BY_2_PI * poet_expf(-0.5f * (v * v));

        *dx++ = *dy++ * (below + v * density);
    }
}

static float tanh_of(float v)
{
    return poet_tanhf(SQRT_2_BY_PI * (v + 0x1.6e4e26p-5f * (v * (v * v)))); /* 0.044715 */
}

void poet_gelu_tanh_f32(size_t n, const float *x, float *y)
{
    for (; n > 0; n--) {
        const float v = *x++;

        *y++ = (0.5f * v) * (1.0f + tanh_of(v));
    }
}

void poet_gelu_tanh_dx_f32(size_t n, const float *x, const float *dy, float *dx)
{
    for (; n > 0; n--) {
        const float v = *x++, t = tanh_of(v);
        const float slope = SQRT_2_BY_PI * (1.0f + 0x1.12ba9ep-3f * (v * v)); /* 3 0.044715 */

        *dx++ = *dy++ * (0.5f * (1.0f + t) + (0.5f * v) * ((1.0f - t * t) * slope));
    }
}
