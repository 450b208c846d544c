/* stream_relu.h: the kernels of relu.h, with operands in the store.
 * size: elements; piece: elements at a time, whole sectors; workspace: a piece for each buffer (pass.h). */
#ifndef POET_STREAMS_STREAM_RELU_H
#define POET_STREAMS_STREAM_RELU_H

#include "poet/streams/pass.h"

int poet_stream_relu_f32(struct poet_pager *pager, int32_t size, int32_t piece, struct poet_stream x,
                         struct poet_stream y, void *workspace);

int poet_stream_relu_dx_f32(struct poet_pager *pager, int32_t size, int32_t piece, struct poet_stream y,
                            struct poet_stream dy, struct poet_stream dx, void *workspace);

/* dx = y <= 0 ? 0 : dy + other */
int poet_stream_relu_dx_of_sum_f32(struct poet_pager *pager, int32_t size, int32_t piece,
                                   struct poet_stream y, struct poet_stream dy, struct poet_stream other,
                                   struct poet_stream dx, void *workspace);

#endif
