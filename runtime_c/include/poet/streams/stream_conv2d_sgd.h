/* stream_conv2d_sgd.h: the gradient of a convolution's weights and their step of stochastic gradient descent
 * in one, as stream_conv2d_dw.h and sgd.h say. A dense layer is one of images of 1 x 1. */
#ifndef POET_STREAMS_STREAM_CONV2D_SGD_H
#define POET_STREAMS_STREAM_CONV2D_SGD_H

#include "poet/streams/stream_conv2d_dw.h"

#ifdef __cplusplus
extern "C" {
#endif

/* w -= lr (dw + decay w). w in the arena: w_new is w. */
int poet_stream_conv2d_sgd_f32(struct poet_pager *pager, const struct poet_stream_conv2d_dw *s,
                               struct poet_stream x, struct poet_stream dy, float lr, float decay,
                               struct poet_stream w, struct poet_stream w_new, void *workspace);

/* v = momentum v + (dw + decay w);  w -= lr v */
int poet_stream_conv2d_momentum_f32(struct poet_pager *pager, const struct poet_stream_conv2d_dw *s,
                                    struct poet_stream x, struct poet_stream dy, float lr, float momentum,
                                    float decay, struct poet_stream w, struct poet_stream w_new,
                                    struct poet_stream v, struct poet_stream v_new, void *workspace);

#ifdef __cplusplus
}
#endif

#endif
