/* stream_conv2d.h: convolution and the gradient of its input, with any of their operands in the store. A
 * dense layer is one of images of 1 x 1. */
#ifndef POET_STREAMS_STREAM_CONV2D_H
#define POET_STREAMS_STREAM_CONV2D_H

#include "poet/kernels/conv2d.h"
#include "poet/streams/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is made is y, or dx; what it is made from is x, or dy. Outputs are channels of what is made,
 * reductions those of what it is made from.
 *
 *     for each block of outputs, and each tile of images and rows:
 *         for each chunk of reductions:
 *             rows that the tile needs                              of what it is made from
 *             for each part of the block:
 *                 weights of the part and the chunk
 *                 multiply
 *         write the tile; or, where one chunk is all reductions, each part as it is done
 *
 * A buffer that holds what is wanted is not read again. With groups, a block is of whole groups, of which it
 * takes all reductions in one chunk. */
struct poet_stream_conv2d {
    struct poet_conv2d c;        /* sizes, and the strides of x, w and y in the arena or the store */
    int32_t outs, part, reds;    /* channels of a block, a part, a chunk */
    int32_t held;                /* source channels whose rows are in RAM at once: some chunks */
    int32_t images, rows;        /* of a tile */
    int32_t tiles_first;         /* 1: all blocks of a tile, then the next tile */
    int32_t keep_weights;        /* 1: the weights of all chunks of a block stay in RAM; part = outs */
    int32_t keep_sums;           /* 1: a tile of all parts is written at once, as it is with several chunks */
    int32_t weights_at, sums_at; /* floats from the workspace's start; the rows are at 0 */
};

/* b may be NULL. A result other than POET_OK is the device's, or POET_ESTATE. */
int poet_stream_conv2d_f32(struct poet_pager *pager, const struct poet_stream_conv2d *s,
                           struct poet_stream x, struct poet_stream w, const float *b,
                           struct poet_stream y, void *workspace);

/* b is for a dense layer whose weights are [input][output]: it is the gradient of one, and adds a bias. */
int poet_stream_conv2d_dx_f32(struct poet_pager *pager, const struct poet_stream_conv2d *s,
                              struct poet_stream w, struct poet_stream dy, const float *b,
                              struct poet_stream dx, void *workspace);

/* From row `first` up to `end`: the rows of x that taps of `rows` rows of y from `row` on reach. */
struct poet_rows {
    int32_t first, end;
};
struct poet_rows poet_conv2d_reach(const struct poet_conv2d *c, int32_t row, int32_t rows);

#ifdef __cplusplus
}
#endif

#endif
