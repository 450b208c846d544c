/* mean.h: mean over any axes. */
#ifndef POET_KERNELS_MEAN_H
#define POET_KERNELS_MEAN_H

#include "poet/poet.h"

/* Four loops over x, row-major; step is how far each moves in y: 0 where the axis is summed. */
struct poet_mean {
    int32_t size0, size1, size2, size3;
    int32_t step0, step1, step2, step3;
    int32_t outputs; /* elements of y */
    int32_t count;   /* elements of x that go into one of y */
};

/* y = sum of x from +0, row-major, then divided by count */
void poet_mean_f32(const struct poet_mean *s, const float *x, float *y);

/* dx = dy / count */
void poet_mean_dx_f32(const struct poet_mean *s, const float *dy, float *dx);

#endif
