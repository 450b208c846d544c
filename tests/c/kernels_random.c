/* kernels_random.c: the reducing kernels against the definition, bit for bit, on random cases.
 *
 * Each case draws a shape, strides with gaps, data with zeros and negative zeros, and a start; the naive
 * loops below say what the result is. Then the same case is cut into tiles and consecutive chunks. Prints the
 * cases done and a digest of all results; equal digests on two cores mean equal bits. Exits with 1 at the
 * first difference. */
#include "poet/kernels/channel_sum.h"
#include "poet/kernels/conv2d.h"
#include "poet/kernels/gemm.h"
#include "poet/platform.h"

#include <string.h>

#ifndef CASES
#define CASES 1000
#endif

static uint32_t random_state = 2463534242u;

static uint32_t random_u32(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

/* low .. high, both included. */
static int32_t draw(int32_t low, int32_t high)
{
    return low + (int32_t)(random_u32() % (uint32_t)(high - low + 1));
}

static int all_zero; /* this case's data are zeros of both signs */

static float draw_float(void)
{
    const int32_t kind = draw(0, 7), exponent = draw(-6, 6);
    float v = (float)draw(-8388607, 8388607) / 8388608.0f;

    if (all_zero || kind == 0) return random_u32() & 1u ? -0.0f : 0.0f;
#ifdef WHOLE_NUMBERS
    return (float)draw(-9, 9); /* sums are exact, so their order does not matter */
#endif
    for (int32_t e = exponent; e > 0; e--) v *= 2.0f;
    for (int32_t e = exponent; e < 0; e++) v *= 0.5f;
    return v;
}

static void print(const char *text)
{
    while (*text != '\0') poet_platform_putc(*text++);
}

static void print_u32(uint32_t value)
{
    if (value > 9u) print_u32(value / 10u);
    poet_platform_putc((char)('0' + value % 10u));
}

static void say(const char *text, uint32_t number)
{
    print(text);
    print_u32(number);
    print("\n");
}

/* Tensors of exactly their size: on the host the address sanitizer watches their ends. */
struct tensor {
    float *v;
    int32_t size;
};

#if defined(__arm__)
static float pool[400000];
static int32_t pool_used;

static struct tensor tensor(int32_t size)
{
    const struct tensor t = { pool + pool_used, size };

    pool_used += size;
    if (pool_used > (int32_t)(sizeof pool / sizeof *pool)) {
        print("pool is full\n");
        poet_platform_exit(2);
    }
    return t;
}

static void release(struct tensor t)
{
    pool_used -= t.size;
}
#else
#include <stdlib.h>

static struct tensor tensor(int32_t size)
{
    const struct tensor t = { malloc((size_t)size * sizeof(float)), size };

    return t;
}

static void release(struct tensor t)
{
    free(t.v);
}
#endif

static struct tensor drawn(int32_t size)
{
    const struct tensor t = tensor(size);

    for (int32_t i = 0; i < size; i++) t.v[i] = draw_float();
    return t;
}

/* What CONTINUE goes on from: a sum, so never -0. */
static struct tensor drawn_sums(int32_t size)
{
    const struct tensor t = drawn(size);

    for (int32_t i = 0; i < size; i++) t.v[i] += 0.0f;
    return t;
}

static struct tensor copy(struct tensor from)
{
    const struct tensor t = tensor(from.size);

    memcpy(t.v, from.v, (size_t)from.size * sizeof(float));
    return t;
}

static uint32_t digest = 2166136261u;

static void expect(const char *what, uint32_t number, struct tensor want, struct tensor got)
{
    for (int32_t i = 0; i < want.size; i++) {
        uint32_t a, b;

        memcpy(&a, want.v + i, 4);
        memcpy(&b, got.v + i, 4);
        digest = (digest ^ b) * 16777619u;
#ifndef DIGEST_ONLY
        if (a != b) {
            say(what, number);
            say("differs at element ", (uint32_t)i);
            say("expected bits ", a);
            say("found bits ", b);
            poet_platform_exit(1);
        }
#endif
    }
}

/* ---- the definition ---- */

static float begun(enum poet_start start, const float *bias, float out)
{
    if (start == POET_CONTINUE) return out;
    return start == POET_START_BIAS && bias != NULL ? 0.0f + *bias : 0.0f;
}

#define EACH(i, n) for (int32_t i = 0; i < (n); i++)

static void naive_conv2d(const struct poet_conv2d *s, enum poet_start start, const float *x, const float *w,
                         const float *b, float *y)
{
    const int32_t in_c = s->in_c / s->groups, out_c = s->out_c / s->groups;

    EACH (n, s->batch)
        EACH (o, s->out_c)
            EACH (p, s->out_h)
                EACH (q, s->out_w) {
                    float *out = y + n * s->y_batch + o * s->y_chan + p * s->y_row + q;
                    float sum = begun(start, b != NULL ? b + o : NULL, *out);

                    EACH (c, in_c)
                        EACH (i, s->kernel_h)
                            EACH (j, s->kernel_w) {
                                const int32_t row = p * s->stride_h + i * s->dilation_h - s->pad_top;
                                const int32_t col = q * s->stride_w + j * s->dilation_w - s->pad_left;

                                if (row >= 0 && row < s->in_h && col >= 0 && col < s->in_w) {
                                    sum += w[o * s->w_out + c * s->w_in + i * s->kernel_w + j] *
                                           x[n * s->x_batch + (o / out_c * in_c + c) * s->x_chan +
                                             row * s->x_row + col];
                                }
                            }
                    *out = sum;
                }
}

static void naive_conv2d_dx(const struct poet_conv2d *s, enum poet_start start, const float *w,
                            const float *dy, float *dx)
{
    const int32_t in_c = s->in_c / s->groups, out_c = s->out_c / s->groups;

    EACH (n, s->batch)
        EACH (c, s->in_c)
            EACH (row, s->in_h)
                EACH (col, s->in_w) {
                    float *out = dx + n * s->x_batch + c * s->x_chan + row * s->x_row + col;
                    float sum = begun(start, NULL, *out);

                    EACH (o, out_c)
                        EACH (p, s->out_h)
                            EACH (q, s->out_w) {
                                EACH (i, s->kernel_h)
                                    EACH (j, s->kernel_w) {
                                        if (p * s->stride_h + i * s->dilation_h - s->pad_top != row) continue;
                                        if (q * s->stride_w + j * s->dilation_w - s->pad_left != col)
                                            continue;
                                        sum += w[(c / in_c * out_c + o) * s->w_out + c % in_c * s->w_in +
                                                 i * s->kernel_w + j] *
                                               dy[n * s->y_batch + (c / in_c * out_c + o) * s->y_chan +
                                                  p * s->y_row + q];
                                    }
                            }
                    *out = sum;
                }
}

static void naive_conv2d_dw(const struct poet_conv2d *s, enum poet_start start, const float *x,
                            const float *dy, float *dw)
{
    const int32_t in_c = s->in_c / s->groups, out_c = s->out_c / s->groups;

    EACH (o, s->out_c)
        EACH (c, in_c)
            EACH (i, s->kernel_h)
                EACH (j, s->kernel_w) {
                    float *out = dw + o * s->w_out + c * s->w_in + i * s->kernel_w + j;
                    float sum = begun(start, NULL, *out);

                    EACH (n, s->batch)
                        EACH (p, s->out_h)
                            EACH (q, s->out_w) {
                                const int32_t row = p * s->stride_h + i * s->dilation_h - s->pad_top;
                                const int32_t col = q * s->stride_w + j * s->dilation_w - s->pad_left;

                                if (row >= 0 && row < s->in_h && col >= 0 && col < s->in_w) {
                                    sum += dy[n * s->y_batch + o * s->y_chan + p * s->y_row + q] *
                                           x[n * s->x_batch + (o / out_c * in_c + c) * s->x_chan +
                                             row * s->x_row + col];
                                }
                            }
                    *out = sum;
                }
}

/* ---- random convolutions, whole ---- */

static struct poet_conv2d drawn_conv2d(void)
{
    static const int32_t often[] = { 1, 2, 3, 4, 5, 8, 10, 13 };
    struct poet_conv2d s;
    const int32_t kind = draw(0, 5), gap = draw(0, 2);

    for (;;) {
        s.batch = draw(1, 3);
        s.groups = kind == 0 ? draw(1, 6) : kind == 1 ? 2 : 1;
        s.in_c = s.groups * (kind == 0 ? 1 : often[draw(0, 7)]);
        s.out_c = s.groups * (kind == 0 ? draw(1, 3) : often[draw(0, 7)]);
        s.in_h = kind == 2 ? 1 : draw(1, 9);
        s.in_w = kind == 2 ? draw(1, 40) : draw(1, 18);
        s.kernel_h = kind == 2 || kind == 3 ? 1 : draw(1, 4);
        s.kernel_w = kind == 2 ? draw(1, 11) : kind == 3 ? 1 : draw(1, 4);
        s.stride_h = draw(0, 1) ? 1 : draw(1, 4);
        s.stride_w = draw(0, 1) ? 1 : draw(1, 4);
        s.dilation_h = draw(0, 1) ? 1 : draw(1, 3);
        s.dilation_w = draw(0, 1) ? 1 : draw(1, 3);
        s.pad_top = kind == 3 && draw(0, 1) ? 0 : draw(0, s.kernel_h * s.dilation_h);
        s.pad_left = kind == 3 && draw(0, 1) ? 0 : draw(0, s.kernel_w * s.dilation_w);
        s.out_h =
            (s.in_h + s.pad_top + draw(0, s.kernel_h) - (s.kernel_h - 1) * s.dilation_h - 1) / s.stride_h + 1;
        s.out_w =
            (s.in_w + s.pad_left + draw(0, s.kernel_w) - (s.kernel_w - 1) * s.dilation_w - 1) / s.stride_w +
            1;
        if (s.out_h < 1 || s.out_w < 1 || s.out_h * s.out_w > 160) continue;
        s.x_row = s.in_w + (gap == 1 ? draw(0, 3) : 0);
        s.x_chan = s.x_row * s.in_h + (gap == 1 ? draw(0, 5) : 0);
        s.x_batch = s.x_chan * s.in_c + (gap == 1 ? draw(0, 5) : 0);
        s.y_row = s.out_w + (gap == 1 ? draw(0, 3) : 0);
        s.y_chan = s.y_row * s.out_h + (gap == 1 ? draw(0, 5) : 0);
        s.y_batch = s.y_chan * s.out_c + (gap == 1 ? draw(0, 5) : 0);
        if (gap == 2) { /* row layout: [n][row][channel][x] */
            s.x_chan = s.in_w;
            s.x_row = s.in_w * s.in_c;
            s.y_chan = s.out_w;
            s.y_row = s.out_w * s.out_c;
        }
        s.w_in = s.kernel_h * s.kernel_w + (gap == 1 ? draw(0, 3) : 0);
        s.w_out = s.w_in * (s.in_c / s.groups) + (gap == 1 ? draw(0, 3) : 0);
        return s;
    }
}

/* Floats from the first to one past the last, with the gaps between. */
static int32_t extent_x(const struct poet_conv2d *s)
{
    return (s->batch - 1) * s->x_batch + (s->in_c - 1) * s->x_chan + (s->in_h - 1) * s->x_row + s->in_w;
}

static int32_t extent_y(const struct poet_conv2d *s)
{
    return (s->batch - 1) * s->y_batch + (s->out_c - 1) * s->y_chan + (s->out_h - 1) * s->y_row + s->out_w;
}

static int32_t extent_w(const struct poet_conv2d *s)
{
    return (s->out_c - 1) * s->w_out + (s->in_c / s->groups - 1) * s->w_in + s->kernel_h * s->kernel_w;
}

/* Cuts 0 .. n into pieces: *at moves on by what is returned. */
static int32_t cut(int32_t at, int32_t n)
{
    return draw(1, n - at);
}

static void tiled_conv2d(const struct poet_conv2d *s, enum poet_start start, const float *x, const float *w,
                         const float *b, float *y)
{
    for (int32_t o = 0, outs; o < s->out_c; o += outs) {
        outs = cut(o, s->out_c);
        for (int32_t p = 0, rows; p < s->out_h; p += rows) {
            rows = cut(p, s->out_h);
            for (int32_t q = 0, cols; q < s->out_w; q += cols) {
                cols = cut(q, s->out_w);
                for (int32_t c = 0, ins; c < s->in_c; c += ins) {
                    struct poet_conv2d t = *s;

                    ins = cut(c, s->in_c);
                    t.out_c = outs, t.in_c = ins, t.out_h = rows, t.out_w = cols;
                    t.pad_top -= p * s->stride_h, t.pad_left -= q * s->stride_w;
                    poet_conv2d_f32(&t, c == 0 ? start : POET_CONTINUE, x + c * s->x_chan,
                                    w + o * s->w_out + c * s->w_in, b != NULL ? b + o : NULL,
                                    y + o * s->y_chan + p * s->y_row + q);
                }
            }
        }
    }
}

static void tiled_conv2d_dx(const struct poet_conv2d *s, enum poet_start start, const float *w,
                            const float *dy, float *dx)
{
    for (int32_t c = 0, ins; c < s->in_c; c += ins) {
        ins = cut(c, s->in_c);
        for (int32_t p = 0, rows; p < s->in_h; p += rows) {
            rows = cut(p, s->in_h);
            for (int32_t q = 0, cols; q < s->in_w; q += cols) {
                cols = cut(q, s->in_w);
                for (int32_t o = 0, outs; o < s->out_c; o += outs) {
                    struct poet_conv2d t = *s;

                    outs = cut(o, s->out_c);
                    t.out_c = outs, t.in_c = ins, t.in_h = rows, t.in_w = cols;
                    t.pad_top += p, t.pad_left += q;
                    poet_conv2d_dx_f32(&t, o == 0 ? start : POET_CONTINUE, w + o * s->w_out + c * s->w_in,
                                       dy + o * s->y_chan, dx + c * s->x_chan + p * s->x_row + q);
                }
            }
        }
    }
}

static void tiled_conv2d_dw(const struct poet_conv2d *s, enum poet_start start, const float *x,
                            const float *dy, float *dw)
{
    for (int32_t o = 0, outs; o < s->out_c; o += outs) {
        outs = cut(o, s->out_c);
        for (int32_t c = 0, ins; c < s->in_c; c += ins) {
            ins = cut(c, s->in_c);
            for (int32_t n = 0; n < s->batch; n++) {
                for (int32_t p = 0, rows; p < s->out_h; p += rows) {
                    struct poet_conv2d t = *s;

                    rows = cut(p, s->out_h);
                    t.batch = 1, t.out_c = outs, t.in_c = ins, t.out_h = rows;
                    t.pad_top -= p * s->stride_h;
                    poet_conv2d_dw_f32(
                        &t, n == 0 && p == 0 ? start : POET_CONTINUE, x + n * s->x_batch + c * s->x_chan,
                        dy + n * s->y_batch + o * s->y_chan + p * s->y_row, dw + o * s->w_out + c * s->w_in);
                }
            }
        }
    }
}

static void try_conv2d(uint32_t number)
{
    const struct poet_conv2d s = drawn_conv2d();
    const struct tensor x = drawn(extent_x(&s)), w = drawn(extent_w(&s)), dy = drawn(extent_y(&s)),
                        b = drawn(s.out_c);
    const float *bias = draw(0, 3) != 0 ? b.v : NULL;
    const enum poet_start start = (enum poet_start)draw(0, 2);
    const enum poet_start start_gradient = draw(0, 1) ? POET_START_ZERO : POET_CONTINUE;
    const struct tensor want_y = drawn_sums(dy.size), got_y = copy(want_y), tiled_y = copy(want_y);
    const struct tensor want_dx = drawn_sums(x.size), got_dx = copy(want_dx), tiled_dx = copy(want_dx);
    const struct tensor want_dw = drawn_sums(w.size), got_dw = copy(want_dw), tiled_dw = copy(want_dw);

    naive_conv2d(&s, start, x.v, w.v, bias, want_y.v);
    poet_conv2d_f32(&s, start, x.v, w.v, bias, got_y.v);
    expect("conv2d, case ", number, want_y, got_y);
    naive_conv2d_dx(&s, start_gradient, w.v, dy.v, want_dx.v);
    poet_conv2d_dx_f32(&s, start_gradient, w.v, dy.v, got_dx.v);
    expect("conv2d_dx, case ", number, want_dx, got_dx);
    naive_conv2d_dw(&s, start_gradient, x.v, dy.v, want_dw.v);
    poet_conv2d_dw_f32(&s, start_gradient, x.v, dy.v, got_dw.v);
    expect("conv2d_dw, case ", number, want_dw, got_dw);
    if (s.groups == 1) {
        tiled_conv2d(&s, start, x.v, w.v, bias, tiled_y.v);
        expect("conv2d in tiles, case ", number, want_y, tiled_y);
        tiled_conv2d_dx(&s, start_gradient, w.v, dy.v, tiled_dx.v);
        expect("conv2d_dx in tiles, case ", number, want_dx, tiled_dx);
        tiled_conv2d_dw(&s, start_gradient, x.v, dy.v, tiled_dw.v);
        expect("conv2d_dw in tiles, case ", number, want_dw, tiled_dw);
    }
    release(tiled_dw), release(got_dw), release(want_dw);
    release(tiled_dx), release(got_dx), release(want_dx);
    release(tiled_y), release(got_y), release(want_y);
    release(b), release(dy), release(w), release(x);
}

/* ---- products ---- */

static void naive_gemm(const struct poet_gemm *s, enum poet_start start, const float *x, const float *w,
                       const float *b, float *y)
{
    EACH (i, s->m)
        EACH (j, s->n) {
            float *out = y + i * s->y_row + j * s->y_col;
            float sum = begun(start, b != NULL ? b + i * s->b_row + j * s->b_col : NULL, *out);

            EACH (k, s->k) sum += x[i * s->x_row + k * s->x_col] * w[k * s->w_row + j * s->w_col];
            *out = sum;
        }
}

static void tiled_gemm(const struct poet_gemm *s, enum poet_start start, const float *x, const float *w,
                       const float *b, float *y)
{
    for (int32_t i = 0, m; i < s->m; i += m) {
        m = cut(i, s->m);
        for (int32_t j = 0, n; j < s->n; j += n) {
            n = cut(j, s->n);
            for (int32_t k = 0, ks; k < s->k; k += ks) {
                struct poet_gemm t = *s;

                ks = cut(k, s->k);
                t.m = m, t.n = n, t.k = ks;
                poet_gemm_f32(&t, k == 0 ? start : POET_CONTINUE, x + i * s->x_row + k * s->x_col,
                              w + k * s->w_row + j * s->w_col,
                              b != NULL ? b + i * s->b_row + j * s->b_col : NULL,
                              y + i * s->y_row + j * s->y_col);
            }
        }
    }
}

/* A dense matrix with gaps between its rows, or its transpose. */
static void lay_out(int32_t rows, int32_t cols, int32_t transposed, int32_t gap, int32_t *row, int32_t *col)
{
    *row = transposed ? 1 : cols + gap;
    *col = transposed ? rows + gap : 1;
}

static void try_gemm(uint32_t number)
{
    const int32_t gap = draw(0, 3) == 0 ? draw(1, 3) : 0, bias_kind = draw(0, 4);
    struct poet_gemm s = { .m = draw(1, 13), .n = draw(1, 13), .k = draw(1, 20) };
    struct tensor x, w, b, want, got, tiled, scaled;
    enum poet_start start = (enum poet_start)draw(0, 2);
    const float *bias;

    lay_out(s.m, s.k, draw(0, 1), gap, &s.x_row, &s.x_col);
    lay_out(s.k, s.n, draw(0, 1), gap, &s.w_row, &s.w_col);
    lay_out(s.m, s.n, draw(0, 3) == 0, gap, &s.y_row, &s.y_col);
    s.b_row = bias_kind == 1 ? 1 : bias_kind == 2 ? s.n : 0;
    s.b_col = bias_kind == 0 || bias_kind == 2 ? 1 : 0;
    x = drawn((s.m - 1) * s.x_row + (s.k - 1) * s.x_col + 1);
    w = drawn((s.k - 1) * s.w_row + (s.n - 1) * s.w_col + 1);
    b = drawn((s.m - 1) * s.b_row + (s.n - 1) * s.b_col + 1);
    bias = bias_kind < 4 ? b.v : NULL;
    want = drawn_sums((s.m - 1) * s.y_row + (s.n - 1) * s.y_col + 1);
    got = copy(want);
    tiled = copy(want);
    naive_gemm(&s, start, x.v, w.v, bias, want.v);
    poet_gemm_f32(&s, start, x.v, w.v, bias, got.v);
    expect("gemm, case ", number, want, got);
    tiled_gemm(&s, start, x.v, w.v, bias, tiled.v);
    expect("gemm in tiles, case ", number, want, tiled);
    scaled = copy(want);
    EACH (i, s.m)
        EACH (j, s.n) {
            float *out = scaled.v + i * s.y_row + j * s.y_col;
            const float product = 0.75f * *out;

            *out = product;
            if (bias != NULL) {
                const float part = -1.25f * bias[i * s.b_row + j * s.b_col];

                *out = product + part;
            }
        }
    poet_gemm_scale_f32(&s, 0.75f, -1.25f, bias, got.v);
    expect("gemm_scale, case ", number, scaled, got);
    EACH (i, scaled.size) scaled.v[i] = 0.3f * got.v[i];
    poet_scale_f32((size_t)got.size, 0.3f, got.v, got.v);
    expect("scale, case ", number, scaled, got);
    release(scaled), release(tiled), release(got), release(want), release(b), release(w), release(x);
}

static void try_channel_sum(uint32_t number)
{
    const int32_t batch = draw(1, 4), channels = draw(1, 9), size = draw(1, 30);
    const struct tensor dy = drawn(batch * channels * size), want = drawn_sums(channels), got = copy(want),
                        cut_up = copy(want);
    const enum poet_start start = draw(0, 1) ? POET_START_ZERO : POET_CONTINUE;

    EACH (c, channels) {
        float sum = begun(start, NULL, want.v[c]);

        EACH (n, batch)
            EACH (i, size) sum += dy.v[(n * channels + c) * size + i];
        want.v[c] = sum;
    }
    poet_channel_sum_f32(batch, channels, size, start, dy.v, got.v);
    expect("channel_sum, case ", number, want, got);
    EACH (n, batch) {
        poet_channel_sum_f32(1, channels, size, n == 0 ? start : POET_CONTINUE, dy.v + n * channels * size,
                             cut_up.v);
    }
    expect("channel_sum by images, case ", number, want, cut_up);
    release(cut_up), release(got), release(want), release(dy);
}

int main(void)
{
    for (uint32_t i = 0; i < CASES; i++) {
        all_zero = i % 4 == 3;
        try_conv2d(i);
        try_gemm(i);
        try_channel_sum(i);
    }
    say("cases ", CASES);
    say("digest ", digest);
    return 0;
}
