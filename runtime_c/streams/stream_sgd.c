/* stream_sgd.c: see stream_sgd.h. */
#include "poet/streams/stream_sgd.h"

#include "poet/kernels/sgd.h"

int poet_stream_sgd_f32(struct poet_pager *pager, int32_t size, int32_t piece, float lr, float decay,
                        struct poet_stream dw, struct poet_stream w, struct poet_stream w_next,
                        void *workspace)
{
    struct poet_pass p = poet_pass(pager, size, piece, workspace);
    const int32_t gradient = poet_pass_operand(&p, dw), parameter = poet_pass_update(&p, w, w_next);

    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        const size_t n = (size_t)p.count;
        const float *const d = poet_piece(&p, gradient);
        float *const at = poet_piece(&p, parameter);
        POET_TRY(poet_pass_read(&p));
        if (decay != 0.0f) {
            poet_sgd_decay_f32(n, lr, decay, d, at);
        } else {
            poet_sgd_f32(n, lr, d, at);
        }
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}

int poet_stream_momentum_f32(struct poet_pager *pager, int32_t size, int32_t piece, float lr, float momentum,
                             float decay, struct poet_stream dw, struct poet_stream w,
                             struct poet_stream w_next, struct poet_stream v, struct poet_stream v_next,
                             void *workspace)
{
    struct poet_pass p = poet_pass(pager, size, piece, workspace);
    const int32_t gradient = poet_pass_operand(&p, dw), parameter = poet_pass_update(&p, w, w_next);
    const int32_t velocity = poet_pass_update(&p, v, v_next);

    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        const size_t n = (size_t)p.count;
        const float *const d = poet_piece(&p, gradient);
        float *const at = poet_piece(&p, parameter), *const state = poet_piece(&p, velocity);
        POET_TRY(poet_pass_read(&p));
        if (decay != 0.0f) {
            poet_momentum_decay_f32(n, lr, momentum, decay, d, at, state);
        } else {
            poet_momentum_f32(n, lr, momentum, d, at, state);
        }
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}
