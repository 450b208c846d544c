/* stream.h: tensors that are worked on in the store, a piece at a time. docs/streaming.md tells more.
 *
 * A streamed tensor is its bytes from its first sector on; it carries no check word. */
#ifndef POET_STREAMS_STREAM_H
#define POET_STREAMS_STREAM_H

#include "poet/pager.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An operand of a streamed node: in the arena, or in the store where `at` is NULL. */
struct poet_stream {
    union {
        float *at;
        const float *from; /* the same pointer, for what is only read */
    };
    uint32_t sector; /* its first one */
};

/* Any range of a tensor in the store, aligned to 4. Whole sectors move straight, in one call of the device;
 * a ragged end passes through the bounce sector, and to write one is to read it first.
 * POET_ESTATE: the pager is closed. Else what the device returns. */
int poet_span_read(struct poet_pager *pager, uint32_t sector, uint32_t byte, void *to, uint32_t bytes);
int poet_span_write(struct poet_pager *pager, uint32_t sector, uint32_t byte, const void *from,
                    uint32_t bytes);

/* Before the first piece of a tensor is written: erase its sectors, on a device that wants it. The tensor
 * begins at an erase unit and shares none. */
int poet_span_begin(struct poet_pager *pager, uint32_t sector, uint32_t bytes);

/* outer x inner runs of floats, packed in RAM; in the store `outer_step` and `inner_step` floats apart. Runs
 * that follow each other there move as one. */
struct poet_box {
    int32_t outer, outer_step, inner, inner_step, run;
};

int poet_box_read(struct poet_pager *pager, uint32_t sector, int32_t at, const struct poet_box *box,
                  float *to);
int poet_box_write(struct poet_pager *pager, uint32_t sector, int32_t at, const struct poet_box *box,
                   const float *from);

/* A tensor of images; strides in floats. In the store it is [image][row][channel][x], chan = width. */
struct poet_images {
    struct poet_stream home;
    int32_t batch, chan, row, width;
};

/* Part of one: neighbouring images, rows and channels, each row from end to end. */
struct poet_block {
    int32_t image, images, row, rows, chan, chans;
};

/* The block as a kernel takes it. */
struct poet_view {
    const float *at;
    int32_t batch, chan, row;
};

/* A tile buffer and the block that it holds; images = 0: none. */
struct poet_buffer {
    float *at;
    struct poet_block has;
};

/* Let the buffer hold a block: what it holds already is not read again, nor are rows of one image that have
 * to move up. A tensor in the arena is seen where it is. */
int poet_block_read(struct poet_pager *pager, const struct poet_images *tensor,
                    const struct poet_block *block, struct poet_buffer *buffer, struct poet_view *view);

/* Write a packed block into the store. */
int poet_block_write(struct poet_pager *pager, const struct poet_images *tensor,
                     const struct poet_block *block, const float *from);

#ifdef __cplusplus
}
#endif

#endif
