/* compare.h: conditions, a byte each, elementwise with broadcasting. */
#ifndef POET_KERNELS_COMPARE_H
#define POET_KERNELS_COMPARE_H

#include "poet/poet.h"

/* Four loops over y, row-major; a and b: how far each moves in that operand, 0 where it repeats. */
struct poet_compare {
    int32_t size0, size1, size2, size3;
    int32_t a0, a1, a2, a3;
    int32_t b0, b1, b2, b3;
};

void poet_equal_f32(const struct poet_compare *s, const float *a, const float *b, uint8_t *y);
void poet_equal_i32(const struct poet_compare *s, const int32_t *a, const int32_t *b, uint8_t *y);
void poet_less_f32(const struct poet_compare *s, const float *a, const float *b, uint8_t *y);
void poet_less_i32(const struct poet_compare *s, const int32_t *a, const int32_t *b, uint8_t *y);
void poet_less_equal_f32(const struct poet_compare *s, const float *a, const float *b, uint8_t *y);
void poet_less_equal_i32(const struct poet_compare *s, const int32_t *a, const int32_t *b, uint8_t *y);
void poet_greater_f32(const struct poet_compare *s, const float *a, const float *b, uint8_t *y);
void poet_greater_i32(const struct poet_compare *s, const int32_t *a, const int32_t *b, uint8_t *y);
void poet_greater_equal_f32(const struct poet_compare *s, const float *a, const float *b, uint8_t *y);
void poet_greater_equal_i32(const struct poet_compare *s, const int32_t *a, const int32_t *b, uint8_t *y);

void poet_and_bool(const struct poet_compare *s, const uint8_t *a, const uint8_t *b, uint8_t *y);
void poet_or_bool(const struct poet_compare *s, const uint8_t *a, const uint8_t *b, uint8_t *y);

/* In place is allowed. */
void poet_not_bool(size_t n, const uint8_t *x, uint8_t *y);

#endif
