/* stream_channel_sum.h: the kernel of channel_sum.h, with dy in the store. */
#ifndef POET_STREAMS_STREAM_CHANNEL_SUM_H
#define POET_STREAMS_STREAM_CHANNEL_SUM_H

#include "poet/kernels/channel_sum.h"
#include "poet/streams/pass.h"

/* piece: elements at a time, whole sectors, and the size of the workspace. */
int poet_stream_channel_sum_f32(struct poet_pager *pager, int32_t batch, int32_t channels, int32_t size,
                                int32_t piece, enum poet_start start, struct poet_stream dy, float *db,
                                void *workspace);

#endif
