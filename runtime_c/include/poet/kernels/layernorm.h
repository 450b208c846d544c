/* layernorm.h: each row of features shifted and scaled to mean 0 and variance 1, and its gradients. */
#ifndef POET_KERNELS_LAYERNORM_H
#define POET_KERNELS_LAYERNORM_H

#include "poet/poet.h"

struct poet_layernorm {
    int32_t rows, features;
    float eps;
};

/* y = ((x - mean) inverse) g + b, inverse = 1 / sqrt(var + eps). b, mean and inverse may be NULL: no bias, and
 * the two numbers a row are not wanted. In place is allowed. */
void poet_layernorm_f32(const struct poet_layernorm *s, const float *x, const float *g, const float *b,
                        float *y, float *mean, float *inverse);

/* dx = inverse ((e - S e / F) - n (S e n / F)), n = (x - mean) inverse, e = dy g. dx may be dy or x. */
void poet_layernorm_dx_f32(const struct poet_layernorm *s, const float *dy, const float *x, const float *g,
                           const float *mean, const float *inverse, float *dx);

/* dg = sum of dy ((x - mean) inverse), rows ascending */
void poet_layernorm_dg_f32(const struct poet_layernorm *s, const float *dy, const float *x,
                           const float *mean, const float *inverse, float *dg);

#endif
