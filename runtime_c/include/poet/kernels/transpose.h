/* transpose.h: axes in another order. */
#ifndef POET_KERNELS_TRANSPOSE_H
#define POET_KERNELS_TRANSPOSE_H

#include "poet/poet.h"

/* Four loops over y, row-major; x: how far each moves in x. */
struct poet_transpose {
    int32_t size0, size1, size2, size3;
    int32_t x0, x1, x2, x3;
};

void poet_transpose_f32(const struct poet_transpose *s, const float *x, float *y);

#endif
