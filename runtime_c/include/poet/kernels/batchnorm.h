/* batchnorm.h: batch norm with frozen statistics, and with those of the batch. x is [batch][channels][size].
 *
 * is = 1 / sqrt(var + eps) and scale = g is, once a channel. Every sum takes n, then i, ascending from +0.
 */
#ifndef POET_KERNELS_BATCHNORM_H
#define POET_KERNELS_BATCHNORM_H

#include "poet/kernels/start.h"

struct poet_batchnorm {
    int32_t batch, channels, size;
    float eps;
};

/* y = x scale + (b - mean scale); in place is allowed */
void poet_batchnorm_f32(const struct poet_batchnorm *s, const float *x, const float *g, const float *b,
                        const float *mean, const float *var, float *y);

/* dx = dy scale; in place is allowed */
void poet_batchnorm_dx_f32(const struct poet_batchnorm *s, const float *dy, const float *g, const float *var,
                           float *dx);

/* dg = sum of dy ((x - mean) is), from +0 or from what is in dg */
void poet_batchnorm_dg_f32(const struct poet_batchnorm *s, enum poet_start start, const float *dy,
                           const float *x, const float *mean, const float *var, float *dg);

/* mean and population variance of the batch in two passes; y = (x - mean) scale + b; in place is allowed */
void poet_batchnorm_train_f32(const struct poet_batchnorm *s, const float *x, const float *g, const float *b,
                              float *y, float *mean, float *var);

/* Its passes, for x that is not there as a whole: sum = sum of (x - mean)^2, from +0 or from what is in sum;
 * y = (x - mean) scale + b */
void poet_batchnorm_squares_f32(const struct poet_batchnorm *s, enum poet_start start, const float *x,
                                const float *mean, float *sum);
void poet_batchnorm_normalise_f32(const struct poet_batchnorm *s, const float *x, const float *g,
                                  const float *b, const float *mean, const float *var, float *y);

/* dx = scale ((dy - db / M) - ((x - mean) is) (dg / M)), M = batch size; in place of dy or x is allowed */
void poet_batchnorm_train_dx_f32(const struct poet_batchnorm *s, const float *dy, const float *x,
                                 const float *g, const float *mean, const float *var, const float *dg,
                                 const float *db, float *dx);

/* The same for part of a batch of M = count elements a channel. */
void poet_batchnorm_train_dx_part_f32(const struct poet_batchnorm *s, int32_t count, const float *dy,
                                      const float *x, const float *g, const float *mean, const float *var,
                                      const float *dg, const float *db, float *dx);

/* running = running keep + batch take */
void poet_statistic_update_f32(size_t n, float keep, float take, const float *batch, float *running);

#endif
