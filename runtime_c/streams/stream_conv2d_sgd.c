/* stream_conv2d_sgd.c: see stream_conv2d_sgd.h. */
#include "poet/streams/stream_conv2d_sgd.h"

#include "poet/kernels/sgd.h"

struct rule {
    float lr, momentum, decay;
};

static void sgd(const void *rule, int32_t n, const float *dw, float *w, float *const state[POET_STATES])
{
    const struct rule *const r = rule;

    (void)state;
    if (r->decay != 0.0f) {
        poet_sgd_decay_f32((size_t)n, r->lr, r->decay, dw, w);
    } else {
        poet_sgd_f32((size_t)n, r->lr, dw, w);
    }
}

static void momentum_rule(const void *rule, int32_t n, const float *dw, float *w,
                          float *const state[POET_STATES])
{
    const struct rule *const r = rule;

    if (r->decay != 0.0f) {
        poet_momentum_decay_f32((size_t)n, r->lr, r->momentum, r->decay, dw, w, state[0]);
    } else {
        poet_momentum_f32((size_t)n, r->lr, r->momentum, dw, w, state[0]);
    }
}

int poet_stream_conv2d_sgd_f32(struct poet_pager *pager, const struct poet_stream_conv2d_dw *s,
                               struct poet_stream x, struct poet_stream dy, float lr, float decay,
                               struct poet_stream w, struct poet_stream w_new, void *workspace)
{
    const struct rule rule = { .lr = lr, .decay = decay };
    const struct poet_stream_update update = { .apply = sgd, .rule = &rule, .old = { w }, .next = { w_new } };

    return poet_stream_conv2d_update(pager, s, x, dy, &update, workspace);
}

int poet_stream_conv2d_momentum_f32(struct poet_pager *pager, const struct poet_stream_conv2d_dw *s,
                                    struct poet_stream x, struct poet_stream dy, float lr, float momentum,
                                    float decay, struct poet_stream w, struct poet_stream w_new,
                                    struct poet_stream v, struct poet_stream v_new, void *workspace)
{
    const struct rule rule = { .lr = lr, .momentum = momentum, .decay = decay };
    const struct poet_stream_update update = {
        .apply = momentum_rule, .rule = &rule, .states = 1, .old = { w, v }, .next = { w_new, v_new }
    };

    return poet_stream_conv2d_update(pager, s, x, dy, &update, workspace);
}
