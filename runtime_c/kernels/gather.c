/* gather.c: rows of tables by ids, and the gradient of the tables. */
#include "poet/kernels/gather.h"

#include <string.h>

/* The row an id names, or -1. */
static int32_t row(const struct poet_gather *s, int32_t id)
{
    if (id < -s->rows || id >= s->rows) return -1;
    return id < 0 ? id + s->rows : id;
}

void poet_gather_f32(const struct poet_gather *s, const float *x, const int32_t *id, float *y)
{
    const uint32_t bits = 0x7fc00000u;
    float nan;

    memcpy(&nan, &bits, sizeof nan);
    for (int32_t t = 0; t < s->tables; t++) {
        for (int32_t i = 0; i < s->ids; i++) {
            const int32_t r = row(s, id[i]);

            if (r >= 0) {
                memcpy(y, x + r * s->inner, (size_t)s->inner * sizeof *y);
            } else {
                for (int32_t k = 0; k < s->inner; k++) y[k] = nan;
            }
            y += s->inner;
        }
        x += s->rows * s->inner;
    }
}

void poet_gather_dx_f32(const struct poet_gather *s, const float *dy, const int32_t *id, float *dx)
{
    memset(dx, 0, (size_t)(s->tables * s->rows * s->inner) * sizeof *dx);
    for (int32_t t = 0; t < s->tables; t++) {
        for (int32_t i = 0; i < s->ids; i++) {
            const int32_t r = row(s, id[i]);

            if (r >= 0) {
                float *const to = dx + r * s->inner;

                for (int32_t k = 0; k < s->inner; k++) to[k] += dy[k];
            }
            dy += s->inner;
        }
        dx += s->rows * s->inner;
    }
}

/* Whether an id before number i names its row. */
static int32_t seen(const struct poet_gather *s, const int32_t *id, int32_t i)
{
    for (int32_t j = 0; j < i; j++) {
        if (row(s, id[j]) == row(s, id[i])) return 1;
    }
    return 0;
}

void poet_gather_sgd_f32(const struct poet_gather *s, float lr, const float *dy, const int32_t *id,
                         float *work, float *x)
{
    for (int32_t i = 0; i < s->ids; i++) {
        const int32_t r = row(s, id[i]);

        if (r < 0 || seen(s, id, i)) continue;
        for (int32_t t = 0; t < s->tables; t++) {
            const float *from = dy + (t * s->ids + i) * s->inner;
            float *const to = x + (t * s->rows + r) * s->inner;

            memset(work, 0, (size_t)s->inner * sizeof *work);
            for (int32_t j = i; j < s->ids; j++) {
                const int32_t n = row(s, id[j]) == r ? s->inner : 0;

                for (int32_t k = 0; k < n; k++) work[k] += from[k];
                from += s->inner;
            }
            for (int32_t k = 0; k < s->inner; k++) to[k] = to[k] - lr * work[k];
        }
    }
}
