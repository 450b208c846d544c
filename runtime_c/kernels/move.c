/* move.c: blocks of elements to another place. */
#include "poet/kernels/move.h"

#define MOVE(name, type)                                                                                     \
    void poet_move_##name(const struct poet_move *s, const type *x, type *y)                                 \
    {                                                                                                        \
        for (int32_t i = 0; i < s->size0; i++) {                                                             \
            for (int32_t j = 0; j < s->size1; j++) {                                                         \
                for (int32_t k = 0; k < s->size2; k++) {                                                     \
                    const type *const from = x + (s->x_at + i * s->x0 + j * s->x1 + k * s->x2);              \
                    type *const to = y + (s->y_at + i * s->y0 + j * s->y1 + k * s->y2);                      \
                                                                                                             \
                    for (int32_t l = 0; l < s->size3; l++) to[l * s->y3] = from[l * s->x3];                  \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
    }

MOVE(f32, float)
MOVE(u8, uint8_t)

void poet_fill_f32(size_t n, float value, float *y)
{
    for (; n > 0; n--) *y++ = value;
}
