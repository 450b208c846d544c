/* mean.c: mean over any axes. */
#include "poet/kernels/mean.h"

void poet_mean_f32(const struct poet_mean *s, const float *x, float *y)
{
    const float count = (float)s->count;

    for (int32_t i = 0; i < s->outputs; i++) {
        y[i] = 0.0f;
    }
    for (int32_t i = 0; i < s->size0; i++) {
        for (int32_t j = 0; j < s->size1; j++) {
            for (int32_t k = 0; k < s->size2; k++) {
                float *at = y + i * s->y0 + j * s->y1 + k * s->y2;
                const float *from = x + i * s->x0 + j * s->x1 + k * s->x2;

                if (s->y3 == 0) {
                    float sum = *at;

                    for (int32_t l = 0; l < s->size3; l++) {
                        sum += *from;
                        from += s->x3;
                    }
                    *at = sum;
                } else {
                    for (int32_t l = 0; l < s->size3; l++) {
                        *at += *from;
                        at += s->y3;
                        from += s->x3;
                    }
                }
            }
        }
    }
    for (int32_t i = 0; i < s->outputs; i++) {
        y[i] /= count;
    }
}

void poet_mean_dx_f32(const struct poet_mean *s, const float *dy, float *dx)
{
    const float count = (float)s->count;

    for (int32_t i = 0; i < s->size0; i++) {
        for (int32_t j = 0; j < s->size1; j++) {
            for (int32_t k = 0; k < s->size2; k++) {
                const float *at = dy + i * s->y0 + j * s->y1 + k * s->y2;
                float *to = dx + i * s->x0 + j * s->x1 + k * s->x2;

                if (s->y3 == 0) {
                    const float share = *at / count;

                    for (int32_t l = 0; l < s->size3; l++) {
                        *to = share;
                        to += s->x3;
                    }
                } else {
                    for (int32_t l = 0; l < s->size3; l++) {
                        *to = *at / count;
                        to += s->x3;
                        at += s->y3;
                    }
                }
            }
        }
    }
}
