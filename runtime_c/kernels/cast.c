/* cast.c: numbers of one type as another. */
#include "poet/kernels/cast.h"

void poet_float_from_int(size_t n, const int32_t *x, float *y)
{
    for (; n > 0; n--) *y++ = (float)*x++;
}

void poet_float_from_bool(size_t n, const uint8_t *x, float *y)
{
    for (; n > 0; n--) *y++ = *x++ != 0 ? 1.0f : 0.0f;
}

void poet_bool_from_int(size_t n, const int32_t *x, uint8_t *y)
{
    for (; n > 0; n--) *y++ = *x++ != 0;
}

void poet_bool_from_float(size_t n, const float *x, uint8_t *y)
{
    for (; n > 0; n--) *y++ = *x++ != 0.0f;
}
