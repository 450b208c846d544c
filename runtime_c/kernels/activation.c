/* activation.c: relatives of Relu and Sigmoid, elementwise. */
#include "poet/kernels/activation.h"

#include "poet/math.h"

void poet_leaky_relu_f32(size_t n, float alpha, const float *x, float *y)
{
    for (; n > 0; n--) {
        const float v = *x++;

        *y++ = v > 0.0f ? v : alpha * v;
    }
}

void poet_leaky_relu_dx_f32(size_t n, float alpha, const float *x, const float *dy, float *dx)
{
    for (; n > 0; n--) {
        const float d = *dy++;

        *dx++ = *x++ > 0.0f ? d : alpha * d;
    }
}

void poet_elu_f32(size_t n, float alpha, const float *x, float *y)
{
    for (; n > 0; n--) {
        const float v = *x++;

        *y++ = v > 0.0f ? v : alpha * (poet_expf(v) - 1.0f);
    }
}

void poet_elu_dx_f32(size_t n, float alpha, const float *y, const float *dy, float *dx)
{
    for (; n > 0; n--) {
        const float v = *y++, d = *dy++;

        *dx++ = v > 0.0f ? d : d * (v + alpha);
    }
}

/* Not by min and max: a NaN passes. */
static float ramp(float v, float alpha, float beta)
{
    const float y = alpha * v + beta;

    return y < 0.0f ? 0.0f : y > 1.0f ? 1.0f : y;
}

void poet_hard_sigmoid_f32(size_t n, float alpha, float beta, const float *x, float *y)
{
    for (; n > 0; n--) *y++ = ramp(*x++, alpha, beta);
}

void poet_hard_sigmoid_dx_f32(size_t n, float alpha, const float *y, const float *dy, float *dx)
{
    for (; n > 0; n--) {
        const float v = *y++, d = *dy++;

        *dx++ = v <= 0.0f || v >= 1.0f ? 0.0f : alpha * d;
    }
}

void poet_hard_swish_f32(size_t n, const float *x, float *y)
{
    for (; n > 0; n--) {
        const float v = *x++;

        *y++ = v * ramp(v, 0x1.555556p-3f, 0.5f); /* 1 / 6 */
    }
}

void poet_hard_swish_dx_f32(size_t n, const float *x, const float *dy, float *dx)
{
    for (; n > 0; n--) {
        const float v = *x++, d = *dy++;

        *dx++ = v <= -3.0f ? 0.0f : v < 3.0f ? d * (0x1.555556p-2f * v + 0.5f) : d; /* 1 / 3 */
    }
}

void poet_softplus_f32(size_t n, const float *x, float *y)
{
    for (; n > 0; n--) {
        const float v = *x++;
        const float rest = poet_logf(1.0f + poet_expf(v > 0.0f ? -v : v));

        *y++ = v > 0.0f ? v + rest : rest;
    }
}

void poet_softplus_dx_f32(size_t n, const float *x, const float *dy, float *dx)
{
    for (; n > 0; n--) *dx++ = *dy++ * poet_sigmoidf(*x++);
}
