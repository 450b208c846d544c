/* sgd.c: stochastic gradient descent as PyTorch defines it. */
#include "poet/kernels/sgd.h"

void poet_sgd_f32(size_t n, float lr, const float *dw, float *w)
{
    for (; n >= 4; n -= 4) {
        const float a = w[0] - lr * dw[0];
        const float b = w[1] - lr * dw[1];
        const float c = w[2] - lr * dw[2];
        const float d = w[3] - lr * dw[3];

        w[0] = a;
        w[1] = b;
        w[2] = c;
        w[3] = d;
        dw += 4;
        w += 4;
    }
    for (; n > 0; n--) {
        *w = *w - lr * *dw++;
        w++;
    }
}

void poet_sgd_decay_f32(size_t n, float lr, float decay, const float *dw, float *w)
{
    for (; n > 0; n--) {
        const float g = *dw++ + decay * *w;

        *w = *w - lr * g;
        w++;
    }
}

void poet_momentum_f32(size_t n, float lr, float momentum, const float *dw, float *w, float *v)
{
    for (; n >= 2; n -= 2) {
        const float a = momentum * v[0] + dw[0];
        const float b = momentum * v[1] + dw[1];
        const float c = w[0] - lr * a;
        const float d = w[1] - lr * b;

        v[0] = a;
        v[1] = b;
        w[0] = c;
        w[1] = d;
        dw += 2;
        v += 2;
        w += 2;
    }
    for (; n > 0; n--) {
        *v = momentum * *v + *dw++;
        *w = *w - lr * *v++;
        w++;
    }
}

void poet_momentum_decay_f32(size_t n, float lr, float momentum, float decay, const float *dw, float *w,
                             float *v)
{
    for (; n > 0; n--) {
        const float g = *dw++ + decay * *w;

        *v = momentum * *v + g;
        *w = *w - lr * *v++;
        w++;
    }
}
