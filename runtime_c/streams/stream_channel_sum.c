/* stream_channel_sum.c: see stream_channel_sum.h. */
#include "poet/streams/stream_channel_sum.h"

int poet_stream_channel_sum_f32(struct poet_pager *pager, int32_t batch, int32_t channels, int32_t size,
                                int32_t piece, enum poet_start start, struct poet_stream dy, float *db,
                                void *workspace)
{
    struct poet_pass p = poet_pass(pager, batch * channels * size, piece, workspace);
    const int32_t from = poet_pass_operand(&p, dy);

    if (start != POET_CONTINUE) {
        for (int32_t c = 0; c < channels; c++) db[c] = 0.0f;
    }
    POET_TRY(poet_pass_begin(&p));
    for (; p.count > 0; poet_pass_skip(&p)) {
        POET_TRY(poet_pass_read(&p));
        for (struct poet_planes k = poet_pass_planes(&p, channels, size, 0); k.batch > 0;
             k = poet_pass_planes(&p, channels, size, k.end)) {
            poet_channel_sum_f32(k.batch, k.channels, k.size, POET_CONTINUE, poet_piece(&p, from) + k.at,
                                 db + k.chan);
        }
    }
    return POET_OK;
}
