/* conv2d.c: convolution, the gradient of its input and the gradient of its weights.
 *
 * Each output element is one sequential sum in the order that docs/arithmetic.md states. Speed comes from
 * keeping the sums of 4 channels x 4 positions in registers, so that 8 loads serve 16 multiply-adds; no sum
 * is ever split. The output is filled with what its sums start from first, so that each tile goes on from
 * what is there. */
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
    if (row == cols) { /* the rows are one row */
        cols *= rows;
        rows = 1;
    }
    for (; rows > 0; rows--, y += row) {
        for (int32_t i = 0; i < cols; i++) y[i] = value;
    }
}

/* The forward pass and the gradient of the input are both of this form, for one group:
 *     out[n,o,p,q] += sum over r, i, j of w[o,r,i,j] * src[n,r,y,x]
 *     y = y0 + p step_y + i tap_y,  x = x0 + q step_x + j tap_x
 * where a tap outside of src_h x src_w adds nothing, or w * 0. */
struct pass {
    int32_t batch, outs, rows, cols, reds, taps_y, taps_x;
    int32_t out_batch, out_chan, out_row, out_col;
    int32_t src_batch, src_chan, src_row, src_h, src_w;
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
    int32_t reds, taps_y, taps_x;
    int32_t x;            /* index in src of the first tap at position 0; it may lie outside */
    int32_t col;          /* its column in src */
    int32_t out_pos, pos; /* from one position to the next in out and in src */
    int32_t w_row, x_row; /* from the first tap of a row to that of the next */
    int32_t w_red, x_red; /* from that of the last row to that of the next reduction channel's first */
};

/* The tiles below begin and end in the same way. */
#define OUTPUTS(p, at)                                                                                       \
    float *const y0 = (at)->out, *const y1 = y0 + (at)->o1 * (p)->out_chan;                                  \
    float *const y2 = y0 + (at)->o2 * (p)->out_chan, *const y3 = y0 + (at)->o3 * (p)->out_chan;

#define LOAD(j) { y0[j], y1[j], y2[j], y3[j] }
#define STORE(j, s) y0[j] = (s).a, y1[j] = (s).b, y2[j] = (s).c, y3[j] = (s).d

/* Four positions that each tap reaches, `out_pos` and `pos` apart; or one, if `pos` is 0. w_across: from the
 * weights of one output channel to those of the next if there are four, else 0. */
POET_INLINE void whole(const struct pass *p, const struct site *at, int32_t out_pos, int32_t w_step,
                       int32_t pos, int32_t w_across)
{
    OUTPUTS(p, at)
    struct four s0 = LOAD(0), s1 = s0, s2 = s0, s3 = s0;
    const float *w0 = at->w, *w1 = w0 + (w_across != 0 ? w_across : at->o1 * p->w_out);
    const float *w2 = w0 + (w_across != 0 ? 2 * w_across : at->o2 * p->w_out);
    const float *w3 = w0 + (w_across != 0 ? 3 * w_across : at->o3 * p->w_out);
    const float *x = at->src + at->x;
    const int32_t taps = at->taps_x, x_step = p->tap_x;
    const int32_t w_used = taps * w_step, x_used = taps * x_step;
    int32_t r = at->reds, i = at->taps_y;

    if (pos != 0) {
        s1 = (struct four)LOAD(out_pos);
        s2 = (struct four)LOAD(2 * out_pos);
        s3 = (struct four)LOAD(3 * out_pos);
    }
    for (;;) {
        int32_t t = taps, w_next = at->w_row - w_used, x_next = at->x_row - x_used;

        do {
            const struct four k = { *w0, *w1, *w2, *w3 };

            mac4(&s0, k, x[0]);
            if (pos != 0) {
                mac4(&s1, k, x[pos]);
                mac4(&s2, k, x[2 * pos]);
                mac4(&s3, k, x[3 * pos]);
            }
            w0 += w_step, w1 += w_step, w2 += w_step, w3 += w_step;
            x += x_step;
        } while (--t != 0);
        if (--i == 0) {
            if (--r == 0) break;
            i = at->taps_y;
            w_next = at->w_red - w_used;
            x_next = at->x_red - x_used;
        }
        w0 += w_next, w1 += w_next, w2 += w_next, w3 += w_next;
        x += x_next;
    }
    STORE(0, s0);
    if (pos != 0) {
        STORE(out_pos, s1);
        STORE(2 * out_pos, s2);
        STORE(3 * out_pos, s3);
    }
}

