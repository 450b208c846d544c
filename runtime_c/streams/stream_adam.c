/* stream_adam.c: see stream_adam.h. */
#include "poet/streams/stream_adam.h"

int poet_stream_adam_f32(struct poet_pager *pager, const struct poet_adam *s, int32_t piece, float lr,
                         const float *u, struct poet_stream dw, struct poet_stream w,
                         struct poet_stream w_next, struct poet_stream m, struct poet_stream m_next,
                         struct poet_stream v, struct poet_stream v_next, void *workspace)
{
    struct poet_pass p = poet_pass(pager, s->size, piece, workspace);
    const int32_t gradient = poet_pass_operand(&p, dw), parameter = poet_pass_update(&p, w, w_next);
    const int32_t first = poet_pass_update(&p, m, m_next), second = poet_pass_update(&p, v, v_next);
    struct poet_adam part = *s;

    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        part.size = p.count;
        poet_adam_f32(&part, lr, u, poet_piece(&p, gradient), poet_piece(&p, parameter),
                      poet_piece(&p, first), poet_piece(&p, second));
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}
