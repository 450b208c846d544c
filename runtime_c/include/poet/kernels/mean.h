/* mean.h: mean over any axes. */
#ifndef POET_KERNELS_MEAN_H
#define POET_KERNELS_MEAN_H

#include "poet/poet.h"

/* Four loops in the order of the sums; how far each moves in x, and in y: 0 where the axis is summed. */
struct poet_mean {
    int32_t size0, size1, size2, size3;
    int32_t x0, x1, x2, x3;
    int32_t y0, y1, y2, y3;
    int32_t outputs; /* elements of y */
    int32_t count;   /* elements of x that go into one of y */
};

/* y = sum of x from +0, in the order of the loops, then divided by count */
void poet_mean_f32(const struct poet_mean *s, const float *x, float *y);

/* dx = dy / count */
void poet_mean_dx_f32(const struct poet_mean *s, const float *dy, float *dx);

#endif
