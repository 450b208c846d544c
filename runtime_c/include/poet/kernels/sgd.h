/* sgd.h: stochastic gradient descent as PyTorch defines it. */
#ifndef POET_KERNELS_SGD_H
#define POET_KERNELS_SGD_H

#include "poet/poet.h"

/* w -= lr dw */
void poet_sgd_f32(size_t n, float lr, const float *dw, float *w);

/* w -= lr (dw + decay w) */
void poet_sgd_decay_f32(size_t n, float lr, float decay, const float *dw, float *w);

/* v = momentum v + dw;  w -= lr v */
void poet_momentum_f32(size_t n, float lr, float momentum, const float *dw, float *w, float *v);

/* v = momentum v + (dw + decay w);  w -= lr v */
void poet_momentum_decay_f32(size_t n, float lr, float momentum, float decay, const float *dw, float *w,
                             float *v);

#endif
