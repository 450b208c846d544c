/* stream_relu.c: see stream_relu.h. */
#include "poet/streams/stream_relu.h"

#include "poet/kernels/add.h"
#include "poet/kernels/relu.h"

int poet_stream_relu_f32(struct poet_pager *pager, int32_t size, int32_t piece, struct poet_stream x,
                         struct poet_stream y, void *workspace)
{
    return poet_pass_unary(pager, size, piece, poet_relu_f32, x, y, workspace);
}

int poet_stream_relu_dx_f32(struct poet_pager *pager, int32_t size, int32_t piece, struct poet_stream y,
                            struct poet_stream dy, struct poet_stream dx, void *workspace)
{
    return poet_pass_binary(pager, size, piece, poet_relu_dx_f32, y, dy, dx, workspace);
}

int poet_stream_relu_dx_of_sum_f32(struct poet_pager *pager, int32_t size, int32_t piece,
                                   struct poet_stream y, struct poet_stream dy, struct poet_stream other,
                                   struct poet_stream dx, void *workspace)
{
    struct poet_pass p = poet_pass(pager, size, piece, workspace);
    const int32_t first = poet_pass_operand(&p, dy), second = poet_pass_operand(&p, other);
    const int32_t to = poet_pass_result(&p, dx), mask = poet_pass_operand(&p, y); /* no sum in y's place */

    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        const size_t n = (size_t)p.count;
        POET_TRY(poet_pass_read(&p));
        poet_add_f32(n, poet_piece(&p, first), poet_piece(&p, second), poet_piece(&p, to));
        poet_relu_dx_f32(n, poet_piece(&p, mask), poet_piece(&p, to), poet_piece(&p, to));
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}
