/* cast.h: numbers of one type as another. */
#ifndef POET_KERNELS_CAST_H
#define POET_KERNELS_CAST_H

#include "poet/poet.h"

/* The nearest float; 1 for true */
void poet_float_from_int(size_t n, const int32_t *x, float *y);
void poet_float_from_bool(size_t n, const uint8_t *x, float *y);

/* Whether x is not 0 */
void poet_bool_from_int(size_t n, const int32_t *x, uint8_t *y);
void poet_bool_from_float(size_t n, const float *x, uint8_t *y);

#endif
