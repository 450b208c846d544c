/* stream_pool.h: the kernels of pool.h, with images in the store or not; the index is in the arena.
 *
 *     for each image, block of channels and band of rows of what is made (y, or dx):
 *         read rows of x under its windows, or of dy whose windows reach it, unless they are there already
 *         pool, write */
#ifndef POET_STREAMS_STREAM_POOL_H
#define POET_STREAMS_STREAM_POOL_H

#include "poet/kernels/pool.h"
#include "poet/streams/stream.h"

/* How the loops are cut. */
struct poet_bands {
    int32_t chans, rows; /* of a tile of what is made */
    int32_t made_at;     /* floats from the workspace's start; the rows that are read are at 0 */
};

/* An image in the store has strides as in rows layout. index may be NULL, as in pool.h. */
int poet_stream_maxpool_f32(struct poet_pager *pager, const struct poet_pool *s,
                            const struct poet_bands *bands, struct poet_stream x, struct poet_stream y,
                            uint8_t *index, void *workspace);
int poet_stream_maxpool_dx_f32(struct poet_pager *pager, const struct poet_pool *s,
                               const struct poet_bands *bands, struct poet_stream dy, const uint8_t *index,
                               struct poet_stream dx, void *workspace);
int poet_stream_avgpool_f32(struct poet_pager *pager, const struct poet_average *s,
                            const struct poet_bands *bands, struct poet_stream x, struct poet_stream y,
                            void *workspace);
int poet_stream_avgpool_dx_f32(struct poet_pager *pager, const struct poet_average *s,
                               const struct poet_bands *bands, struct poet_stream dy, struct poet_stream dx,
                               void *workspace);

#endif
