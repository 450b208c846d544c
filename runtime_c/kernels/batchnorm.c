/* batchnorm.c: batch norm with frozen statistics, and with those of the batch. */
#include "poet/kernels/batchnorm.h"

#include "poet/math.h"

static float inverse_std(const struct poet_batchnorm *s, float var)
{
    return 1.0f / poet_sqrtf(var + s->eps);
}

/* Where channel c of sample n begins. */
static int32_t plane(const struct poet_batchnorm *s, int32_t n, int32_t c)
{
    return (n * s->channels + c) * s->size;
}

void poet_batchnorm_f32(const struct poet_batchnorm *s, const float *x, const float *g, const float *b,
                        const float *mean, const float *var, float *y)
{
    for (int32_t c = 0; c < s->channels; c++) {
        const float scale = g[c] * inverse_std(s, var[c]);
        const float shift = b[c] - mean[c] * scale;

        for (int32_t n = 0; n < s->batch; n++) {
            const float *from = x + plane(s, n, c);
            float *to = y + plane(s, n, c);

            for (int32_t i = 0; i < s->size; i++) {
                to[i] = from[i] * scale + shift;
            }
        }
    }
}

void poet_batchnorm_dx_f32(const struct poet_batchnorm *s, const float *dy, const float *g, const float *var,
                           float *dx)
{
    for (int32_t c = 0; c < s->channels; c++) {
        const float scale = g[c] * inverse_std(s, var[c]);

        for (int32_t n = 0; n < s->batch; n++) {
            const float *from = dy + plane(s, n, c);
            float *to = dx + plane(s, n, c);

            for (int32_t i = 0; i < s->size; i++) {
                to[i] = from[i] * scale;
            }
        }
    }
}

void poet_batchnorm_dg_f32(const struct poet_batchnorm *s, enum poet_start start, const float *dy,
                           const float *x, const float *mean, const float *var, float *dg)
{
    for (int32_t c = 0; c < s->channels; c++) {
        const float m = mean[c], is = inverse_std(s, var[c]);
        float sum = start == POET_CONTINUE ? dg[c] : 0.0f;

        for (int32_t n = 0; n < s->batch; n++) {
            const float *const d = dy + plane(s, n, c);
            const float *const v = x + plane(s, n, c);

            for (int32_t i = 0; i < s->size; i++) {
                sum += d[i] * ((v[i] - m) * is);
            }
        }
        dg[c] = sum;
    }
}

void poet_batchnorm_squares_f32(const struct poet_batchnorm *s, enum poet_start start, const float *x,
                                const float *mean, float *sum)
{
    for (int32_t c = 0; c < s->channels; c++) {
        const float m = mean[c];
        float squares = start == POET_CONTINUE ? sum[c] : 0.0f;

        for (int32_t n = 0; n < s->batch; n++) {
            const float *const from = x + plane(s, n, c);

            for (int32_t i = 0; i < s->size; i++) {
                const float d = from[i] - m;

                squares += d * d;
            }
        }
        sum[c] = squares;
    }
}

void poet_batchnorm_normalise_f32(const struct poet_batchnorm *s, const float *x, const float *g,
                                  const float *b, const float *mean, const float *var, float *y)
{
    for (int32_t c = 0; c < s->channels; c++) {
        const float m = mean[c], shift = b[c];
        const float scale = g[c] * inverse_std(s, var[c]);

        for (int32_t n = 0; n < s->batch; n++) {
            const float *const from = x + plane(s, n, c);
            float *const to = y + plane(s, n, c);

            for (int32_t i = 0; i < s->size; i++) {
                to[i] = (from[i] - m) * scale + shift;
            }
        }
    }
}

void poet_batchnorm_train_f32(const struct poet_batchnorm *s, const float *x, const float *g, const float *b,
                              float *y, float *mean, float *var)
{
    const float count = (float)(s->batch * s->size);

    for (int32_t c = 0; c < s->channels; c++) {
        float m = 0.0f;

        for (int32_t n = 0; n < s->batch; n++) {
            const float *const from = x + plane(s, n, c);

            for (int32_t i = 0; i < s->size; i++) {
                m += from[i];
            }
        }
        mean[c] = m / count;
    }
    poet_batchnorm_squares_f32(s, POET_START_ZERO, x, mean, var);
    for (int32_t c = 0; c < s->channels; c++) {
        var[c] /= count;
    }
    poet_batchnorm_normalise_f32(s, x, g, b, mean, var, y);
}

void poet_batchnorm_train_dx_part_f32(const struct poet_batchnorm *s, int32_t count, const float *dy,
                                      const float *x, const float *g, const float *mean, const float *var,
                                      const float *dg, const float *db, float *dx)
{
    for (int32_t c = 0; c < s->channels; c++) {
        const float m = mean[c], is = inverse_std(s, var[c]);
        const float scale = g[c] * is, dg_mean = dg[c] / (float)count, db_mean = db[c] / (float)count;

        for (int32_t n = 0; n < s->batch; n++) {
            const float *const d = dy + plane(s, n, c);
            const float *const v = x + plane(s, n, c);
            float *const to = dx + plane(s, n, c);

            for (int32_t i = 0; i < s->size; i++) {
                to[i] = ((d[i] - db_mean) - ((v[i] - m) * is) * dg_mean) * scale;
            }
        }
    }
}

void poet_batchnorm_train_dx_f32(const struct poet_batchnorm *s, const float *dy, const float *x,
                                 const float *g, const float *mean, const float *var, const float *dg,
                                 const float *db, float *dx)
{
    poet_batchnorm_train_dx_part_f32(s, s->batch * s->size, dy, x, g, mean, var, dg, db, dx);
}

void poet_statistic_update_f32(size_t n, float keep, float take, const float *batch, float *running)
{
    for (; n > 0; n--) {
        *running = *running * keep + *batch++ * take;
        running++;
    }
}