/* What is read at column `col` of a row of `width`. */
POET_INLINE float inside(const float *src, int32_t x, int32_t col, int32_t width)
{
    return (uint32_t)col < (uint32_t)width ? src[x] : 0.0f;
}

/* Three neighbouring taps, three neighbouring weights, four neighbouring positions: 6 values of src serve 12
 * times. */
POET_INLINE void three(const struct pass *p, const struct site *at, int32_t w_step)
{
    OUTPUTS(p, at)
    const int32_t width = p->src_w, col = at->col;
    const int32_t left = col >= 0, right = col + 5 < width, core = col >= -1 && col + 4 < width;
    struct four s0 = LOAD(0), s1 = LOAD(1), s2 = LOAD(2), s3 = LOAD(3);
    const float *w0 = at->w, *w1 = w0 + at->o1 * p->w_out, *w2 = w0 + at->o2 * p->w_out,
                *w3 = w0 + at->o3 * p->w_out;
    const float *const src = at->src;
    int32_t r = at->reds, i = at->taps_y, x = at->x;
    float v0 = 0.0f, v1, v2, v3, v4, v5 = 0.0f;

    for (;;) {
        struct four k = { w0[0], w1[0], w2[0], w3[0] };
        int32_t w_next = at->w_row, x_next = at->x_row;

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
        if (--i == 0) {
            if (--r == 0) break;
            i = at->taps_y;
            w_next = at->w_red;
            x_next = at->x_red;
        }
        w0 += w_next, w1 += w_next, w2 += w_next, w3 += w_next;
        x += x_next;
    }
    STORE(0, s0);
    STORE(1, s1);
    STORE(2, s2);
    STORE(3, s3);
}

POET_NOINLINE void whole_forward(const struct pass *p, const struct site *at)
{
    whole(p, at, 1, 1, 1, 0);
}

POET_NOINLINE void whole_backward(const struct pass *p, const struct site *at)
{
    whole(p, at, 1, -1, 1, 0);
}

POET_NOINLINE void whole_across(const struct pass *p, const struct site *at)
{
    whole(p, at, 1, p->w_tap_x, 1, 1);
}

POET_NOINLINE void whole_any(const struct pass *p, const struct site *at)
{
    const int32_t pos = at->pos;

    if (pos != 0) whole(p, at, at->out_pos, p->w_tap_x, pos, 0);
}

POET_NOINLINE void column(const struct pass *p, const struct site *at)
{
    whole(p, at, 0, p->w_tap_x, 0, 0);
}

POET_NOINLINE void three_forward(const struct pass *p, const struct site *at)
{
    three(p, at, 1);
}

POET_NOINLINE void three_backward(const struct pass *p, const struct site *at)
{
    three(p, at, -1);
}

/* y += k x for n values. */
static void scaled_add(int32_t n, float k, const float *x, int32_t x_step, float *y, int32_t y_step)
{
    if (x_step == 1 && y_step == 1) {
        for (; n >= 4; n -= 4, x += 4, y += 4) {
            const float y0 = y[0] + k * x[0], y1 = y[1] + k * x[1], y2 = y[2] + k * x[2],
                        y3 = y[3] + k * x[3];

            y[0] = y0, y[1] = y1, y[2] = y2, y[3] = y3;
        }
    }
    for (; n > 0; n--, x += x_step, y += y_step) *y += k * *x;
}

/* One output channel and one reduction channel: all positions of a tap, then the next tap. */
POET_NOINLINE void lines_any(const struct pass *p, const float *w, const float *src, float *out)
{
    for (int32_t i = 0; i < p->taps_y; i++) {
        const int32_t y = p->y0 + i * p->tap_y;
        const struct reach rows = reach(p->rows, y, p->step_y, p->src_h);

        for (int32_t j = 0; j < p->taps_x; j++) {
            const struct reach cols = reach(p->cols, p->x0 + j * p->tap_col, p->step_x, p->src_w);
            const float k = w[i * p->w_tap_y + j * p->w_tap_x];
            const int32_t x = p->x0 + j * p->tap_x + cols.first * p->step_x;

            for (int32_t row = rows.first; row < rows.first + rows.taps; row++) {
                scaled_add(cols.taps, k, src + ((y + row * p->step_y) * p->src_row + x), p->step_x,
                           out + (row * p->out_row + cols.first * p->out_col), p->out_col);
            }
        }
    }
}

