/* stream_relu.c: see stream_relu.h. */
#include "poet/streams/stream_relu.h"

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
