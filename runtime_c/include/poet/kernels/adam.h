/* adam.h: Adam (Kingma, Ba, arXiv 1412.6980) as PyTorch has it. */
#ifndef POET_KERNELS_ADAM_H
#define POET_KERNELS_ADAM_H

#include "poet/poet.h"

struct poet_adam {
    int32_t size;
    float beta1, rest1, beta2, rest2; /* rest = 1 - beta, rounded once */
    float eps, decay;
};

/* u: the bias corrections 1 - beta^t as they were before this step; see poet_adam_advance_f32.
 * g = dw + decay w;  m = beta1 m + rest1 g;  v = beta2 v + rest2 g^2;
 * w -= (lr / u1) (m / (sqrt v / sqrt u2 + eps)) */
void poet_adam_f32(const struct poet_adam *s, float lr, const float *u, const float *dw, float *w, float *m,
                   float *v);

/* u = beta u + rest, once a step, after every parameter */
void poet_adam_advance_f32(float beta1, float rest1, float beta2, float rest2, float *u);

#endif
