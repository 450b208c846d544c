/* reduce.c: largest and smallest over any axes. */
#include "poet/kernels/reduce.h"

#include <string.h>

static float infinity(uint32_t sign)
{
    const uint32_t bits = 0x7f800000u | sign;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static void extreme(const struct poet_reduce *s, int32_t smallest, const float *x, float *y, int32_t *index)
{
    const float worst = infinity(smallest ? 0u : 0x80000000u);
    int32_t at = 0;

    for (int32_t i = 0; i < s->outputs; i++) {
        y[i] = worst;
        if (index != NULL) index[i] = -1;
    }
    for (int32_t i = 0; i < s->size0; i++) {
        for (int32_t j = 0; j < s->size1; j++) {
            for (int32_t k = 0; k < s->size2; k++) {
                int32_t o = i * s->y0 + j * s->y1 + k * s->y2;

                for (int32_t l = 0; l < s->size3; l++) {
                    const float v = x[at], best = y[o];

                    if (!(smallest ? v >= best : v <= best) && best == best) { /* beaten, or by the first NaN */
                        y[o] = v;
                        if (index != NULL) index[o] = at;
                    }
                    at++;
                    o += s->y3;
                }
            }
        }
    }
}

void poet_reduce_max_f32(const struct poet_reduce *s, const float *x, float *y, int32_t *index)
{
    extreme(s, 0, x, y, index);
}

void poet_reduce_min_f32(const struct poet_reduce *s, const float *x, float *y, int32_t *index)
{
    extreme(s, 1, x, y, index);
}

void poet_reduce_place_f32(size_t outputs, size_t inputs, const float *dy, const int32_t *index, float *dx)
{
    memset(dx, 0, inputs * sizeof *dx);
    for (size_t i = 0; i < outputs; i++) {
        if (index[i] >= 0) dx[index[i]] = dy[i];
    }
}
