/* stream_sgd.h: the updates of sgd.h, with the gradient, the parameter or its velocity in the store: read
 * in one place there and written in another. In the arena old and new are one place. */
#ifndef POET_STREAMS_STREAM_SGD_H
#define POET_STREAMS_STREAM_SGD_H

#include "poet/streams/pass.h"

/* size: elements; piece: elements at a time, whole sectors; workspace: a piece for each operand in the
 * store. No decay is 0. */
int poet_stream_sgd_f32(struct poet_pager *pager, int32_t size, int32_t piece, float lr, float decay,
                        struct poet_stream dw, struct poet_stream w, struct poet_stream w_next,
                        void *workspace);

int poet_stream_momentum_f32(struct poet_pager *pager, int32_t size, int32_t piece, float lr, float momentum,
                             float decay, struct poet_stream dw, struct poet_stream w,
                             struct poet_stream w_next, struct poet_stream v, struct poet_stream v_next,
                             void *workspace);

#endif
