/* adam.c: Adam as PyTorch has it. */
#include "poet/kernels/adam.h"

#include "poet/math.h"

void poet_adam_f32(const struct poet_adam *s, float lr, const float *u, const float *dw, float *w, float *m,
                   float *v)
{
    const float u1 = s->beta1 * u[0] + s->rest1;
    const float u2 = s->beta2 * u[1] + s->rest2;
    const float rate = lr / u1, root = poet_sqrtf(u2);

    for (int32_t i = 0; i < s->size; i++) {
        const float g = s->decay != 0.0f ? dw[i] + s->decay * w[i] : dw[i];
        const float a = s->beta1 * m[i] + s->rest1 * g;
        const float b = s->beta2 * v[i] + s->rest2 * (g * g);

        m[i] = a;
        v[i] = b;
        w[i] = w[i] - rate * (a / (poet_sqrtf(b) / root + s->eps));
    }
}

void poet_adam_advance_f32(float beta1, float rest1, float beta2, float rest2, float *u)
{
    u[0] = beta1 * u[0] + rest1;
    u[1] = beta2 * u[1] + rest2;
}
