/* batchnorm_relu.h: batch norm with frozen statistics and the Relu behind it, also with a shortcut added
 * between them. x is [batch][channels][size]; bits are those of the separate kernels. */
#ifndef POET_KERNELS_BATCHNORM_RELU_H
#define POET_KERNELS_BATCHNORM_RELU_H

#include "poet/kernels/batchnorm.h"

/* y = relu(x scale + shift); in place is allowed */
void poet_batchnorm_relu_f32(const struct poet_batchnorm *s, const float *x, const float *g, const float *b,
                             const float *mean, const float *var, float *y);

/* y = relu((x scale + shift) + shortcut); in place of x or of the shortcut is allowed */
void poet_batchnorm_add_relu_f32(const struct poet_batchnorm *s, const float *x, const float *g,
                                 const float *b, const float *mean, const float *var, const float *shortcut,
                                 float *y);

/* dz = dy where relu passed, else 0; dx = dz scale, dg = sum of dz ((x - mean) is), db = sum of dz; the
 * mask is formed from x. dx may be dy or x. The sums begin at +0, or go on from what is in dg and db. */
void poet_batchnorm_relu_dx_f32(const struct poet_batchnorm *s, enum poet_start start, const float *dy,
                                const float *x, const float *g, const float *b, const float *mean,
                                const float *var, float *dx, float *dg, float *db);

/* The same with the mask from y, and ds = dz for the shortcut. dx and ds may be two of dy, y and x. */
void poet_batchnorm_add_relu_dx_f32(const struct poet_batchnorm *s, enum poet_start start, const float *dy,
                                    const float *y, const float *x, const float *g, const float *mean,
                                    const float *var, float *dx, float *dg, float *db, float *ds);

/* y = relu(a + b); in place is allowed */
void poet_add_relu_f32(size_t n, const float *a, const float *b, float *y);

#endif
