/* stream_conv2d_dw.h: the gradient of a convolution's weights, and what an optimizer makes of it at once,
 * with any of their operands in the store. A dense layer is one of images of 1 x 1. */
#ifndef POET_STREAMS_STREAM_CONV2D_DW_H
#define POET_STREAMS_STREAM_CONV2D_DW_H

#include "poet/kernels/conv2d.h"
#include "poet/streams/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* for each block of output and input channels:
 *     for each tile of images and rows, ascending:
 *         rows of x and of dy
 *         dw = 0 or dw, + their products
 *     for each piece of w and of the optimizer's state:
 *         read it, update it, write it where the new one goes
 *
 * A buffer that holds what is wanted is not read again. With groups, a block is of whole groups and all their
 * inputs. */
struct poet_stream_conv2d_dw {
    struct poet_conv2d c;           /* sizes, and the strides of x, w and y in the arena or the store */
    int32_t outs, ins;              /* channels of a block */
    int32_t held_outs, held_ins;    /* channels of dy, of x whose rows are in RAM at once: some blocks */
    int32_t images, rows;           /* of a tile; several images only with all rows, for the order of sums */
    int32_t ins_first;              /* 1: all blocks of some inputs, then the next inputs */
    int32_t piece;                  /* floats that are updated at once; a multiple of a sector's */
    int32_t dy_at, dw_at, piece_at; /* floats from the workspace's start; x is at 0, and pieces may be over x
                                       and dy, which are then read anew for the next block */
};

/* dw in the arena or the store. */
int poet_stream_conv2d_dw_f32(struct poet_pager *pager, const struct poet_stream_conv2d_dw *s,
                              struct poet_stream x, struct poet_stream dy, struct poet_stream dw,
                              void *workspace);

/* What follows on a finished part of dw. apply() updates n floats of w and of each state in place, and gives
 * the result. */
#define POET_STATES 2
struct poet_stream_update {
    void (*apply)(const void *rule, int32_t n, const float *dw, float *w, float *const state[POET_STATES]);
    const void *rule;
    int32_t states;
    struct poet_stream old[1 + POET_STATES], next[1 + POET_STATES]; /* of w, then of the states */
};

int poet_stream_conv2d_update(struct poet_pager *pager, const struct poet_stream_conv2d_dw *s,
                              struct poet_stream x, struct poet_stream dy,
                              const struct poet_stream_update *update, void *workspace);

#ifdef __cplusplus
}
#endif

#endif
