/* add.c: elementwise arithmetic with broadcasting. */
#include "poet/kernels/add.h"

/* One operator, flat and broadcasting. */
#define BINARY(name, op)                                                                                     \
    void poet_##name##_f32(size_t n, const float *a, const float *b, float *y)                               \
    {                                                                                                        \
        for (; n >= 4; n -= 4) {                                                                             \
            const float p = a[0] op b[0], q = a[1] op b[1], r = a[2] op b[2], t = a[3] op b[3];              \
                                                                                                             \
            y[0] = p;                                                                                        \
            y[1] = q;                                                                                        \
            y[2] = r;                                                                                        \
            y[3] = t;                                                                                        \
            a += 4;                                                                                          \
            b += 4;                                                                                          \
            y += 4;                                                                                          \
        }                                                                                                    \
        for (; n > 0; n--) {                                                                                 \
            *y++ = *a++ op (*b++);                                                                           \
        }                                                                                                    \
    }                                                                                                        \
                                                                                                             \
    void poet_##name##_broadcast_f32(const struct poet_broadcast *s, const float *a, const float *b,         \
                                     float *y)                                                               \
    {                                                                                                        \
        for (int32_t i = 0; i < s->size0; i++) {                                                             \
            for (int32_t j = 0; j < s->size1; j++) {                                                         \
                for (int32_t k = 0; k < s->size2; k++) {                                                     \
                    const float *p = a + i * s->a0 + j * s->a1 + k * s->a2;                                  \
                    const float *q = b + i * s->b0 + j * s->b1 + k * s->b2;                                  \
                                                                                                             \
                    for (int32_t l = 0; l < s->size3; l++) {                                                 \
                        *y++ = *p op (*q);                                                                   \
                        p += s->a3;                                                                          \
                        q += s->b3;                                                                          \
                    }                                                                                        \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
    }

BINARY(add, +)
BINARY(sub, -)
BINARY(mul, *)
BINARY(div, /)

void poet_neg_f32(size_t n, const float *x, float *y)
{
    for (; n > 0; n--) {
        *y++ = -*x++;
    }
}

void poet_sum_to_f32(const struct poet_sum_to *s, const float *x, float *y)
{
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
}
