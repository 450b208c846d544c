/* stream_conv2d_adam.c: see stream_conv2d_adam.h. */
#include "poet/streams/stream_conv2d_adam.h"

struct rule {
    const struct poet_adam *adam;
    float lr;
    const float *u;
};

static void apply(const void *rule, int32_t n, const float *dw, float *w, float *const state[POET_STATES])
{
    const struct rule *const r = rule;
    struct poet_adam adam = *r->adam;

    adam.size = n;
    poet_adam_f32(&adam, r->lr, r->u, dw, w, state[0], state[1]);
}

int poet_stream_conv2d_adam_f32(struct poet_pager *pager, const struct poet_stream_conv2d_dw *s,
                                const struct poet_adam *adam, struct poet_stream x, struct poet_stream dy,
                                float lr, const float *u, struct poet_stream w, struct poet_stream w_new,
                                struct poet_stream m, struct poet_stream m_new, struct poet_stream v,
                                struct poet_stream v_new, void *workspace)
{
    const struct rule rule = { adam, lr, u };
    const struct poet_stream_update update = {
        .apply = apply, .rule = &rule, .states = 2, .old = { w, m, v }, .next = { w_new, m_new, v_new }
    };

    return poet_stream_conv2d_update(pager, s, x, dy, &update, workspace);
}
