/* stream_mean.h: the mean of each plane, and its gradient, with x or dx in the store. */
#ifndef POET_STREAMS_STREAM_MEAN_H
#define POET_STREAMS_STREAM_MEAN_H

#include "poet/streams/pass.h"

/* x is [images][rows][channels][size]: in rows layout of images; rows = 1 where planes are in one piece. */
struct poet_stream_mean {
    int32_t images, rows, channels, size;
    int32_t piece; /* elements at a time, whole sectors, and the size of the workspace */
};

/* y[n][c] = sum from +0 over rows and size, divided by their product */
int poet_stream_mean_f32(struct poet_pager *pager, const struct poet_stream_mean *s, struct poet_stream x,
                         float *y, void *workspace);

/* dx = dy / (rows size) */
int poet_stream_mean_dx_f32(struct poet_pager *pager, const struct poet_stream_mean *s, const float *dy,
                            struct poet_stream dx, void *workspace);

#endif
