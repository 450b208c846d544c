/* stream_add.c: see stream_add.h. */
#include "poet/streams/stream_add.h"

#include "poet/kernels/add.h"

int poet_stream_add_f32(struct poet_pager *pager, int32_t size, int32_t piece, struct poet_stream a,
                        struct poet_stream b, struct poet_stream y, void *workspace)
{
    return poet_pass_binary(pager, size, piece, poet_add_f32, a, b, y, workspace);
}

int poet_stream_sub_f32(struct poet_pager *pager, int32_t size, int32_t piece, struct poet_stream a,
                        struct poet_stream b, struct poet_stream y, void *workspace)
{
    return poet_pass_binary(pager, size, piece, poet_sub_f32, a, b, y, workspace);
}

int poet_stream_mul_f32(struct poet_pager *pager, int32_t size, int32_t piece, struct poet_stream a,
                        struct poet_stream b, struct poet_stream y, void *workspace)
{
    return poet_pass_binary(pager, size, piece, poet_mul_f32, a, b, y, workspace);
}
