/* batchnorm_relu.c: batch norm, shortcut and Relu in one pass; each element as the separate kernels round
 * it. */
#include "poet/kernels/batchnorm_relu.h"

#include "poet/math.h"

struct channel {
    float scale, shift, mean, is;
};

static struct channel channel(const struct poet_batchnorm *s, float g, float b, float mean, float var)
{
    struct channel c;
    c.is = 1.0f / poet_sqrtf(var + s->eps);
    c.scale = g * c.is;
    c.shift = b - mean * c.scale;
    c.mean = mean;
    return c;
}

static int32_t plane(const struct poet_batchnorm *s, int32_t n, int32_t c)
{
    return (n * s->channels + c) * s->size;
}

static float relu(float x)
{
    return x < 0.0f ? 0.0f : x;
}

void poet_batchnorm_relu_f32(const struct poet_batchnorm *s, const float *x, const float *g, const float *b,
                             const float *mean, const float *var, float *y)
{
    for (int32_t c = 0; c < s->channels; c++) {
        const struct channel k = channel(s, g[c], b[c], mean[c], var[c]);
        for (int32_t n = 0; n < s->batch; n++) {
            const float *const from = x + plane(s, n, c);
            float *const to = y + plane(s, n, c);
            for (int32_t i = 0; i < s->size; i++) to[i] = relu(from[i] * k.scale + k.shift);
        }
    }
}

void poet_batchnorm_add_relu_f32(const struct poet_batchnorm *s, const float *x, const float *g,
                                 const float *b, const float *mean, const float *var, const float *shortcut,
                                 float *y)
{
    for (int32_t c = 0; c < s->channels; c++) {
        const struct channel k = channel(s, g[c], b[c], mean[c], var[c]);
        for (int32_t n = 0; n < s->batch; n++) {
            const float *const from = x + plane(s, n, c);
            const float *const other = shortcut + plane(s, n, c);
            float *const to = y + plane(s, n, c);
            for (int32_t i = 0; i < s->size; i++) to[i] = relu((from[i] * k.scale + k.shift) + other[i]);
        }
    }
}

void poet_batchnorm_relu_dx_f32(const struct poet_batchnorm *s, enum poet_start start, const float *dy,
                                const float *x, const float *g, const float *b, const float *mean,
                                const float *var, float *dx, float *dg, float *db)
{
    for (int32_t c = 0; c < s->channels; c++) {
        const struct channel k = channel(s, g[c], b[c], mean[c], var[c]);
        float sum_g = start == POET_CONTINUE ? dg[c] : 0.0f;
        float sum_b = start == POET_CONTINUE ? db[c] : 0.0f;
        for (int32_t n = 0; n < s->batch; n++) {
            const float *const in = x + plane(s, n, c);
            const float *const up = dy + plane(s, n, c);
            float *const down = dx + plane(s, n, c);
            for (int32_t i = 0; i < s->size; i++) {
                const float v = in[i];
                const float dz = v * k.scale + k.shift <= 0.0f ? 0.0f : up[i];
                sum_g += dz * ((v - k.mean) * k.is);
                sum_b += dz;
                down[i] = dz * k.scale;
            }
        }
        dg[c] = sum_g;
        db[c] = sum_b;
    }
}

void poet_batchnorm_add_relu_dx_f32(const struct poet_batchnorm *s, enum poet_start start, const float *dy,
                                    const float *y, const float *x, const float *g, const float *mean,
                                    const float *var, float *dx, float *dg, float *db, float *ds)
{
    for (int32_t c = 0; c < s->channels; c++) {
        const struct channel k = channel(s, g[c], 0.0f, mean[c], var[c]);
        float sum_g = start == POET_CONTINUE ? dg[c] : 0.0f;
        float sum_b = start == POET_CONTINUE ? db[c] : 0.0f;
        for (int32_t n = 0; n < s->batch; n++) {
            const int32_t at = plane(s, n, c);
            for (int32_t i = at; i < at + s->size; i++) {
                const float dz = y[i] <= 0.0f ? 0.0f : dy[i];
                sum_g += dz * ((x[i] - k.mean) * k.is);
                sum_b += dz;
                ds[i] = dz;
                dx[i] = dz * k.scale;
            }
        }
        dg[c] = sum_g;
        db[c] = sum_b;
    }
}

void poet_add_relu_f32(size_t n, const float *a, const float *b, float *y)
{
    for (size_t i = 0; i < n; i++) y[i] = relu(a[i] + b[i]);
}
