/* stream_add.h: the kernels of add.h for operands of one shape, with some of them in the store.
 * size: elements; piece: elements at a time, whole sectors; workspace: a piece for each buffer (pass.h). */
#ifndef POET_STREAMS_STREAM_ADD_H
#define POET_STREAMS_STREAM_ADD_H

#include "poet/streams/pass.h"

int poet_stream_add_f32(struct poet_pager *pager, int32_t size, int32_t piece, struct poet_stream a,
                        struct poet_stream b, struct poet_stream y, void *workspace);
int poet_stream_sub_f32(struct poet_pager *pager, int32_t size, int32_t piece, struct poet_stream a,
                        struct poet_stream b, struct poet_stream y, void *workspace);
int poet_stream_mul_f32(struct poet_pager *pager, int32_t size, int32_t piece, struct poet_stream a,
                        struct poet_stream b, struct poet_stream y, void *workspace);

#endif
