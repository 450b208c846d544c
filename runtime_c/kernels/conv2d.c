/* conv2d.c: convolution, the gradient of its input and the gradient of its weights.
 *
 * Each output element is one sequential sum in the order that docs/arithmetic.md states. Speed comes from keeping
 * the sums of 4 channels x 4 positions in registers, so that 8 loads serve 16 multiply-adds; no sum is ever split.
 * The output is filled with what its sums start from first, so that each tile goes on from what is there. */
#include "poet/kernels/conv2d.h"

/* One sum for each of 4 channels. */
struct four {
    float a, b, c, d;
};

POET_INLINE void mac4(struct four *sum, struct four k, float v)
{
    sum->a += k.a * v;
    sum->b += k.b * v;
    sum->c += k.c * v;
    sum->d += k.d * v;
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The smallest t >= 0 with t * step >= distance. */
static int32_t steps_to(int32_t distance, int32_t step)
{
    if (distance <= 0) return 0;
    return step == 1 ? distance : (distance + step - 1) / step;
}

/* The taps from `at` on, `step` apart, that are in 0 .. width - 1. A step of 0 stays where it is. */
struct reach {
    int32_t first, taps;
};

POET_NOINLINE struct reach reach(int32_t taps, int32_t at, int32_t step, int32_t width)
{
    struct reach in = { 0, taps };

    if (step != 0) {
        in.first = steps_to(-at, step);
        in.taps = least(taps, steps_to(width - at, step)) - in.first;
    }
    return in;
}

static void fill(int32_t rows, int32_t cols, int32_t row, float value, float *y)
{
    for (; rows > 0; rows--, y += row) {
        for (int32_t i = 0; i < cols; i++) y[i] = value;
    }
}

/* The forward pass and the gradient of the input are both of this form, for one image and one group:
 *     out[o,p,q] += sum over r, i, j of w[o,r,i,j] * src[r, y0 + p step_y + i tap_y, x0 + q step_x + j tap_x]
 * where a tap outside of src_h x src_w adds nothing, or w * 0. */
struct pass {
    int32_t outs, rows, cols, reds, taps_y, taps_x;
    int32_t out_chan, out_row, out_col;
    int32_t src_chan, src_row, src_h, src_w;
    int32_t y0, x0, step_y, step_x, tap_y, tap_x;
    int32_t tap_col; /* columns that tap_x floats are: tap_x, or 0 where channels are taken as taps */
    int32_t w_out, w_red, w_tap_y, w_tap_x;
};

/* One tile: 4 output channels, up to 4 positions, and the taps that reach them. */
struct site {
    const float *w;     /* first tap, output channel 0, reduction channel 0 */
    const float *src;   /* the plane of reduction channel 0 */
    float *out;         /* output channel 0, position 0 */
    int32_t o1, o2, o3; /* output channels 1, 2, 3; 0 again where there are fewer */
    int32_t taps_y, taps_x;
    int32_t x;            /* index in src of the first tap at position 0; it may lie outside */
    int32_t col;          /* its column in src */
    int32_t out_pos, pos; /* from one position to the next in out and in src */
    int32_t w_row, x_row; /* from the first tap of a row to that of the next */
    int32_t w_red, x_red; /* from one past the last row to the first of the next reduction channel */
};

/* The tiles below begin and end in the same way. */
#define OUTPUTS(p, at)                                                                                       \
    float *const y0 = (at)->out, *const y1 = y0 + (at)->o1 * (p)->out_chan;                                   \
    float *const y2 = y0 + (at)->o2 * (p)->out_chan, *const y3 = y0 + (at)->o3 * (p)->out_chan;

#define LOAD(j) { y0[j], y1[j], y2[j], y3[j] }
#define STORE(j, s) y0[j] = (s).a, y1[j] = (s).b, y2[j] = (s).c, y3[j] = (s).d

/* Four positions that each tap reaches, `out_col` and `pos` apart. */
POET_INLINE void whole(const struct pass *p, const struct site *at, int32_t out_col, int32_t w_step, int32_t pos)
{
    OUTPUTS(p, at)
    struct four s0 = LOAD(0), s1 = LOAD(out_col), s2 = LOAD(2 * out_col), s3 = LOAD(3 * out_col);
    const float *w0 = at->w, *w1 = w0 + at->o1 * p->w_out, *w2 = w0 + at->o2 * p->w_out, *w3 = w0 + at->o3 * p->w_out;
    const float *x = at->src + at->x;
    const int32_t taps = at->taps_x, x_step = p->tap_x;
    const int32_t w_row = at->w_row - taps * w_step, x_row = at->x_row - taps * x_step, w_red = at->w_red;
    int32_t r = p->reds, i = at->taps_y;

    for (;;) {
        int32_t t = taps;

        do {
            const struct four k = { *w0, *w1, *w2, *w3 };

            mac4(&s0, k, x[0]);
            mac4(&s1, k, x[pos]);
            mac4(&s2, k, x[2 * pos]);
            mac4(&s3, k, x[3 * pos]);
            w0 += w_step, w1 += w_step, w2 += w_step, w3 += w_step;
            x += x_step;
        } while (--t != 0);
        w0 += w_row, w1 += w_row, w2 += w_row, w3 += w_row;
        x += x_row;
        if (--i != 0) continue;
        if (--r == 0) break;
        i = at->taps_y;
        w0 += w_red, w1 += w_red, w2 += w_red, w3 += w_red;
        x += at->x_red;
    }
    STORE(0, s0);
    STORE(out_col, s1);
    STORE(2 * out_col, s2);
    STORE(3 * out_col, s3);
}

/* What is read at column `col` of a row of `width`. */
POET_INLINE float inside(const float *src, int32_t x, int32_t col, int32_t width)
{
    return (uint32_t)col < (uint32_t)width ? src[x] : 0.0f;
}

/* Three neighbouring taps, three neighbouring weights, four neighbouring positions: 6 values of src serve 12 times. */
POET_INLINE void three(const struct pass *p, const struct site *at, int32_t w_step)
{
    OUTPUTS(p, at)
    const int32_t width = p->src_w, col = at->col;
    const int32_t left = col >= 0, right = col + 5 < width, core = col >= -1 && col + 4 < width;
    struct four s0 = LOAD(0), s1 = LOAD(1), s2 = LOAD(2), s3 = LOAD(3);
    const float *w0 = at->w, *w1 = w0 + at->o1 * p->w_out, *w2 = w0 + at->o2 * p->w_out, *w3 = w0 + at->o3 * p->w_out;
    const float *const src = at->src;
    const int32_t w_row = at->w_row, w_red = at->w_red;
    int32_t r = p->reds, i = at->taps_y, x = at->x;
    float v0 = 0.0f, v1, v2, v3, v4, v5 = 0.0f;

    for (;;) {
        struct four k = { w0[0], w1[0], w2[0], w3[0] };

        if (core) {
            const float *v = src + (x + 1);

            if (left) v0 = v[-1];
            v1 = v[0];
            v2 = v[1];
            v3 = v[2];
            v4 = v[3];
            if (right) v5 = v[4];
        } else {
            v0 = inside(src, x, col, width);
            v1 = inside(src, x + 1, col + 1, width);
            v2 = inside(src, x + 2, col + 2, width);
            v3 = inside(src, x + 3, col + 3, width);
            v4 = inside(src, x + 4, col + 4, width);
            v5 = inside(src, x + 5, col + 5, width);
        }
        mac4(&s0, k, v0);
        mac4(&s1, k, v1);
        mac4(&s2, k, v2);
        mac4(&s3, k, v3);
        k = (struct four){ w0[w_step], w1[w_step], w2[w_step], w3[w_step] };
        mac4(&s0, k, v1);
        mac4(&s1, k, v2);
        mac4(&s2, k, v3);
        mac4(&s3, k, v4);
        k = (struct four){ w0[2 * w_step], w1[2 * w_step], w2[2 * w_step], w3[2 * w_step] };
        mac4(&s0, k, v2);
        mac4(&s1, k, v3);
        mac4(&s2, k, v4);
        mac4(&s3, k, v5);
        w0 += w_row, w1 += w_row, w2 += w_row, w3 += w_row;
        x += at->x_row;
        if (--i != 0) continue;
        if (--r == 0) break;
        i = at->taps_y;
        w0 += w_red, w1 += w_red, w2 += w_red, w3 += w_red;
        x += at->x_red;
    }
    STORE(0, s0);
    STORE(1, s1);
    STORE(2, s2);
    STORE(3, s3);
}

/* One position. */
POET_NOINLINE void column(const struct pass *p, const struct site *at)
{
    OUTPUTS(p, at)
    struct four s = LOAD(0);
    const int32_t w1_at = at->o1 * p->w_out, w2_at = at->o2 * p->w_out, w3_at = at->o3 * p->w_out;

    for (int32_t r = 0; r < p->reds; r++) {
        for (int32_t i = 0; i < at->taps_y; i++) {
            const float *w0 = at->w + (r * p->w_red + i * at->w_row), *w1 = w0 + w1_at, *w2 = w0 + w2_at, *w3 = w0 + w3_at;
            const float *x = at->src + (at->x + r * p->src_chan + i * at->x_row);
            const int32_t w_step = p->w_tap_x, x_step = p->tap_x;
            int32_t t = at->taps_x;

            do {
                const struct four k = { *w0, *w1, *w2, *w3 };

                mac4(&s, k, *x);
                w0 += w_step, w1 += w_step, w2 += w_step, w3 += w_step;
                x += x_step;
            } while (--t != 0);
        }
    }
    STORE(0, s);
}

POET_NOINLINE void whole_forward(const struct pass *p, const struct site *at)
{
    whole(p, at, 1, 1, 1);
}

POET_NOINLINE void whole_backward(const struct pass *p, const struct site *at)
{
    whole(p, at, 1, -1, 1);
}

POET_NOINLINE void whole_any(const struct pass *p, const struct site *at)
{
    whole(p, at, at->out_pos, p->w_tap_x, at->pos);
}

POET_NOINLINE void three_forward(const struct pass *p, const struct site *at)
{
    three(p, at, 1);
}

POET_NOINLINE void three_backward(const struct pass *p, const struct site *at)
{
    three(p, at, -1);
}

/* One output channel and one reduction channel along an output row: what fours of channels leave over, and depthwise convolutions. w and x are those of the first tap row, x at column 0 of src. */
static void line(const struct pass *p, const float *w, const float *src, int32_t x, int32_t taps_y, float *out)
{
    const int32_t pos = p->step_x, out_col = p->out_col, w_step = p->w_tap_x, x_step = p->tap_x;
    int32_t col = 0;

    while (col < p->cols) {
        const int32_t at = p->x0 + col * pos;
        float *y = out + col * out_col;

        if (col + 4 <= p->cols && at >= 0 && at + 3 * pos + (p->taps_x - 1) * p->tap_col < p->src_w) {
            float s0 = y[0], s1 = y[out_col], s2 = y[2 * out_col], s3 = y[3 * out_col];

            for (int32_t i = 0; i < taps_y; i++) {
                const float *k = w + i * p->w_tap_y, *v = src + (x + i * p->tap_y * p->src_row + at);
                int32_t t = p->taps_x;

                do {
                    s0 += *k * v[0];
                    s1 += *k * v[pos];
                    s2 += *k * v[2 * pos];
                    s3 += *k * v[3 * pos];
                    k += w_step;
                    v += x_step;
                } while (--t != 0);
            }
            y[0] = s0, y[out_col] = s1, y[2 * out_col] = s2, y[3 * out_col] = s3;
            col += 4;
        } else {
            const struct reach in = reach(p->taps_x, at, p->tap_col, p->src_w);
            float s = *y;

            for (int32_t i = 0; i < taps_y; i++) {
                const float *k = w + (i * p->w_tap_y + in.first * w_step);
                const float *v = src + (x + i * p->tap_y * p->src_row + at + in.first * x_step);

                for (int32_t t = in.taps; t > 0; t--) {
                    s += *k * *v;
                    k += w_step;
                    v += x_step;
                }
            }
            *y = s;
            col++;
        }
    }
}

/* One output channel and one reduction channel along an output row, 3 x 3 neighbouring taps, neighbouring positions. k: the
 * weights, 0 in a row that is outside; x0, x1, x2: the column after `at`, which is -1 or more and under the first tap. */
POET_NOINLINE void line3(const float *k, const float *x0, const float *x1, const float *x2, int32_t at, int32_t width,
                         int32_t cols, float *y)
{
    const float *const end = y + cols;

    for (; end - y >= 4 && at + 5 <= width; at += 4, y += 4) {
        const int32_t first = at >= 0, last = at + 5 < width;
        float s0 = y[0], s1 = y[1], s2 = y[2], s3 = y[3];

#define ROW(k, x)                                                                                            \
    do {                                                                                                     \
        const float v0 = first ? (x)[-1] : 0.0f, v1 = (x)[0], v2 = (x)[1], v3 = (x)[2], v4 = (x)[3];          \
        const float v5 = last ? (x)[4] : 0.0f;                                                               \
                                                                                                             \
        s0 += (k)[0] * v0, s1 += (k)[0] * v1, s2 += (k)[0] * v2, s3 += (k)[0] * v3;                          \
        s0 += (k)[1] * v1, s1 += (k)[1] * v2, s2 += (k)[1] * v3, s3 += (k)[1] * v4;                          \
        s0 += (k)[2] * v2, s1 += (k)[2] * v3, s2 += (k)[2] * v4, s3 += (k)[2] * v5;                          \
        (x) += 4;                                                                                            \
    } while (0)
        ROW(k, x0);
        ROW(k + 3, x1);
        ROW(k + 6, x2);
#undef ROW
        y[0] = s0, y[1] = s1, y[2] = s2, y[3] = s3;
    }
    for (; y < end; at++, x0++, x1++, x2++) {
        const int32_t in0 = at >= 0 && at < width, in1 = at + 1 < width, in2 = at + 2 < width;
        float s = *y;

        if (in0) s += k[0] * x0[-1];
        if (in1) s += k[1] * x0[0];
        if (in2) s += k[2] * x0[1];
        if (in0) s += k[3] * x1[-1];
        if (in1) s += k[4] * x1[0];
        if (in2) s += k[5] * x1[1];
        if (in0) s += k[6] * x2[-1];
        if (in1) s += k[7] * x2[0];
        if (in2) s += k[8] * x2[1];
        *y++ = s;
    }
}

static void lines3(const struct pass *p, const float *w, const float *src, float *out)
{
    float k[9], edge[9];

    for (int32_t i = 0; i < 3; i++) {
        for (int32_t j = 0; j < 3; j++) k[3 * i + j] = w[i * p->w_tap_y + j * p->w_tap_x];
    }
    for (int32_t row = 0; row < p->rows; row++, out += p->out_row) {
        const int32_t y = p->y0 + row * p->step_y;
        const float *const x = src + (y * p->src_row + p->x0 + 1);
        const float *use = k, *x0 = x, *x1 = x + p->src_row, *x2 = x1 + p->src_row;

        if (y < 0 || y + 3 > p->src_h) {
            const float *const any = src + (p->x0 + 1);

            if (y < -2 || y >= p->src_h) continue;
            use = edge;
            for (int32_t i = 0; i < 9; i++) edge[i] = y + i / 3 >= 0 && y + i / 3 < p->src_h ? k[i] : 0.0f;
            if (y < 0 || y >= p->src_h) x0 = any;
            if (y < -1 || y + 1 >= p->src_h) x1 = any;
            if (y + 2 >= p->src_h) x2 = any;
        }
        line3(use, x0, x1, x2, p->x0, p->src_w, p->cols, out);
    }
}

/* Output channels `o` and on, one at a time. */
POET_NOINLINE void correlate_lines(const struct pass *p, int32_t o, const float *w, const float *src, float *out)
{
    const int32_t threes = p->taps_y == 3 && p->taps_x == 3 && p->tap_y == 1 && p->tap_x == 1 && p->tap_col == 1 &&
                           p->step_x == 1 && p->out_col == 1 && p->x0 >= -1;

    for (; o < p->outs; o++) {
        for (int32_t r = 0; r < p->reds; r++) {
            const float *k = w + (o * p->w_out + r * p->w_red), *plane = src + r * p->src_chan;
            float *to = out + o * p->out_chan;

            if (threes) {
                lines3(p, k, plane, to);
                continue;
            }
            for (int32_t row = 0; row < p->rows; row++) {
                const int32_t y = p->y0 + row * p->step_y;
                const struct reach in = reach(p->taps_y, y, p->tap_y, p->src_h);

                if (in.taps > 0) {
                    line(p, k + in.first * p->w_tap_y, plane, (y + in.first * p->tap_y) * p->src_row, in.taps,
                         to + row * p->out_row);
                }
            }
        }
    }
}

static void correlate(const struct pass *p, const float *w, const float *src, float *out)
{
    const int32_t rest = p->outs % 4, outs = p->outs - (rest == 1 || (rest == 2 && p->reds == 1) ? rest : 0);
    const int32_t easy = p->step_x == 1 && p->out_col == 1 && (p->w_tap_x == 1 || p->w_tap_x == -1);
    const int32_t threes = easy && p->taps_x == 3 && p->tap_x == 1 && p->tap_col == 1;

    correlate_lines(p, outs, w, src, out);
    for (int32_t col = 0, cols; outs > 0 && col < p->cols; col += cols) {
        const int32_t x = p->x0 + col * p->step_x;
        const struct reach in_x = reach(p->taps_x, x, p->tap_col, p->src_w);
        struct site at = { .src = src, .col = x, .taps_x = in_x.taps, .w_row = p->w_tap_y };

        cols = 1;
        if (col + 4 <= p->cols) {
            if (threes || (x >= 0 && x + 3 * p->step_x + (p->taps_x - 1) * p->tap_col < p->src_w)) cols = 4;
        }
        if (in_x.taps <= 0 && !(threes && cols == 4)) continue;
        at.x_row = p->tap_y * p->src_row;
        for (int32_t row = 0, rows; row < p->rows; row += rows) {
            const int32_t y = p->y0 + row * p->step_y;
            const struct reach in_y = reach(p->taps_y, y, p->tap_y, p->src_h);
            void (*tile)(const struct pass *, const struct site *) = column;

            rows = 1;
            at.taps_y = in_y.taps;
            if (in_y.taps <= 0) continue;
            at.w_red = p->w_red - in_y.taps * at.w_row;
            at.x_red = p->src_chan - in_y.taps * at.x_row;
            at.x = (y + in_y.first * p->tap_y) * p->src_row + x;
            at.w = w + in_y.first * p->w_tap_y;
            at.out = out + (row * p->out_row + col * p->out_col);
            if (cols == 4 && threes) {
                tile = p->w_tap_x == 1 ? three_forward : three_backward;
            } else {
                at.x += in_x.first * p->tap_x;
                at.w += in_x.first * p->w_tap_x;
                at.pos = p->step_x;
                at.out_pos = p->out_col;
                if (cols == 4) {
                    tile = !easy ? whole_any : p->w_tap_x == 1 ? whole_forward : whole_backward;
                } else if (row + 4 <= p->rows && y >= 0 && y + 3 * p->step_y + (p->taps_y - 1) * p->tap_y < p->src_h) {
                    tile = whole_any; /* four positions below each other */
                    at.pos = p->step_y * p->src_row;
                    at.out_pos = p->out_row;
                    rows = 4;
                }
            }
            for (int32_t o = outs; o > 0; o -= 4) {
                at.o1 = o > 1 ? 1 : 0;
                at.o2 = o > 2 ? 2 : 0;
                at.o3 = o > 3 ? 3 : 0;
                tile(p, &at);
                at.w += 4 * p->w_out;
                at.out += 4 * p->out_chan;
            }
        }
    }
}

/* A convolution without extent: its channels are the taps, and its rows one row where they follow each other. */
static void flatten(struct pass *p)
{
    if (p->taps_x != 1 || p->taps_y != 1 || p->x0 < 0 || p->x0 + (p->cols - 1) * p->step_x >= p->src_w) return;
    p->taps_x = p->reds;
    p->tap_x = p->src_chan;
    p->tap_col = 0;
    p->w_tap_x = p->w_red;
    p->reds = 1;
    if (p->out_row == p->cols * p->out_col && p->step_y * p->src_row == p->cols * p->step_x && p->x0 == 0 && p->y0 >= 0 &&
        p->y0 + (p->rows - 1) * p->step_y < p->src_h) {
        p->cols *= p->rows;
        p->rows = 1;
        p->src_w = (p->cols - 1) * p->step_x + 1;
    }
}

void poet_conv2d_f32(const struct poet_conv2d *s, enum poet_start start, const float *x, const float *w, const float *b, float *y)
{
    const int32_t in_c = s->in_c / s->groups, out_c = s->out_c / s->groups;
    struct pass p = {
        .outs = out_c,
        .rows = s->out_h,
        .cols = s->out_w,
        .reds = in_c,
        .taps_y = s->kernel_h,
        .taps_x = s->kernel_w,
        .out_chan = s->y_chan,
        .out_row = s->y_row,
        .out_col = 1,
        .src_chan = s->x_chan,
        .src_row = s->x_row,
        .src_h = s->in_h,
        .src_w = s->in_w,
        .y0 = -s->pad_top,
        .x0 = -s->pad_left,
        .step_y = s->stride_h,
        .step_x = s->stride_w,
        .tap_y = s->dilation_h,
        .tap_x = s->dilation_w,
        .tap_col = s->dilation_w,
        .w_out = s->w_out,
        .w_red = s->w_in,
        .w_tap_y = s->kernel_w,
        .w_tap_x = 1,
    };

    flatten(&p);
    for (int32_t n = 0; n < s->batch; n++, x += s->x_batch, y += s->y_batch) {
        for (int32_t o = 0; start != POET_CONTINUE && o < s->out_c; o++) {
            fill(s->out_h, s->out_w, s->y_row, start == POET_START_BIAS && b != NULL ? 0.0f + b[o] : 0.0f, y + o * s->y_chan);
        }
        for (int32_t g = 0; g < s->groups; g++) {
            correlate(&p, w + g * out_c * s->w_out, x + g * in_c * s->x_chan, y + g * out_c * s->y_chan);
        }
    }
}

/* The taps along one axis that reach the inputs phase, phase + stride, ...: tap t is kernel index `top - t every` and reads
 * output `first + q + t far` for the q-th of these inputs. */
struct phase {
    int32_t inputs, taps, top, every, first, far;
};

static struct phase phase_of(int32_t phase, int32_t in, int32_t kernel, int32_t stride, int32_t dilation, int32_t pad)
{
    struct phase f = { .inputs = (in - phase + stride - 1) / stride, .top = kernel - 1, .every = 1 };

    while (f.top >= 0 && (phase + pad - f.top * dilation) % stride != 0) f.top--;
    while (f.every * dilation % stride != 0) f.every++;
    f.taps = f.top >= 0 ? f.top / f.every + 1 : 0;
    f.first = (phase + pad - f.top * dilation) / stride;
    f.far = f.every * dilation / stride;
    return f;
}

void poet_conv2d_dx_f32(const struct poet_conv2d *s, enum poet_start start, const float *w, const float *dy, float *dx)
{
    const int32_t in_c = s->in_c / s->groups, out_c = s->out_c / s->groups;

    for (int32_t n = 0; start != POET_CONTINUE && n < s->batch; n++) {
        for (int32_t c = 0; c < s->in_c; c++) fill(s->in_h, s->in_w, s->x_row, 0.0f, dx + (n * s->x_batch + c * s->x_chan));
    }
    for (int32_t phase = 0; phase < s->stride_h * s->stride_w; phase++) {
        const int32_t at_y = phase / s->stride_w, at_x = phase % s->stride_w;
        const struct phase fy = phase_of(at_y, s->in_h, s->kernel_h, s->stride_h, s->dilation_h, s->pad_top);
        const struct phase fx = phase_of(at_x, s->in_w, s->kernel_w, s->stride_w, s->dilation_w, s->pad_left);
        struct pass p = {
            .outs = in_c,
            .rows = fy.inputs,
            .cols = fx.inputs,
            .reds = out_c,
            .taps_y = fy.taps,
            .taps_x = fx.taps,
            .out_chan = s->x_chan,
            .out_row = s->x_row * s->stride_h,
            .out_col = s->stride_w,
            .src_chan = s->y_chan,
            .src_row = s->y_row,
            .src_h = s->out_h,
            .src_w = s->out_w,
            .y0 = fy.first,
            .x0 = fx.first,
            .step_y = 1,
            .step_x = 1,
            .tap_y = fy.far,
            .tap_x = fx.far,
            .tap_col = fx.far,
            .w_out = s->w_in,
            .w_red = s->w_out,
            .w_tap_y = -fy.every * s->kernel_w,
            .w_tap_x = -fx.every,
        };

        if (fy.taps == 0 || fx.taps == 0) continue;
        flatten(&p);
        for (int32_t n = 0; n < s->batch; n++) {
            for (int32_t g = 0; g < s->groups; g++) {
                correlate(&p, w + (g * out_c * s->w_out + fy.top * s->kernel_w + fx.top),
                          dy + (n * s->y_batch + g * out_c * s->y_chan),
                          dx + (n * s->x_batch + g * in_c * s->x_chan + at_y * s->x_row + at_x));
            }
        }
    }
}

/* One tap of the weights, for one group: dw[o,c] += sum over n, p, q of a[n,o,p,q] * b[n,c,p,q]: dy and x, at the output
 * positions that the tap reaches; or x and dy, for dw transposed. */
struct dots {
    int32_t batch, rows, cols;
    int32_t a_batch, a_chan, a_row, a_col;
    int32_t b_batch, b_chan, b_row, b_col;
    int32_t w_a, w_b; /* strides of dw */
};

/* 4 x 4 channels. a_col and b_col are those of p, or what is known of them when compiling. */
POET_INLINE void dots16(const struct dots *p, const float *a, const float *b, float *dw, int32_t a_col, int32_t b_col)
{
    const int32_t a_chan = p->a_chan, b_chan = p->b_chan;
    float *const dw0 = dw, *const dw1 = dw0 + p->w_a, *const dw2 = dw1 + p->w_a, *const dw3 = dw2 + p->w_a;
    const int32_t c1 = p->w_b, c2 = 2 * c1, c3 = 3 * c1;
    struct four s0 = { dw0[0], dw1[0], dw2[0], dw3[0] }, s1 = { dw0[c1], dw1[c1], dw2[c1], dw3[c1] };
    struct four s2 = { dw0[c2], dw1[c2], dw2[c2], dw3[c2] }, s3 = { dw0[c3], dw1[c3], dw2[c3], dw3[c3] };

    for (int32_t n = 0; n < p->batch; n++) {
        const float *ar = a + n * p->a_batch, *br = b + n * p->b_batch;
        int32_t i = p->rows;

        do {
            const float *a0 = ar, *a1 = a0 + a_chan, *a2 = a1 + a_chan, *a3 = a2 + a_chan;
            const float *b0 = br, *b1 = b0 + b_chan, *b2 = b1 + b_chan, *b3 = b2 + b_chan;
            int32_t t = p->cols;

            do {
                const struct four k = { *a0, *a1, *a2, *a3 };

                mac4(&s0, k, *b0);
                mac4(&s1, k, *b1);
                mac4(&s2, k, *b2);
                mac4(&s3, k, *b3);
                a0 += a_col, a1 += a_col, a2 += a_col, a3 += a_col;
                b0 += b_col, b1 += b_col, b2 += b_col, b3 += b_col;
            } while (--t != 0);
            ar += p->a_row;
            br += p->b_row;
        } while (--i != 0);
    }
    dw0[0] = s0.a, dw1[0] = s0.b, dw2[0] = s0.c, dw3[0] = s0.d;
    dw0[c1] = s1.a, dw1[c1] = s1.b, dw2[c1] = s1.c, dw3[c1] = s1.d;
    dw0[c2] = s2.a, dw1[c2] = s2.b, dw2[c2] = s2.c, dw3[c2] = s2.d;
    dw0[c3] = s3.a, dw1[c3] = s3.b, dw2[c3] = s3.c, dw3[c3] = s3.d;
}

POET_NOINLINE void dots16_unit(const struct dots *p, const float *a, const float *b, float *dw)
{
    dots16(p, a, b, dw, 1, 1);
}

POET_NOINLINE void dots16_any(const struct dots *p, const float *a, const float *b, float *dw)
{
    dots16(p, a, b, dw, p->a_col, p->b_col);
}

/* 4 channels of a, one of b. */
POET_INLINE void dots4(const struct dots *p, const float *a, const float *b, float *dw, int32_t a_col, int32_t b_col)
{
    const int32_t w_a = p->w_a;
    struct four s = { dw[0], dw[w_a], dw[2 * w_a], dw[3 * w_a] };

    for (int32_t n = 0; n < p->batch; n++) {
        const float *ar = a + n * p->a_batch, *br = b + n * p->b_batch;
        int32_t i = p->rows;

        do {
            const float *a0 = ar, *a1 = a0 + p->a_chan, *a2 = a1 + p->a_chan, *a3 = a2 + p->a_chan, *b0 = br;
            int32_t t = p->cols;

            do {
                const struct four k = { *a0, *a1, *a2, *a3 };

                mac4(&s, k, *b0);
                a0 += a_col, a1 += a_col, a2 += a_col, a3 += a_col;
                b0 += b_col;
            } while (--t != 0);
            ar += p->a_row;
            br += p->b_row;
        } while (--i != 0);
    }
    dw[0] = s.a, dw[w_a] = s.b, dw[2 * w_a] = s.c, dw[3 * w_a] = s.d;
}

POET_NOINLINE void dots4_unit(const struct dots *p, const float *a, const float *b, float *dw)
{
    dots4(p, a, b, dw, 1, 1);
}

POET_NOINLINE void dots4_any(const struct dots *p, const float *a, const float *b, float *dw)
{
    dots4(p, a, b, dw, p->a_col, p->b_col);
}

POET_NOINLINE void dots1(const struct dots *p, const float *a, const float *b, float *dw)
{
    float sum = *dw;

    for (int32_t n = 0; n < p->batch; n++) {
        for (int32_t i = 0; i < p->rows; i++) {
            const float *a0 = a + (n * p->a_batch + i * p->a_row), *b0 = b + (n * p->b_batch + i * p->b_row);

            for (int32_t t = p->cols; t > 0; t--) {
                sum += *a0 * *b0;
                a0 += p->a_col;
                b0 += p->b_col;
            }
        }
    }
    *dw = sum;
}

/* The three taps of one row of a 3-wide kernel, one pair of channels. first: index in x of the row under the first output row;
 * at: the column under the first tap. */
POET_NOINLINE void dots_row3(const struct dots *p, const float *dy, const float *x, int32_t first, int32_t at,
                             int32_t width, float *dw)
{
    float s0 = dw[0], s1 = dw[1], s2 = dw[2];

    for (int32_t n = 0; n < p->batch; n++) {
        for (int32_t i = 0; i < p->rows; i++) {
            const float *d = dy + (n * p->a_batch + i * p->a_row);
            const int32_t row = first + at + n * p->b_batch + i * p->b_row;
            float v0 = inside(x, row, at, width), v1 = inside(x, row + 1, at + 1, width);
            int32_t col = at + 2, q = 0;

            while (q < p->cols) {
                const int32_t in = (uint32_t)col < (uint32_t)width;
                const int32_t stop = in ? least(p->cols, q + width - col) : q + 1;

                if (in) {
                    const float *v = x + (row + q + 2);

                    for (; q < stop; q++, col++) {
                        const float v2 = *v++, k = *d++;

                        s0 += k * v0;
                        s1 += k * v1;
                        s2 += k * v2;
                        v0 = v1;
                        v1 = v2;
                    }
                } else {
                    const float k = *d++;

                    s0 += k * v0;
                    s1 += k * v1;
                    v0 = v1;
                    v1 = 0.0f;
                    q++, col++;
                }
            }
        }
    }
    dw[0] = s0, dw[1] = s1, dw[2] = s2;
}

static void tap_gradient(const struct dots *p, int32_t as, int32_t bs, const float *a, const float *b, float *dw)
{
    const struct dots q = { p->batch, p->rows,    p->cols,   p->b_batch, p->b_chan, p->b_row, p->b_col,
                            p->a_batch, p->a_chan, p->a_row, p->a_col,   p->w_b,    p->w_a };
    const int32_t unit = p->a_col == 1 && p->b_col == 1;

    for (int32_t i = 0; i < as;) {
        const int32_t four_a = as - i >= 4;

        for (int32_t j = 0; j < bs;) {
            const int32_t four_b = bs - j >= 4;
            const float *ai = a + i * p->a_chan, *bj = b + j * p->b_chan;
            float *to = dw + (i * p->w_a + j * p->w_b);

            if (four_a && four_b) {
                (unit ? dots16_unit : dots16_any)(p, ai, bj, to);
            } else if (four_a) {
                (unit ? dots4_unit : dots4_any)(p, ai, bj, to);
            } else if (four_b) {
                (unit ? dots4_unit : dots4_any)(&q, bj, ai, to);
            } else {
                dots1(p, ai, bj, to);
            }
            j += four_b ? 4 : 1;
        }
        i += four_a ? 4 : 1;
    }
}

/* Three neighbouring taps at once, a channel at a time. */
static void dw_threes(const struct poet_conv2d *s, const float *x, const float *dy, float *dw)
{
    for (int32_t i = 0; i < s->kernel_h; i++) {
        const int32_t y0 = i * s->dilation_h - s->pad_top, row = steps_to(-y0, s->stride_h);
        const struct dots p = {
            .batch = s->batch,
            .rows = least(s->out_h, steps_to(s->in_h - y0, s->stride_h)) - row,
            .cols = s->out_w,
            .a_batch = s->y_batch,
            .a_row = s->y_row,
            .b_batch = s->x_batch,
            .b_row = s->stride_h * s->x_row,
        };

        for (int32_t o = 0; o < s->out_c; o++) {
            dots_row3(&p, dy + (o * s->y_chan + row * s->y_row),
                      x + o / (s->out_c / s->groups) * s->x_chan, (y0 + row * s->stride_h) * s->x_row, -s->pad_left, s->in_w,
                      dw + (o * s->w_out + 3 * i));
        }
    }
}

void poet_conv2d_dw_f32(const struct poet_conv2d *s, enum poet_start start, const float *x, const float *dy, float *dw)
{
    const int32_t in_c = s->in_c / s->groups, out_c = s->out_c / s->groups, taps = s->kernel_h * s->kernel_w;

    for (int32_t o = 0; start != POET_CONTINUE && o < s->out_c; o++) fill(in_c, taps, s->w_in, 0.0f, dw + o * s->w_out);
    if (in_c == 1 && out_c < 4 && s->kernel_w == 3 && s->stride_w == 1 && s->dilation_w == 1) {
        dw_threes(s, x, dy, dw);
        return;
    }
    for (int32_t k = 0; k < taps; k++) {
        const int32_t i = k / s->kernel_w, j = k % s->kernel_w;
        const struct reach rows = reach(s->out_h, i * s->dilation_h - s->pad_top, s->stride_h, s->in_h);
        const struct reach cols = reach(s->out_w, j * s->dilation_w - s->pad_left, s->stride_w, s->in_w);
        const int32_t y_at = rows.first * s->y_row + cols.first;
        const int32_t x_at = (i * s->dilation_h - s->pad_top + rows.first * s->stride_h) * s->x_row +
                             j * s->dilation_w - s->pad_left + cols.first * s->stride_w;
        struct dots p = {
            .batch = s->batch,
            .rows = rows.taps,
            .cols = cols.taps,
            .a_batch = s->y_batch,
            .a_chan = s->y_chan,
            .a_row = s->y_row,
            .a_col = 1,
            .b_batch = s->x_batch,
            .b_chan = s->x_chan,
            .b_row = s->stride_h * s->x_row,
            .b_col = s->stride_w,
            .w_a = s->w_out,
            .w_b = s->w_in,
        };

        if (p.rows <= 0 || p.cols <= 0) continue;
        if (p.a_row == p.cols && p.b_row == p.cols * p.b_col) { /* the rows are one row */
            p.cols *= p.rows;
            p.rows = 1;
        }
        for (int32_t g = 0; g < s->groups; g++) {
            tap_gradient(&p, out_c, in_c, dy + (y_at + g * out_c * s->y_chan), x + (x_at + g * in_c * s->x_chan),
                         dw + (g * out_c * s->w_out + k));
        }
    }
}
