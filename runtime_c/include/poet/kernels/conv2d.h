/* conv2d.h: convolution of images and, with in_h = kernel_h = 1, of sequences; and its gradients. */
#ifndef POET_KERNELS_CONV2D_H
#define POET_KERNELS_CONV2D_H

#include "poet/kernels/start.h"

/* One convolution, or one tile of one. All strides are in floats; x is contiguous in a row.
 * The padding at the bottom and at the right follows from out_h and out_w: a tap outside of in_h x in_w adds
 * nothing. */
struct poet_conv2d {
    int32_t batch, in_c, in_h, in_w, out_c, out_h, out_w; /* in_c, out_c: of all groups */
    int32_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left, groups;
    int32_t x_batch, x_chan, x_row; /* strides of x and dx */
    int32_t y_batch, y_chan, y_row; /* strides of y and dy */
    int32_t w_out, w_in;            /* strides of w and dw: output channel, input channel within its group */
};

/* y[n,o,y,x] = start + sum of w[o,c,i,j] * x[n,c,..] over c, i, j ascending. b may be NULL. */
void poet_conv2d_f32(const struct poet_conv2d *s, enum poet_start start, const float *x, const float *w,
                     const float *b, float *y);

/* dx[n,c,y,x] = start + sum of w[o,c,i,j] * dy[n,o,..] over o, output row, output column ascending. */
void poet_conv2d_dx_f32(const struct poet_conv2d *s, enum poet_start start, const float *w, const float *dy,
                        float *dx);

/* dw[o,c,i,j] = start + sum of dy[n,o,..] * x[n,c,..] over n, output row, output column ascending. */
void poet_conv2d_dw_f32(const struct poet_conv2d *s, enum poet_start start, const float *x, const float *dy,
                        float *dw);

#endif
