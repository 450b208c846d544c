/* channel_sum.h: sum over all but the channel axis: the gradient of a bias. */
#ifndef POET_KERNELS_CHANNEL_SUM_H
#define POET_KERNELS_CHANNEL_SUM_H

#include "poet/poet.h"

/* db[c] = sum over n, i ascending of dy[n][c][i]; from +0, or from what is in db where go_on is 1. */
void poet_channel_sum_f32(int32_t batch, int32_t channels, int32_t size, int32_t go_on, const float *dy,
                          float *db);

#endif
