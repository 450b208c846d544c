/* relu.c: y = x < 0 ? 0 : x. */
#include "poet/kernels/relu.h"

void poet_relu_f32(size_t n, const float *x, float *y)
{
    for (; n >= 4; n -= 4) {
        const float a = x[0], b = x[1], c = x[2], d = x[3];

        y[0] = a < 0.0f ? 0.0f : a;
        y[1] = b < 0.0f ? 0.0f : b;
        y[2] = c < 0.0f ? 0.0f : c;
        y[3] = d < 0.0f ? 0.0f : d;
        x += 4;
        y += 4;
    }
    for (; n > 0; n--) {
        const float a = *x++;

        *y++ = a < 0.0f ? 0.0f : a;
    }
}

void poet_relu_dx_f32(size_t n, const float *y, const float *dy, float *dx)
{
    for (; n > 0; n--) {
        const float a = *y++, d = *dy++;

        *dx++ = a <= 0.0f ? 0.0f : d;
    }
}
