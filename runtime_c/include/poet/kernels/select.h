/* select.h: one operand or the other, elementwise with broadcasting. In place is allowed where an operand has
 * y's size. */
#ifndef POET_KERNELS_SELECT_H
#define POET_KERNELS_SELECT_H

#include "poet/poet.h"

/* Four loops over y, row-major; a, b, c: how far each moves in the first, second and third operand, 0 where it
 * repeats. */
struct poet_select {
    int32_t size0, size1, size2, size3;
    int32_t a0, a1, a2, a3;
    int32_t b0, b1, b2, b3;
    int32_t c0, c1, c2, c3;
};

/* y = condition ? a : b; x where the condition holds, or where it does not, else 0 */
void poet_where_f32(const struct poet_select *s, const uint8_t *condition, const float *a, const float *b,
                    float *y);
void poet_where_true_f32(const struct poet_select *s, const uint8_t *condition, const float *x, float *y);
void poet_where_false_f32(const struct poet_select *s, const uint8_t *condition, const float *x, float *y);

/* The larger, the smaller; a NaN where there is one */
void poet_max_f32(const struct poet_select *s, const float *a, const float *b, float *y);
void poet_min_f32(const struct poet_select *s, const float *a, const float *b, float *y);

/* dy where a won over b, half of it at a tie, else 0 */
void poet_max_dx_f32(const struct poet_select *s, const float *a, const float *b, const float *dy,
                     float *dx);
void poet_min_dx_f32(const struct poet_select *s, const float *a, const float *b, const float *dy,
                     float *dx);

/* y = x > 0 ? x : slope x; dx = x > 0 ? dy : slope dy; ds = x > 0 ? 0 : x dy, not yet summed */
void poet_prelu_f32(const struct poet_select *s, const float *x, const float *slope, float *y);
void poet_prelu_dx_f32(const struct poet_select *s, const float *x, const float *slope, const float *dy,
                       float *dx);
void poet_prelu_ds_f32(const struct poet_select *s, const float *x, const float *dy, float *ds);

#endif
