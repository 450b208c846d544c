/* stream_conv2d_adam.h: the gradient of a convolution's weights and their step of Adam in one, as
 * stream_conv2d_dw.h and adam.h say. */
#ifndef POET_STREAMS_STREAM_CONV2D_ADAM_H
#define POET_STREAMS_STREAM_CONV2D_ADAM_H

#include "poet/kernels/adam.h"
#include "poet/streams/stream_conv2d_dw.h"

#ifdef __cplusplus
extern "C" {
#endif

/* adam's size is not read. What is in the arena is its own new one. */
int poet_stream_conv2d_adam_f32(struct poet_pager *pager, const struct poet_stream_conv2d_dw *s,
                                const struct poet_adam *adam, struct poet_stream x, struct poet_stream dy,
                                float lr, const float *u, struct poet_stream w, struct poet_stream w_new,
                                struct poet_stream m, struct poet_stream m_new, struct poet_stream v,
                                struct poet_stream v_new, void *workspace);

#ifdef __cplusplus
}
#endif

#endif
