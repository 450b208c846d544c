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
                float *const at = y + i * s->step0 + j * s->step1 + k * s->step2;

                if (s->step3 == 0) {
                    float sum = *at;

                    for (int32_t l = 0; l < s->size3; l++) {
                        sum += *x++;
                    }
                    *at = sum;
                } else {
                    for (int32_t l = 0; l < s->size3; l++) {
                        at[l] += *x++;
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
                const float *const at = dy + i * s->step0 + j * s->step1 + k * s->step2;

                if (s->step3 == 0) {
                    const float share = *at / count;

                    for (int32_t l = 0; l < s->size3; l++) {
                        *dx++ = share;
                    }
                } else {
                    for (int32_t l = 0; l < s->size3; l++) {
                        *dx++ = at[l] / count;
                    }
                }
            }
        }
    }
}
