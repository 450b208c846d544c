/* pool.c: largest and average of sliding windows. */
#include "poet/kernels/pool.h"

#include <string.h>

/* The taps k of a window that starts at `start` for which start + k step lies in low .. high - 1. */
struct span {
    int32_t first, end;
};

static struct span taps(int32_t start, int32_t step, int32_t kernel, int32_t low, int32_t high)
{
    struct span s = { 0, kernel };

    while (s.first < s.end && start + s.first * step < low) {
        s.first++;
    }
    while (s.end > s.first && start + (s.end - 1) * step >= high) {
        s.end--;
    }
    return s;
}

/* Where plane p of x or y begins; they have `channels` planes of `size` elements an image. */
static int32_t plane(int32_t p, int32_t channels, int32_t size, int32_t chan)
{
    const int32_t n = p / channels;

    return n * channels * size + (p - n * channels) * chan;
}

/* Zero channel `in` of dx. */
static void zero(float *in, int32_t rows, int32_t row, int32_t width)
{
    for (int32_t i = 0; i < rows; i++) {
        memset(in + i * row, 0, (size_t)width * sizeof *in);
    }
}

void poet_maxpool_f32(const struct poet_pool *s, const float *x, float *y, uint8_t *index)
{
    for (int32_t p = 0; p < s->batch * s->channels; p++) {
        const float *const in = x + plane(p, s->channels, s->in_h * s->in_w, s->x_chan);
        float *const out = y + plane(p, s->channels, s->out_h * s->out_w, s->y_chan);
        const int32_t taken = plane(p, s->channels, s->out_h * s->out_w, s->index_chan);

        for (int32_t oy = 0; oy < s->out_h; oy++) {
            const int32_t top = oy * s->stride_h - s->pad_h;
            const struct span ky = taps(top, s->dilation_h, s->kernel_h, 0, s->in_h);

            for (int32_t ox = 0; ox < s->out_w; ox++) {
                const int32_t left = ox * s->stride_w - s->pad_w;
                const struct span kx = taps(left, s->dilation_w, s->kernel_w, 0, s->in_w);
                int32_t best_tap = ky.first * s->kernel_w + kx.first;
                float best = in[(top + ky.first * s->dilation_h) * s->x_row + left + kx.first * s->dilation_w];

                for (int32_t i = ky.first; i < ky.end; i++) {
                    const float *const row = in + (top + i * s->dilation_h) * s->x_row;

                    for (int32_t j = kx.first; j < kx.end; j++) {
                        const float v = row[left + j * s->dilation_w];

                        if (!(v <= best) && best == best) { /* larger, or the first NaN */
                            best = v;
                            best_tap = i * s->kernel_w + j;
                        }
                    }
                }
                out[oy * s->y_row + ox] = best;
                if (index != NULL) {
                    index[taken + oy * s->index_row + ox] = (uint8_t)best_tap;
                }
            }
        }
    }
}

void poet_maxpool_dx_f32(const struct poet_pool *s, const float *dy, const uint8_t *index, float *dx)
{
    /* A scatter over windows ascending adds to each element what a gather would, in the same order. */
    for (int32_t p = 0; p < s->batch * s->channels; p++) {
        float *const in = dx + plane(p, s->channels, s->in_h * s->in_w, s->x_chan);
        const float *const out = dy + plane(p, s->channels, s->out_h * s->out_w, s->y_chan);
        const uint8_t *const taken = index + plane(p, s->channels, s->out_h * s->out_w, s->index_chan);

        zero(in, s->in_h, s->x_row, s->in_w);
        for (int32_t oy = 0; oy < s->out_h; oy++) {
            for (int32_t ox = 0; ox < s->out_w; ox++) {
                const int32_t tap = taken[oy * s->index_row + ox];
                const int32_t i = tap / s->kernel_w, j = tap - i * s->kernel_w;
                const int32_t iy = oy * s->stride_h - s->pad_h + i * s->dilation_h;
                const int32_t ix = ox * s->stride_w - s->pad_w + j * s->dilation_w;

                if (iy >= 0 && iy < s->in_h) { /* else it is in a row that is not here */
                    in[iy * s->x_row + ix] += out[oy * s->y_row + ox];
                }
            }
        }
    }
}

/* Elements of a window along one axis, counted padding among them. */
static int32_t elements(int32_t start, int32_t step, int32_t kernel, int32_t before, int32_t size)
{
    const struct span s = taps(start, step, kernel, -before, size);

    return s.end - s.first;
}

void poet_avgpool_f32(const struct poet_average *s, const float *x, float *y)
{
    for (int32_t p = 0; p < s->batch * s->channels; p++) {
        const float *const in = x + plane(p, s->channels, s->in_h * s->in_w, s->x_chan);
        float *const out = y + plane(p, s->channels, s->out_h * s->out_w, s->y_chan);

        for (int32_t oy = 0; oy < s->out_h; oy++) {
            const int32_t top = oy * s->stride_h - s->pad_h;
            const struct span ky = taps(top, s->dilation_h, s->kernel_h, 0, s->in_h);
            const int32_t rows = elements(top, s->dilation_h, s->kernel_h, s->before_h, s->in_h + s->after_h);

            for (int32_t ox = 0; ox < s->out_w; ox++) {
                const int32_t left = ox * s->stride_w - s->pad_w;
                const struct span kx = taps(left, s->dilation_w, s->kernel_w, 0, s->in_w);
                const int32_t columns =
                    elements(left, s->dilation_w, s->kernel_w, s->before_w, s->in_w + s->after_w);
                float sum = 0.0f;

                for (int32_t i = ky.first; i < ky.end; i++) {
                    const float *const row = in + (top + i * s->dilation_h) * s->x_row;

                    for (int32_t j = kx.first; j < kx.end; j++) {
                        sum += row[left + j * s->dilation_w];
                    }
                }
                out[oy * s->y_row + ox] = sum / (float)(rows * columns);
            }
        }
    }
}

void poet_avgpool_dx_f32(const struct poet_average *s, const float *dy, float *dx)
{
    for (int32_t p = 0; p < s->batch * s->channels; p++) {
        float *const in = dx + plane(p, s->channels, s->in_h * s->in_w, s->x_chan);
        const float *const out = dy + plane(p, s->channels, s->out_h * s->out_w, s->y_chan);

        zero(in, s->in_h, s->x_row, s->in_w);
        for (int32_t oy = 0; oy < s->out_h; oy++) {
            const int32_t top = oy * s->stride_h - s->pad_h;
            const struct span ky = taps(top, s->dilation_h, s->kernel_h, 0, s->in_h);
            const int32_t rows = elements(top, s->dilation_h, s->kernel_h, s->before_h, s->in_h + s->after_h);

            for (int32_t ox = 0; ox < s->out_w; ox++) {
                const int32_t left = ox * s->stride_w - s->pad_w;
                const struct span kx = taps(left, s->dilation_w, s->kernel_w, 0, s->in_w);
                const int32_t columns =
                    elements(left, s->dilation_w, s->kernel_w, s->before_w, s->in_w + s->after_w);
                const float share = out[oy * s->y_row + ox] / (float)(rows * columns);

                for (int32_t i = ky.first; i < ky.end; i++) {
                    float *const row = in + (top + i * s->dilation_h) * s->x_row;

                    for (int32_t j = kx.first; j < kx.end; j++) {
                        row[left + j * s->dilation_w] += share;
                    }
                }
            }
        }
    }
}
