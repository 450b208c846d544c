/* compare.c: conditions, a byte each, elementwise with broadcasting. */
#include "poet/kernels/compare.h"

/* y = condition for each element; *p and *q are the operands' elements there. */
#define COMPARE(name, type, condition)                                                                       \
    void poet_##name(const struct poet_compare *s, const type *a, const type *b, uint8_t *y)                 \
    {                                                                                                        \
        for (int32_t i = 0; i < s->size0; i++) {                                                             \
            for (int32_t j = 0; j < s->size1; j++) {                                                         \
                for (int32_t k = 0; k < s->size2; k++) {                                                     \
                    const type *p = a + i * s->a0 + j * s->a1 + k * s->a2;                                   \
                    const type *q = b + i * s->b0 + j * s->b1 + k * s->b2;                                   \
                                                                                                             \
                    for (int32_t l = 0; l < s->size3; l++) {                                                 \
                        *y++ = (condition);                                                                  \
                        p += s->a3;                                                                          \
                        q += s->b3;                                                                          \
                    }                                                                                        \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
    }

COMPARE(equal_f32, float, *p == *q)
COMPARE(equal_i32, int32_t, *p == *q)
COMPARE(less_f32, float, *p < *q)
COMPARE(less_i32, int32_t, *p < *q)
COMPARE(less_equal_f32, float, *p <= *q)
COMPARE(less_equal_i32, int32_t, *p <= *q)
COMPARE(greater_f32, float, *p > *q)
COMPARE(greater_i32, int32_t, *p > *q)
COMPARE(greater_equal_f32, float, *p >= *q)
COMPARE(greater_equal_i32, int32_t, *p >= *q)
COMPARE(and_bool, uint8_t, *p != 0 && *q != 0)
COMPARE(or_bool, uint8_t, *p != 0 || *q != 0)

void poet_not_bool(size_t n, const uint8_t *x, uint8_t *y)
{
    for (; n > 0; n--) *y++ = *x++ == 0;
}
