/* transpose.c: axes in another order. */
#include "poet/kernels/transpose.h"

void poet_transpose_f32(const struct poet_transpose *s, const float *x, float *y)
{
    for (int32_t i = 0; i < s->size0; i++) {
        for (int32_t j = 0; j < s->size1; j++) {
            for (int32_t k = 0; k < s->size2; k++) {
                const float *from = x + i * s->x0 + j * s->x1 + k * s->x2;

                for (int32_t l = 0; l < s->size3; l++) {
                    *y++ = *from;
                    from += s->x3;
                }
            }
        }
    }
}
