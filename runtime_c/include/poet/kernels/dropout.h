/* dropout.h: dropout by counter: a mask is a function of seed, step, node and element. */
#ifndef POET_KERNELS_DROPOUT_H
#define POET_KERNELS_DROPOUT_H

#include "poet/poet.h"

struct poet_dropout {
    int32_t size;
    int32_t node;      /* sets its masks apart from other nodes' */
    int32_t keep_from; /* of 2^24: an element stays if its 24 random bits are not below */
    float scale;       /* of what stays */
};

/* y = x scale or x 0; the same call takes dy to dx. Random bits: Philox-4x32-10, key (seed, 0), counter
 * (element / 4, node, step, 0), word element % 4. In place is allowed. */
void poet_dropout_f32(const struct poet_dropout *s, int32_t seed, int32_t step, const float *x, float *y);

#endif
