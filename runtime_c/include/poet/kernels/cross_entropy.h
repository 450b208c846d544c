/* cross_entropy.h: softmax and cross entropy in one. Labels lie in 0 .. classes - 1. */
#ifndef POET_KERNELS_CROSS_ENTROPY_H
#define POET_KERNELS_CROSS_ENTROPY_H

#include "poet/poet.h"

/* loss = sum over rows of log(sum e^(x - max)) - (x[label] - max), divided by the rows */
void poet_softmax_cross_entropy_f32(int32_t rows, int32_t classes, const float *logits, const int32_t *label,
                                    float *loss);

/* dlogits = (softmax - [class == label]) / rows; in place is allowed */
void poet_softmax_cross_entropy_dx_f32(int32_t rows, int32_t classes, const float *logits,
                                       const int32_t *label, float *dlogits);

/* rows whose first largest logit is at the label */
void poet_count_correct_f32(int32_t rows, int32_t classes, const float *logits, const int32_t *label,
                            int32_t *count);

#endif
