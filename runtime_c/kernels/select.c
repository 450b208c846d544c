/* select.c: one operand or the other, elementwise with broadcasting. */
#include "poet/kernels/select.h"

/* Elements of one line of y: where they are in each operand, and how far the next is. */
struct line {
    int32_t a, b, c, a_step, b_step, c_step, size;
};

/* Line number `number` of y. A division a line is cheap beside its elements. */
static struct line line_of(const struct poet_select *s, int32_t number)
{
    const int32_t i = number / (s->size1 * s->size2), in_i = number % (s->size1 * s->size2);
    const int32_t j = in_i / s->size2, k = in_i % s->size2;

    return (struct line){
        .a = i * s->a0 + j * s->a1 + k * s->a2,
        .b = i * s->b0 + j * s->b1 + k * s->b2,
        .c = i * s->c0 + j * s->c1 + k * s->c2,
        .a_step = s->a3,
        .b_step = s->b3,
        .c_step = s->c3,
        .size = s->size3,
    };
}

/* y = expression for each element; at.a, at.b, at.c are where the operands' elements are. */
#define EACH(s, y, expression)                                                                               \
    const int32_t lines = (s)->size0 * (s)->size1 * (s)->size2;                                              \
                                                                                                             \
    for (int32_t number = 0; number < lines; number++) {                                                     \
        struct line at = line_of(s, number);                                                                 \
                                                                                                             \
        for (; at.size > 0; at.size--) {                                                                     \
            *(y)++ = (expression);                                                                           \
            at.a += at.a_step;                                                                               \
            at.b += at.b_step;                                                                               \
            at.c += at.c_step;                                                                               \
        }                                                                                                    \
    }

void poet_where_f32(const struct poet_select *s, const uint8_t *condition, const float *a, const float *b,
                    float *y)
{
    EACH(s, y, condition[at.a] != 0 ? a[at.b] : b[at.c])
}

void poet_where_true_f32(const struct poet_select *s, const uint8_t *condition, const float *x, float *y)
{
    EACH(s, y, condition[at.a] != 0 ? x[at.b] : 0.0f)
}

void poet_where_false_f32(const struct poet_select *s, const uint8_t *condition, const float *x, float *y)
{
    EACH(s, y, condition[at.a] != 0 ? 0.0f : x[at.b])
}

void poet_max_f32(const struct poet_select *s, const float *a, const float *b, float *y)
{
    EACH(s, y, a[at.a] >= b[at.b] || a[at.a] != a[at.a] ? a[at.a] : b[at.b])
}

void poet_min_f32(const struct poet_select *s, const float *a, const float *b, float *y)
{
    EACH(s, y, a[at.a] <= b[at.b] || a[at.a] != a[at.a] ? a[at.a] : b[at.b])
}

void poet_max_dx_f32(const struct poet_select *s, const float *a, const float *b, const float *dy, float *dx)
{
    EACH(s, dx, a[at.a] > b[at.b] ? dy[at.c] : a[at.a] == b[at.b] ? 0.5f * dy[at.c] : 0.0f)
}

void poet_min_dx_f32(const struct poet_select *s, const float *a, const float *b, const float *dy, float *dx)
{
    EACH(s, dx, a[at.a] < b[at.b] ? dy[at.c] : a[at.a] == b[at.b] ? 0.5f * dy[at.c] : 0.0f)
}

void poet_prelu_f32(const struct poet_select *s, const float *x, const float *slope, float *y)
{
    EACH(s, y, x[at.a] > 0.0f ? x[at.a] : slope[at.b] * x[at.a])
}

void poet_prelu_dx_f32(const struct poet_select *s, const float *x, const float *slope, const float *dy,
                       float *dx)
{
    EACH(s, dx, x[at.a] > 0.0f ? dy[at.c] : slope[at.b] * dy[at.c])
}

void poet_prelu_ds_f32(const struct poet_select *s, const float *x, const float *dy, float *ds)
{
    EACH(s, ds, x[at.a] > 0.0f ? 0.0f : x[at.a] * dy[at.b])
}
