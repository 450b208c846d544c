/* add.h: elementwise arithmetic with broadcasting. In place is allowed where an operand has y's size. */
#ifndef POET_KERNELS_ADD_H
#define POET_KERNELS_ADD_H

#include "poet/poet.h"

/* Four loops over y, row-major; a and b: how far each moves in that operand, 0 where it repeats. */
struct poet_broadcast {
    int32_t size0, size1, size2, size3;
    int32_t a0, a1, a2, a3;
    int32_t b0, b1, b2, b3;
};

void poet_add_f32(size_t n, const float *a, const float *b, float *y);
void poet_sub_f32(size_t n, const float *a, const float *b, float *y);
void poet_mul_f32(size_t n, const float *a, const float *b, float *y);
void poet_div_f32(size_t n, const float *a, const float *b, float *y);
void poet_neg_f32(size_t n, const float *x, float *y);

void poet_add_broadcast_f32(const struct poet_broadcast *s, const float *a, const float *b, float *y);
void poet_sub_broadcast_f32(const struct poet_broadcast *s, const float *a, const float *b, float *y);
void poet_mul_broadcast_f32(const struct poet_broadcast *s, const float *a, const float *b, float *y);
void poet_div_broadcast_f32(const struct poet_broadcast *s, const float *a, const float *b, float *y);

/* Four loops in the order of the sums; how far each moves in x, and in y: 0 where the axis is summed. */
struct poet_sum_to {
    int32_t size0, size1, size2, size3;
    int32_t x0, x1, x2, x3;
    int32_t y0, y1, y2, y3;
    int32_t outputs; /* elements of y */
};

/* y = sum of x from +0, in the order of the loops */
void poet_sum_to_f32(const struct poet_sum_to *s, const float *x, float *y);

#endif
