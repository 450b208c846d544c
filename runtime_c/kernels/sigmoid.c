/* sigmoid.c: sigmoid and tanh. */
#include "poet/kernels/sigmoid.h"

#include "poet/math.h"

void poet_sigmoid_f32(size_t n, const float *x, float *y)
{
    for (; n > 0; n--) {
        *y++ = poet_sigmoidf(*x++);
    }
}

void poet_tanh_f32(size_t n, const float *x, float *y)
{
    for (; n > 0; n--) {
        *y++ = poet_tanhf(*x++);
    }
}

void poet_sigmoid_dx_f32(size_t n, const float *y, const float *dy, float *dx)
{
    for (; n > 0; n--) {
        const float a = *y++, d = *dy++;

        *dx++ = d * (a * (1.0f - a));
    }
}

void poet_tanh_dx_f32(size_t n, const float *y, const float *dy, float *dx)
{
    for (; n > 0; n--) {
        const float a = *y++, d = *dy++;

        *dx++ = d * (1.0f - a * a);
    }
}
