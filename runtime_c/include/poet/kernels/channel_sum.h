/* channel_sum.h: sum over all but the channel axis: the gradient of a bias. */
#ifndef POET_KERNELS_CHANNEL_SUM_H
#define POET_KERNELS_CHANNEL_SUM_H

#include "poet/kernels/start.h"

/* db[c] = sum over n, i ascending of dy[n][c][i]; from +0 or from what is in db. */
void poet_channel_sum_f32(int32_t batch, int32_t channels, int32_t size, enum poet_start start,
                          const float *dy, float *db);

#endif
