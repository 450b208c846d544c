/* stream_adam.h: the update of adam.h, with the gradient, the parameter or its states in the store: read
 * in one place there and written in another. In the arena old and new are one place. */
#ifndef POET_STREAMS_STREAM_ADAM_H
#define POET_STREAMS_STREAM_ADAM_H

#include "poet/kernels/adam.h"
#include "poet/streams/pass.h"

/* piece: elements at a time, whole sectors; workspace: a piece for each operand in the store. */
int poet_stream_adam_f32(struct poet_pager *pager, const struct poet_adam *s, int32_t piece, float lr,
                         const float *u, struct poet_stream dw, struct poet_stream w,
                         struct poet_stream w_next, struct poet_stream m, struct poet_stream m_next,
                         struct poet_stream v, struct poet_stream v_next, void *workspace);

#endif