/* One output channel and one reduction channel, `rows` output rows, 3 x 3 neighbouring taps, neighbouring
 * positions. k: the weights; x0, x1, x2: in the three rows of src the column after the first tap's, which is
 * -1 or more. */
POET_NOINLINE void rows3(const struct pass *p, const float *k, const float *x0, const float *x1,
                         const float *x2, int32_t rows, float *out)
{
    const float k00 = k[0], k01 = k[1], k02 = k[2], k10 = k[3], k11 = k[4], k12 = k[5];
    const float k20 = k[6], k21 = k[7], k22 = k[8];
    const int32_t width = p->src_w, cols = p->cols;

    for (; rows > 0; rows--) {
        int32_t at = p->x0, n = cols;
        float *y = out;

        for (; n >= 4 && at + 5 <= width; n -= 4, at += 4, y += 4) {
            const int32_t first = at >= 0, last = at + 5 < width;
            float s0 = y[0], s1 = y[1], s2 = y[2], s3 = y[3];

#define ROW(x, a, b, c)                                                                                      \
    do {                                                                                                     \
        const float v0 = first ? (x)[-1] : 0.0f, v1 = (x)[0], v2 = (x)[1], v3 = (x)[2], v4 = (x)[3];         \
        const float v5 = last ? (x)[4] : 0.0f;                                                               \
                                                                                                             \
        s0 += (a) * v0, s1 += (a) * v1, s2 += (a) * v2, s3 += (a) * v3;                                      \
        s0 += (b) * v1, s1 += (b) * v2, s2 += (b) * v3, s3 += (b) * v4;                                      \
        s0 += (c) * v2, s1 += (c) * v3, s2 += (c) * v4, s3 += (c) * v5;                                      \
        (x) += 4;                                                                                            \
    } while (0)
            ROW(x0, k00, k01, k02);
            ROW(x1, k10, k11, k12);
            ROW(x2, k20, k21, k22);
#undef ROW
            y[0] = s0, y[1] = s1, y[2] = s2, y[3] = s3;
        }
        for (int32_t left = n; left > 0; left--, at++, x0++, x1++, x2++) {
            const int32_t in0 = at >= 0 && at < width, in1 = at + 1 < width, in2 = at + 2 < width;
            float s = *y;

            if (in0) s += k00 * x0[-1];
            if (in1) s += k01 * x0[0];
            if (in2) s += k02 * x0[1];
            if (in0) s += k10 * x1[-1];
            if (in1) s += k11 * x1[0];
            if (in2) s += k12 * x1[1];
            if (in0) s += k20 * x2[-1];
            if (in1) s += k21 * x2[0];
            if (in2) s += k22 * x2[1];
            *y++ = s;
        }
        out += p->out_row;
        x0 += p->step_y * p->src_row - cols;
        x1 += p->step_y * p->src_row - cols;
        x2 += p->step_y * p->src_row - cols;
    }
}

POET_NOINLINE void lines3(const struct pass *p, const float *w, const float *src, float *out)
{
    float k[9], edge[9];

    for (int32_t i = 0; i < 3; i++, w += p->w_tap_y) {
        for (int32_t j = 0; j < 3; j++) k[3 * i + j] = w[j * p->w_tap_x];
    }
    for (int32_t row = 0, rows; row < p->rows; row += rows, out += rows * p->out_row) {
        const int32_t y = p->y0 + row * p->step_y;
        const float *x[3], *use = k;

        rows = 1;
        if (y <= -3 || y >= p->src_h) continue;
        for (int32_t i = 0; i < 3; i++) {
            const int32_t outside = y + i < 0 || y + i >= p->src_h;

            x[i] = src + ((outside ? 0 : (y + i) * p->src_row) + p->x0 + 1);
            edge[3 * i] = outside ? 0.0f : k[3 * i];
            edge[3 * i + 1] = outside ? 0.0f : k[3 * i + 1];
            edge[3 * i + 2] = outside ? 0.0f : k[3 * i + 2];
            if (outside) use = edge;
        }
        if (use == k)
            rows = least(p->rows - row, steps_to(p->src_h - 2 - y, p->step_y)); /* all like this one */
        rows3(p, use, x[0], x[1], x[2], rows, out);
    }
}

