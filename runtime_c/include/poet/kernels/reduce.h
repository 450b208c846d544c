/* reduce.h: largest and smallest over any axes. */
#ifndef POET_KERNELS_REDUCE_H
#define POET_KERNELS_REDUCE_H

#include "poet/poet.h"

/* Four loops over x, row-major; y: how far each moves in y, 0 where the axis is reduced. */
struct poet_reduce {
    int32_t size0, size1, size2, size3;
    int32_t y0, y1, y2, y3;
    int32_t outputs; /* elements of y */
};

/* The first largest, or the first NaN; index: which element of x it is, -1 where all are -inf, or NULL. */
void poet_reduce_max_f32(const struct poet_reduce *s, const float *x, float *y, int32_t *index);

/* The first smallest; -1 where all are inf. */
void poet_reduce_min_f32(const struct poet_reduce *s, const float *x, float *y, int32_t *index);

/* dx[index[i]] = dy[i], 0 elsewhere */
void poet_reduce_place_f32(size_t outputs, size_t inputs, const float *dy, const int32_t *index, float *dx);

#endif
