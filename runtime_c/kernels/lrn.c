/* lrn.c: each element divided by a power of the squares of the channels around it. */
#include "poet/kernels/lrn.h"

#include "poet/math.h"

/* s of channel c; x is one position of channel 0. */
static float scale(const struct poet_lrn *s, int32_t c, const float *x)
{
    const int32_t first = c > s->before ? c - s->before : 0;
    const int32_t last = c + s->after < s->channels ? c + s->after : s->channels - 1;
    float sum = 0.0f;

    for (int32_t k = first; k <= last; k++) sum += x[k * s->inner] * x[k * s->inner];
    return s->bias + s->factor * sum;
}

static float power(const struct poet_lrn *s, float of)
{
    return poet_expf(-s->beta * poet_logf(of));
}

void poet_lrn_f32(const struct poet_lrn *s, const float *x, float *y)
{
    for (int32_t n = 0; n < s->batch; n++) {
        for (int32_t i = 0; i < s->inner; i++) {
            for (int32_t c = 0; c < s->channels; c++) {
                y[c * s->inner + i] = x[c * s->inner + i] * power(s, scale(s, c, x + i));
            }
        }
        x += s->channels * s->inner;
        y += s->channels * s->inner;
    }
}

void poet_lrn_dx_f32(const struct poet_lrn *s, const float *x, const float *dy, float *work, float *dx)
{
    for (int32_t n = 0; n < s->batch; n++) {
        for (int32_t i = 0; i < s->inner; i++) {
            for (int32_t c = 0; c < s->channels; c++) {
                const int32_t at = c * s->inner + i;
                const float of = scale(s, c, x + i), p = power(s, of);

                work[c] = dy[at] * x[at] * p / of;
                dx[at] = dy[at] * p;
            }
            for (int32_t c = 0; c < s->channels; c++) {
                const int32_t at = c * s->inner + i;
                const int32_t first = c > s->after ? c - s->after : 0;
                const int32_t last = c + s->before < s->channels ? c + s->before : s->channels - 1;
                float sum = 0.0f;

                for (int32_t k = first; k <= last; k++) sum += work[k];
                dx[at] = dx[at] - s->twice * x[at] * sum;
            }
        }
        x += s->channels * s->inner;
        dy += s->channels * s->inner;
        dx += s->channels * s->inner;
    }
}
