/* pool.h: largest and average of sliding windows. Each window covers at least one element of x. */
#ifndef POET_KERNELS_POOL_H
#define POET_KERNELS_POOL_H

#include "poet/poet.h"

/* x, y and index are [batch] of images; strides in elements from channel to channel and row to row. */
struct poet_pool {
    int32_t batch, channels;
    int32_t x_chan, x_row, y_chan, y_row;
    int32_t in_h, in_w, out_h, out_w;
    int32_t kernel_h, kernel_w, stride_h, stride_w;
    int32_t pad_h, pad_w; /* before; what is behind follows from out_h, out_w */
    int32_t dilation_h, dilation_w;
    int32_t index_chan, index_row; /* of index, like those of y */
};

struct poet_average {
    int32_t batch, channels;
    int32_t x_chan, x_row, y_chan, y_row;
    int32_t in_h, in_w, out_h, out_w;
    int32_t kernel_h, kernel_w, stride_h, stride_w;
    int32_t pad_h, pad_w;
    int32_t dilation_h, dilation_w;
    int32_t before_h, before_w, after_h, after_w; /* padding whose zeros count as elements */
};

/* y = the first maximum of each window (or its first NaN), index = number of its tap, row-major; a null
 * index is not written. */
void poet_maxpool_f32(const struct poet_pool *s, const float *x, float *y, uint8_t *index);

/* dx = sum of dy over the windows that x won, (oy, ox) ascending; dx may be some rows of it */
void poet_maxpool_dx_f32(const struct poet_pool *s, const float *dy, const uint8_t *index, float *dx);

/* y = sum of each window, taps ascending, divided by its elements */
void poet_avgpool_f32(const struct poet_average *s, const float *x, float *y);

/* dx = sum of dy / elements over the windows that x lies in, (oy, ox) ascending; dx may be some rows of it */
void poet_avgpool_dx_f32(const struct poet_average *s, const float *dy, float *dx);

#endif
