/* stream_batchnorm.h: the kernels of batchnorm.h and batchnorm_relu.h, with operands of x's size in the
 * store or not; what has a number a channel is in the arena. */
#ifndef POET_STREAMS_STREAM_BATCHNORM_H
#define POET_STREAMS_STREAM_BATCHNORM_H

#include "poet/streams/pass.h"

struct poet_stream_batchnorm {
    int32_t batch, channels, size; /* as in struct poet_batchnorm */
    float eps;
    int32_t piece; /* elements at a time, whole sectors; the workspace has one for each buffer (pass.h) */
};

int poet_stream_batchnorm_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                              struct poet_stream x, const float *g, const float *b, const float *mean,
                              const float *var, struct poet_stream y, void *workspace);

int poet_stream_batchnorm_dx_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                 struct poet_stream dy, const float *g, const float *var,
                                 struct poet_stream dx, void *workspace);

int poet_stream_batchnorm_dg_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                 struct poet_stream dy, struct poet_stream x, const float *mean,
                                 const float *var, float *dg, void *workspace);

/* dg, and db = sum of dy */
int poet_stream_batchnorm_sums_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                   struct poet_stream dy, struct poet_stream x, const float *mean,
                                   const float *var, float *dg, float *db, void *workspace);

/* dx, dg and db */
int poet_stream_batchnorm_gradients_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                        struct poet_stream dy, struct poet_stream x, const float *g,
                                        const float *mean, const float *var, struct poet_stream dx, float *dg,
                                        float *db, void *workspace);

/* Three passes over x: for the mean, for the variance, for y. */
int poet_stream_batchnorm_train_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                    struct poet_stream x, const float *g, const float *b,
                                    struct poet_stream y, float *mean, float *var, void *workspace);

int poet_stream_batchnorm_train_dx_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                       struct poet_stream dy, struct poet_stream x, const float *g,
                                       const float *mean, const float *var, const float *dg, const float *db,
                                       struct poet_stream dx, void *workspace);

int poet_stream_batchnorm_relu_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                   struct poet_stream x, const float *g, const float *b, const float *mean,
                                   const float *var, struct poet_stream y, void *workspace);

int poet_stream_batchnorm_add_relu_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                       struct poet_stream x, const float *g, const float *b,
                                       const float *mean, const float *var, struct poet_stream shortcut,
                                       struct poet_stream y, void *workspace);

int poet_stream_batchnorm_relu_dx_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                      struct poet_stream dy, struct poet_stream x, const float *g,
                                      const float *b, const float *mean, const float *var,
                                      struct poet_stream dx, float *dg, float *db, void *workspace);

int poet_stream_batchnorm_add_relu_dx_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                          struct poet_stream dy, struct poet_stream y, struct poet_stream x,
                                          const float *g, const float *mean, const float *var,
                                          struct poet_stream dx, float *dg, float *db, struct poet_stream ds,
                                          void *workspace);

/* The gradients of dy + other. */
int poet_stream_batchnorm_relu_dx_of_sum_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                             struct poet_stream dy, struct poet_stream other,
                                             struct poet_stream x, const float *g, const float *b,
                                             const float *mean, const float *var, struct poet_stream dx,
                                             float *dg, float *db, void *workspace);

int poet_stream_batchnorm_add_relu_dx_of_sum_f32(struct poet_pager *pager,
                                                 const struct poet_stream_batchnorm *s,
                                                 struct poet_stream dy, struct poet_stream other,
                                                 struct poet_stream y, struct poet_stream x, const float *g,
                                                 const float *mean, const float *var, struct poet_stream dx,
                                                 float *dg, float *db, struct poet_stream ds,
                                                 void *workspace);

/* As in stream_add.h. */
int poet_stream_add_relu_f32(struct poet_pager *pager, int32_t size, int32_t piece, struct poet_stream a,
                             struct poet_stream b, struct poet_stream y, void *workspace);

#endif