/* Output channels `o` and on, one at a time. */
POET_NOINLINE void lines(const struct pass *p, int32_t o, const float *w, const float *src, float *out)
{
    const int32_t threes = p->taps_y == 3 && p->taps_x == 3 && p->tap_y == 1 && p->tap_x == 1 &&
                           p->tap_col == 1 && p->step_x == 1 && p->out_col == 1 && p->x0 >= -1;

    for (; o < p->outs; o++) {
        for (int32_t at = 0; at < p->batch * p->reds; at++) {
            const int32_t n = at / p->reds, r = at % p->reds;
            const float *k = w + (o * p->w_out + r * p->w_red),
                        *plane = src + (n * p->src_batch + r * p->src_chan);
            float *to = out + (n * p->out_batch + o * p->out_chan);

            if (threes) {
                lines3(p, k, plane, to);
            } else {
                lines_any(p, k, plane, to);
            }
        }
    }
}

/* Does each of `taps` taps reach each of 4 positions from `at` on? */
static int32_t all_reach(int32_t at, int32_t step, int32_t taps, int32_t tap, int32_t width)
{
    return at >= 0 && at + 3 * step + (taps - 1) * tap < width;
}

/* The first `outs` output channels, by fours. Four positions side by side where there are, else below each
 * other, else the same one in four images, else one. */
