/* stream_clip.c: see stream_clip.h. */
#include "poet/streams/stream_clip.h"

#include "poet/kernels/clip.h"

int poet_stream_clip_f32(struct poet_pager *pager, int32_t size, int32_t piece, float low, float high,
                         struct poet_stream x, struct poet_stream y, void *workspace)
{
    struct poet_pass p = poet_pass(pager, size, piece, workspace);
    const int32_t from = poet_pass_operand(&p, x), to = poet_pass_result(&p, y);

    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        poet_clip_f32((size_t)p.count, low, high, poet_piece(&p, from), poet_piece(&p, to));
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}

int poet_stream_clip_dx_f32(struct poet_pager *pager, int32_t size, int32_t piece, float low, float high,
                            struct poet_stream y, struct poet_stream dy, struct poet_stream dx,
                            void *workspace)
{
    struct poet_pass p = poet_pass(pager, size, piece, workspace);
    const int32_t mask = poet_pass_operand(&p, y), from = poet_pass_operand(&p, dy);
    const int32_t to = poet_pass_result(&p, dx);

    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        poet_clip_dx_f32((size_t)p.count, low, high, poet_piece(&p, mask), poet_piece(&p, from),
                         poet_piece(&p, to));
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}
