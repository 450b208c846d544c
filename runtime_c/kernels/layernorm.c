/* layernorm.c: layer normalization; sums over features ascending, in two passes. */
#include "poet/kernels/layernorm.h"

#include "poet/math.h"

void poet_layernorm_f32(const struct poet_layernorm *s, const float *x, const float *g, const float *b,
                        float *y, float *mean, float *inverse)
{
    const float count = (float)s->features;

    for (int32_t r = 0; r < s->rows; r++) {
        float sum = 0.0f, squares = 0.0f, is;

        for (int32_t i = 0; i < s->features; i++) sum += x[i];
        sum /= count;
        for (int32_t i = 0; i < s->features; i++) {
            const float d = x[i] - sum;

            squares += d * d;
        }
        is = 1.0f / poet_sqrtf(squares / count + s->eps);
        for (int32_t i = 0; i < s->features; i++) {
            const float scaled = ((x[i] - sum) * is) * g[i];

            y[i] = b != NULL ? scaled + b[i] : scaled;
        }
        if (mean != NULL) *mean++ = sum;
        if (inverse != NULL) *inverse++ = is;
        x += s->features;
        y += s->features;
    }
}

void poet_layernorm_dx_f32(const struct poet_layernorm *s, const float *dy, const float *x, const float *g,
                           const float *mean, const float *inverse, float *dx)
{
    const float count = (float)s->features;

    for (int32_t r = 0; r < s->rows; r++) {
        const float middle = mean[r], is = inverse[r];
        float first = 0.0f, second = 0.0f;

        for (int32_t i = 0; i < s->features; i++) {
            const float e = dy[i] * g[i];

            first += e;
            second += e * ((x[i] - middle) * is);
        }
        first /= count;
        second /= count;
        for (int32_t i = 0; i < s->features; i++) {
            dx[i] = is * ((dy[i] * g[i] - first) - ((x[i] - middle) * is) * second);
        }
        dy += s->features;
        x += s->features;
        dx += s->features;
    }
}

void poet_layernorm_dg_f32(const struct poet_layernorm *s, const float *dy, const float *x,
                           const float *mean, const float *inverse, float *dg)
{
    for (int32_t i = 0; i < s->features; i++) dg[i] = 0.0f;
    for (int32_t r = 0; r < s->rows; r++) {
        for (int32_t i = 0; i < s->features; i++) dg[i] += *dy++ * ((*x++ - mean[r]) * inverse[r]);
    }
}
