/* bce.c: binary cross entropy of logits. */
#include "poet/kernels/bce.h"

#include "poet/math.h"

void poet_binary_cross_entropy_f32(size_t n, const float *x, const float *target, float *loss)
{
    float sum = 0.0f;

    for (size_t i = 0; i < n; i++) {
        const float a = x[i];
        const float linear = (a < 0.0f ? 0.0f : a) - a * target[i];

        sum += linear + poet_logf(1.0f + poet_expf(a < 0.0f ? a : -a));
    }
    *loss = sum / (float)n;
}

void poet_binary_cross_entropy_dx_f32(size_t n, float factor, const float *x, const float *target, float *dx)
{
    for (; n > 0; n--) {
        const float d = poet_sigmoidf(*x++) - *target++;

        *dx++ = d * factor;
    }
}
