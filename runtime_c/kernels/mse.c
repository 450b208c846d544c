/* mse.c: mean squared error over all elements. */
#include "poet/kernels/mse.h"

void poet_mean_squared_error_f32(size_t n, const float *x, const float *target, float *loss)
{
    float sum = 0.0f;

    for (size_t i = 0; i < n; i++) {
        const float d = x[i] - target[i];

        sum += d * d;
    }
    *loss = sum / (float)n;
}

void poet_mean_squared_error_dx_f32(size_t n, float factor, const float *x, const float *target, float *dx)
{
    for (; n > 0; n--) {
        const float d = *x++ - *target++;

        *dx++ = d * factor;
    }
}