POET_NOINLINE void tiles(const struct pass *p, int32_t outs, const float *w, const float *src, float *out)
{
    const int32_t near = p->step_x == 1 && p->out_col == 1,
                  easy = near && (p->w_tap_x == 1 || p->w_tap_x == -1);
    const int32_t across = near && p->w_out == 1 && outs % 4 == 0,
                  threes = easy && p->taps_x == 3 && p->tap_x == 1 && p->tap_col == 1;

    for (int32_t col = 0, cols; col < p->cols; col += cols) {
        const int32_t x = p->x0 + col * p->step_x;
        const int32_t wide =
            col + 4 <= p->cols && (threes || all_reach(x, p->step_x, p->taps_x, p->tap_col, p->src_w));
        struct reach in_x = { 0, p->taps_x };

        cols = wide ? 4 : 1;
        if (!wide) in_x = reach(p->taps_x, x, p->tap_col, p->src_w);
        for (int32_t row = 0, rows; row < p->rows && in_x.taps > 0; row += rows) {
            const int32_t y = p->y0 + row * p->step_y;
            const struct reach in_y = reach(p->taps_y, y, p->tap_y, p->src_h);
            const int32_t high =
                !wide && row + 4 <= p->rows && all_reach(y, p->step_y, p->taps_y, p->tap_y, p->src_h);

            rows = high ? 4 : 1;
            for (int32_t n = 0, images; n < p->batch && in_y.taps > 0; n += images) {
                void (*tile)(const struct pass *, const struct site *) = whole_any;
                struct site at = {
                    .w = w + (in_y.first * p->w_tap_y + in_x.first * p->w_tap_x),
                    .src = src + n * p->src_batch,
                    .out = out + (n * p->out_batch + row * p->out_row + col * p->out_col),
                    .reds = p->reds,
                    .taps_y = in_y.taps,
                    .taps_x = in_x.taps,
                    .x = (y + in_y.first * p->tap_y) * p->src_row + x + in_x.first * p->tap_x,
                    .col = x,
                    .out_pos = p->out_col,
                    .pos = p->step_x,
                    .w_row = p->w_tap_y,
                    .x_row = p->tap_y * p->src_row,
                    .w_red = p->w_red - (in_y.taps - 1) * p->w_tap_y,
                    .x_red = p->src_chan - (in_y.taps - 1) * p->tap_y * p->src_row,
                };

                if (in_y.taps == 1) { /* one loop less */
                    at.reds = 1;
                    at.taps_y = p->reds;
                    at.w_row = p->w_red;
                    at.x_row = p->src_chan;
                }
                images = 1;
                if (wide) {
                    if (threes) {
                        tile = p->w_tap_x == 1 ? three_forward : three_backward;
                    } else if (easy) {
                        tile = p->w_tap_x == 1 ? whole_forward : whole_backward;
                    } else if (across) {
                        tile = whole_across;
                    }
                } else if (high) {
                    at.pos = p->step_y * p->src_row;
                    at.out_pos = p->out_row;
                } else if (n + 4 <= p->batch) {
                    at.pos = p->src_batch;
                    at.out_pos = p->out_batch;
                    images = 4;
                } else {
                    tile = column;
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
}

POET_INLINE void correlate(const struct pass *p, const float *w, const float *src, float *out)
{
    const int32_t rest = p->outs % 4, outs = p->outs - (rest == 1 || (rest == 2 && p->reds == 1) ? rest : 0);

    if (outs > 0) tiles(p, outs, w, src, out);
    if (outs < p->outs) lines(p, outs, w, src, out);
}

/* A convolution without extent: its channels are the taps, and its rows one row where they follow each other.
 */
static void flatten(struct pass *p)
{
    if (p->taps_x != 1 || p->taps_y != 1 || p->x0 < 0 || p->x0 + (p->cols - 1) * p->step_x >= p->src_w)
        return;
    p->taps_x = p->reds;
    p->tap_x = p->src_chan;
    p->tap_col = 0;
    p->w_tap_x = p->w_red;
    p->reds = 1;
    if (p->out_row == p->cols * p->out_col && p->step_y * p->src_row == p->cols * p->step_x && p->x0 == 0 &&
        p->y0 >= 0 && p->y0 + (p->rows - 1) * p->step_y < p->src_h) {
        p->cols *= p->rows;
        p->rows = 1;
        p->src_w = (p->cols - 1) * p->step_x + 1;
    }
}

POET_NOINLINE void forward_pass(const struct poet_conv2d *s, struct pass *p)
{
    *p = (struct pass){
        .batch = s->batch,
        .outs = s->out_c / s->groups,
        .rows = s->out_h,
        .cols = s->out_w,
        .reds = s->in_c / s->groups,
        .taps_y = s->kernel_h,
        .taps_x = s->kernel_w,
        .out_batch = s->y_batch,
        .out_chan = s->y_chan,
        .out_row = s->y_row,
        .out_col = 1,
        .src_batch = s->x_batch,
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
    flatten(p);
}

void poet_conv2d_f32(const struct poet_conv2d *s, enum poet_start start, const float *x, const float *w,
                     const float *b, float *y)
{
    const int32_t in_c = s->in_c / s->groups;
    struct pass p;

    forward_pass(s, &p);
    for (int32_t n = 0; start != POET_CONTINUE && n < s->batch; n++) {
        for (int32_t o = 0; o < s->out_c; o++) {
            const float bias = start == POET_START_BIAS && b != NULL ? 0.0f + b[o] : 0.0f;

            fill(s->out_h, s->out_w, s->y_row, bias, y + (n * s->y_batch + o * s->y_chan));
        }
    }
    for (int32_t g = 0; g < s->groups; g++) {
        correlate(&p, w + g * p.outs * s->w_out, x + g * in_c * s->x_chan, y + g * p.outs * s->y_chan);
    }
}

/* The taps along one axis that reach the inputs phase, phase + stride, ...: tap t is kernel index `top - t
 * every` and reads output `first + q + t far` for the q-th of these inputs. */
struct phase {
    int32_t inputs, taps, top, every, first, far;
};

static struct phase phase_of(int32_t phase, int32_t in, int32_t kernel, int32_t stride, int32_t dilation,
                             int32_t pad)
{
    struct phase f = { .inputs = (in - phase + stride - 1) / stride, .top = kernel - 1, .every = 1 };

    while (f.top >= 0 && (phase + pad - f.top * dilation) % stride != 0) f.top--;
    while (f.every * dilation % stride != 0) f.every++;
    f.taps = f.top >= 0 ? f.top / f.every + 1 : 0;
    f.first = (phase + pad - f.top * dilation) / stride;
    f.far = f.every * dilation / stride;
    return f;
}

/* The inputs y, x with y % stride_h == phase / stride_w and x % stride_w == phase % stride_w. Returns the
 * index of their first tap in w, or -1 where no tap reaches them. */
POET_NOINLINE int32_t phase_pass(const struct poet_conv2d *s, int32_t phase, struct pass *p)
{
    const struct phase fy =
        phase_of(phase / s->stride_w, s->in_h, s->kernel_h, s->stride_h, s->dilation_h, s->pad_top);
    const struct phase fx =
        phase_of(phase % s->stride_w, s->in_w, s->kernel_w, s->stride_w, s->dilation_w, s->pad_left);

    *p = (struct pass){
        .batch = s->batch,
        .outs = s->in_c / s->groups,
        .rows = fy.inputs,
        .cols = fx.inputs,
        .reds = s->out_c / s->groups,
        .taps_y = fy.taps,
        .taps_x = fx.taps,
        .out_batch = s->x_batch,
        .out_chan = s->x_chan,
        .out_row = s->x_row * s->stride_h,
        .out_col = s->stride_w,
        .src_batch = s->y_batch,
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
    if (fy.taps == 0 || fx.taps == 0) return -1;
    flatten(p);
    return fy.top * s->kernel_w + fx.top;
}

void poet_conv2d_dx_f32(const struct poet_conv2d *s, enum poet_start start, const float *w, const float *dy,
                        float *dx)
{
    const int32_t out_c = s->out_c / s->groups;

    for (int32_t n = 0; start != POET_CONTINUE && n < s->batch; n++) {
        for (int32_t c = 0; c < s->in_c; c++)
            fill(s->in_h, s->in_w, s->x_row, 0.0f, dx + (n * s->x_batch + c * s->x_chan));
    }
    for (int32_t phase = 0; phase < s->stride_h * s->stride_w; phase++) {
        struct pass p;
        const int32_t first = phase_pass(s, phase, &p);
        float *to = dx + (phase / s->stride_w * s->x_row + phase % s->stride_w);

        for (int32_t g = 0; first >= 0 && g < s->groups; g++) {
            correlate(&p, w + (g * out_c * s->w_out + first), dy + g * out_c * s->y_chan,
                      to + g * p.outs * s->x_chan);
        }
    }
}

/* One tap of the weights, for one group: dw[o,c] += sum over n, p, q of a[n,o,p,q] * b[n,c,p,q]: dy and x, at
 * the output positions that the tap reaches; or x and dy, for dw transposed. */
struct dots {
    int32_t batch, rows, cols;
    int32_t a_batch, a_chan, a_row, a_col;
    int32_t b_batch, b_chan, b_row, b_col;
    int32_t w_a, w_b; /* strides of dw */
};

/* 4 x 4 channels. a_col and b_col are those of p, or what is known of them when compiling. */
POET_INLINE void dots16(const struct dots *p, const float *a, const float *b, float *dw, int32_t a_col,
                        int32_t b_col)
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
POET_INLINE void dots4(const struct dots *p, const float *a, const float *b, float *dw, int32_t a_col,
                       int32_t b_col)
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

/* One of each. */
POET_NOINLINE void dots1(const struct dots *p, const float *a, const float *b, float *dw)
{
    const int32_t a_col = p->a_col, b_col = p->b_col, unit = a_col == 1 && b_col == 1;
    float sum = *dw;

    for (int32_t n = 0; n < p->batch; n++) {
        const float *ar = a + n * p->a_batch, *br = b + n * p->b_batch;

        for (int32_t i = p->rows; i > 0; i--, ar += p->a_row, br += p->b_row) {
            const float *a0 = ar, *b0 = br;
            int32_t t = p->cols;

            for (; unit && t >= 4; t -= 4, a0 += 4, b0 += 4) {
                sum += a0[0] * b0[0];
                sum += a0[1] * b0[1];
                sum += a0[2] * b0[2];
                sum += a0[3] * b0[3];
            }
            for (; t > 0; t--, a0 += a_col, b0 += b_col) sum += *a0 * *b0;
        }
    }
    *dw = sum;
}

/* The three taps of one row of a 3-wide kernel, one pair of channels. first: index in x of the row under the
 * first output row; at: the column under the first tap. */
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

static void tap_gradient(const struct dots *p, int32_t as, int32_t bs, const float *a, const float *b,
                         float *dw)
{
    const struct dots q = { p->batch,   p->rows,   p->cols,  p->b_batch, p->b_chan, p->b_row, p->b_col,
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
            dots_row3(&p, dy + (o * s->y_chan + row * s->y_row), x + o / (s->out_c / s->groups) * s->x_chan,
                      (y0 + row * s->stride_h) * s->x_row, -s->pad_left, s->in_w,
                      dw + (o * s->w_out + 3 * i));
        }
    }
}

void poet_conv2d_dw_f32(const struct poet_conv2d *s, enum poet_start start, const float *x, const float *dy,
                        float *dw)
{
    const int32_t in_c = s->in_c / s->groups, out_c = s->out_c / s->groups, taps = s->kernel_h * s->kernel_w;

    for (int32_t o = 0; start != POET_CONTINUE && o < s->out_c; o++)
        fill(in_c, taps, s->w_in, 0.0f, dw + o * s->w_out);
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
            tap_gradient(&p, out_c, in_c, dy + (y_at + g * out_c * s->y_chan),
                         x + (x_at + g * in_c * s->x_chan), dw + (g * out_c * s->w_out + k));
        }
    }
}
