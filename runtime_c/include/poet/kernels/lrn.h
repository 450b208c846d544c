/* lrn.h: each element divided by a power of the squares of the channels around it. */
#ifndef POET_KERNELS_LRN_H
#define POET_KERNELS_LRN_H

#include "poet/poet.h"

struct poet_lrn {
    int32_t batch, channels, inner; /* x[batch][channels][inner] */
    int32_t before, after;          /* channels around each */
    float factor, beta, bias;
    float twice; /* 2 factor beta */
};

/* y = x s^-beta, s = bias + factor (sum of x x over the channels around, ascending) */
void poet_lrn_f32(const struct poet_lrn *s, const float *x, float *y);

/* dx = dy p - (twice x) (sum of t over the channels that x is around, ascending), p = s^-beta,
 * t = ((dy x) p) / s. work: one float a channel. */
void poet_lrn_dx_f32(const struct poet_lrn *s, const float *x, const float *dy, float *work, float *dx);

#endif
