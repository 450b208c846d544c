/* bce.h: binary cross entropy of logits, the mean over all elements. */
#ifndef POET_KERNELS_BCE_H
#define POET_KERNELS_BCE_H

#include "poet/poet.h"

/* loss = sum of (max(x, 0) - x t) + log(1 + e^-|x|) from +0, divided by n */
void poet_binary_cross_entropy_f32(size_t n, const float *x, const float *target, float *loss);

/* dx = (sigmoid x - t) factor, factor = 1 / n; in place is allowed */
void poet_binary_cross_entropy_dx_f32(size_t n, float factor, const float *x, const float *target, float *dx);

#endif
