/* clip.c: x held between bounds. */
#include "poet/kernels/clip.h"

#include <string.h>

void poet_clip_f32(size_t n, float low, float high, const float *x, float *y)
{
    for (; n > 0; n--) {
        const float a = *x++;
        const float b = a < low ? low : a;

        *y++ = b > high ? high : b;
    }
}

void poet_clip_low_f32(size_t n, float low, const float *x, float *y)
{
    for (; n > 0; n--) {
        const float a = *x++;

        *y++ = a < low ? low : a;
    }
}

void poet_clip_high_f32(size_t n, float high, const float *x, float *y)
{
    for (; n > 0; n--) {
        const float a = *x++;

        *y++ = a > high ? high : a;
    }
}

void poet_copy_f32(size_t n, const float *x, float *y)
{
    if (x != y) {
        memcpy(y, x, n * sizeof *y);
    }
}

void poet_clip_dx_f32(size_t n, float low, float high, const float *y, const float *dy, float *dx)
{
    for (; n > 0; n--) {
        const float a = *y++, d = *dy++;

        *dx++ = a <= low || a >= high ? 0.0f : d;
    }
}
