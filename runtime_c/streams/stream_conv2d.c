/* stream_conv2d.c: see stream_conv2d.h. Each output element is the sum that the kernels of conv2d.h make, cut
 * between reduction channels and continued: the same bits for every tile. */
#include "poet/streams/stream_conv2d.h"

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t most(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* n / d, rounded up; 0 for a negative n. */
static int32_t over(int32_t n, int32_t d)
{
    return n > 0 ? (n + d - 1) / d : 0;
}

struct poet_rows poet_conv2d_reach(const struct poet_conv2d *c, int32_t row, int32_t rows)
{
    const int32_t top = row * c->stride_h - c->pad_top;
    const int32_t end = top + (rows - 1) * c->stride_h + (c->kernel_h - 1) * c->dilation_h + 1;
    struct poet_rows r = { least(most(0, top), c->in_h), least(end, c->in_h) };

    if (r.end < r.first) r.end = r.first;
    return r;
}

/* The rows of y of which a tap reaches `rows` rows of x from `row` on. */
static struct poet_rows reached_from(const struct poet_conv2d *c, int32_t row, int32_t rows)
{
    const int32_t top = row + c->pad_top - (c->kernel_h - 1) * c->dilation_h;
    struct poet_rows r = { over(top, c->stride_h), (row + rows - 1 + c->pad_top) / c->stride_h + 1 };

    r.end = least(r.end, c->out_h);
    if (r.first > r.end) r.first = r.end;
    return r;
}

/* Weights of some outputs and reductions: the first one, and strides of w as conv2d.h has them. */
struct weights {
    const float *at;
    int32_t out, in;
};

/* Sums of some outputs. */
struct sums {
    float *at;
    int32_t batch, chan, row;
};

struct nest {
    struct poet_pager *pager;
    const struct poet_stream_conv2d *s;
    int is_dx;
    struct poet_images made, source;
    int32_t rows, outs, reds;       /* of what is made; its channels and those of the source */
    int32_t group_outs, group_reds; /* of one group */
    struct poet_stream w;
    const float *b;

    struct poet_buffer source_buffer;
    float *weights_buffer, *sums_buffer;
    int32_t has_out, has_outs, has_red, has_reds; /* the weights in their buffer */
};

static int read_weights(struct nest *t, int32_t out, int32_t outs, int32_t red, int32_t reds,
                        struct weights *w)
{
    const struct poet_conv2d *const c = &t->s->c;
    const int32_t taps = c->kernel_h * c->kernel_w, grouped = c->groups > 1;
    /* w[major][minor][taps]: with groups, all that a group has. */
    const int32_t major = t->is_dx ? red : out, majors = t->is_dx ? reds : outs;
    const int32_t one = t->is_dx ? out : red, some = t->is_dx ? outs : reds;
    const int32_t minor = grouped ? 0 : one, minors = grouped ? c->in_c / c->groups : some;
    const int32_t at = major * c->w_out + minor * c->w_in;

    if (t->w.from != NULL) {
        *w = (struct weights){ t->w.from + at, c->w_out, c->w_in };
        return POET_OK;
    }
    *w = (struct weights){ t->weights_buffer, minors * taps, taps };
    if (t->has_out == out && t->has_outs == outs && t->has_red == red && t->has_reds == reds) return POET_OK;
    t->has_out = out;
    t->has_outs = outs;
    t->has_red = red;
    t->has_reds = reds;
    const struct poet_box box = { 1, 0, majors, c->w_out, minors * taps };
    return poet_box_read(t->pager, t->w.sector, at, &box, t->weights_buffer);
}

/* Where the sums of a block are: in the arena, or packed in the buffer. */
static struct sums sums_of(const struct nest *t, const struct poet_block *b)
{
    const struct poet_images *const m = &t->made;
    const int32_t row = b->chans * m->width;

    if (m->home.at == NULL) return (struct sums){ t->sums_buffer, b->rows * row, m->width, row };
    return (struct sums){ m->home.at + (b->image * m->batch + b->row * m->row + b->chan * m->chan), m->batch,
                          m->chan, m->row };
}

static void start(const struct nest *t, const struct poet_block *b, const struct sums *sums)
{
    for (int32_t n = 0; n < b->images; n++) {
        for (int32_t row = 0; row < b->rows; row++) {
            for (int32_t i = 0; i < b->chans; i++) {
                float *const to = sums->at + (n * sums->batch + row * sums->row + i * sums->chan);
                const float first = t->b != NULL ? 0.0f + t->b[b->chan + i] : 0.0f;

                for (int32_t x = 0; x < t->made.width; x++) to[x] = first;
            }
        }
    }
}

static void multiply(const struct nest *t, const struct poet_block *made, const struct poet_block *source,
                     const struct poet_view *from, const struct weights *w, const struct sums *to)
{
    struct poet_conv2d c = t->s->c;

    c.batch = made->images;
    c.groups = c.groups > 1 ? made->chans / t->group_outs : 1;
    c.w_out = w->out;
    c.w_in = w->in;
    if (t->is_dx) {
        c.pad_top += made->row - source->row * c.stride_h;
        c.in_c = made->chans;
        c.in_h = made->rows;
        c.x_batch = to->batch;
        c.x_chan = to->chan;
        c.x_row = to->row;
        c.out_c = source->chans;
        c.out_h = source->rows;
        c.y_batch = from->batch;
        c.y_chan = from->chan;
        c.y_row = from->row;
        poet_conv2d_dx_f32(&c, POET_CONTINUE, w->at, from->at, to->at);
    } else {
        c.pad_top += source->row - made->row * c.stride_h;
        c.in_c = source->chans;
        c.in_h = source->rows;
        c.x_batch = from->batch;
        c.x_chan = from->chan;
        c.x_row = from->row;
        c.out_c = made->chans;
        c.out_h = made->rows;
        c.y_batch = to->batch;
        c.y_chan = to->chan;
        c.y_row = to->row;
        poet_conv2d_f32(&c, POET_CONTINUE, from->at, w->at, NULL, to->at);
    }
}

/* Make one block of one tile. */
static int make(struct nest *t, const struct poet_block *made)
{
    const struct poet_stream_conv2d *const s = t->s;
    const int32_t grouped = s->c.groups > 1, out_end = made->chan + made->chans;
    const int32_t first = grouped ? made->chan / t->group_outs * t->group_reds : 0;
    const int32_t end = grouped ? out_end / t->group_outs * t->group_reds : t->reds;
    const int32_t by_part = end - first <= s->reds && !s->keep_sums;
    const struct poet_rows r = t->is_dx ? reached_from(&s->c, made->row, made->rows)
                                        : poet_conv2d_reach(&s->c, made->row, made->rows);
    const struct sums all = sums_of(t, made);

    if (!by_part) start(t, made, &all);
    for (int32_t red = first; red < end; red += s->reds) {
        const int32_t reds = least(s->reds, end - red);
        struct poet_block source = { made->image, made->images, r.first, r.end - r.first, 0, 0 };
        struct poet_view from;

        source.chan = red - (red - first) % s->held;
        source.chans = least(s->held, end - source.chan);
        POET_TRY(poet_block_read(t->pager, &t->source, &source, &t->source_buffer, &from));
        from.at += (red - source.chan) * from.chan;
        source.chans = reds;
        for (int32_t out = made->chan; out < out_end; out += s->part) {
            struct poet_block part = *made;
            struct sums to = all;
            struct weights w;

            part.chan = out;
            part.chans = least(s->part, out_end - out);
            if (s->keep_weights) {
                POET_TRY(read_weights(t, out, part.chans, first, end - first, &w));
                w.at += (red - first) * (t->is_dx ? w.out : w.in);
            } else {
                POET_TRY(read_weights(t, out, part.chans, red, reds, &w));
            }
            if (by_part) {
                to = sums_of(t, &part);
                start(t, &part, &to);
            } else {
                to.at += (out - made->chan) * to.chan;
            }
            multiply(t, &part, &source, &from, &w, &to);
            if (by_part && t->made.home.at == NULL) {
                POET_TRY(poet_block_write(t->pager, &t->made, &part, to.at));
            }
        }
    }
    if (by_part || t->made.home.at != NULL) return POET_OK;
    return poet_block_write(t->pager, &t->made, made, all.at);
}

static int run(struct nest *t)
{
    const struct poet_stream_conv2d *const s = t->s;
    const int32_t blocks = over(t->outs, s->outs), bands = over(t->rows, s->rows);
    const int32_t tiles = over(s->c.batch, s->images) * bands;

    if (t->made.home.at == NULL) {
        const uint32_t bytes = 4u * (uint32_t)s->c.batch * (uint32_t)t->made.batch;
        POET_TRY(poet_span_begin(t->pager, t->made.home.sector, bytes));
    }
    for (int32_t i = 0; i < blocks * tiles; i++) {
        const int32_t block = s->tiles_first ? i % blocks : i / tiles;
        const int32_t tile = s->tiles_first ? i / blocks : i % tiles;
        struct poet_block made = { tile / bands * s->images, s->images, tile % bands * s->rows, s->rows,
                                   block * s->outs,          s->outs };

        made.images = least(made.images, s->c.batch - made.image);
        made.rows = least(made.rows, t->rows - made.row);
        made.chans = least(made.chans, t->outs - made.chan);
        POET_TRY(make(t, &made));
    }
    return POET_OK;
}

int poet_stream_conv2d_f32(struct poet_pager *pager, const struct poet_stream_conv2d *s, struct poet_stream x,
                           struct poet_stream w, const float *b, struct poet_stream y, void *workspace)
{
    const struct poet_conv2d *const c = &s->c;
    float *const ws = workspace;
    struct nest t = {
        .pager = pager,
        .s = s,
        .made = { y, c->y_batch, c->y_chan, c->y_row, c->out_w },
        .source = { x, c->x_batch, c->x_chan, c->x_row, c->in_w },
        .rows = c->out_h,
        .outs = c->out_c,
        .reds = c->in_c,
        .group_outs = c->out_c / c->groups,
        .group_reds = c->in_c / c->groups,
        .w = w,
        .b = b,
        .source_buffer = { .at = ws },
        .weights_buffer = ws + s->weights_at,
        .sums_buffer = ws + s->sums_at,
    };

    return run(&t);
}

int poet_stream_conv2d_dx_f32(struct poet_pager *pager, const struct poet_stream_conv2d *s,
                              struct poet_stream w, struct poet_stream dy, const float *b,
                              struct poet_stream dx, void *workspace)
{
    const struct poet_conv2d *const c = &s->c;
    float *const ws = workspace;
    struct nest t = {
        .pager = pager,
        .s = s,
        .is_dx = 1,
        .made = { dx, c->x_batch, c->x_chan, c->x_row, c->in_w },
        .source = { dy, c->y_batch, c->y_chan, c->y_row, c->out_w },
        .rows = c->in_h,
        .outs = c->in_c,
        .reds = c->out_c,
        .group_outs = c->in_c / c->groups,
        .group_reds = c->out_c / c->groups,
        .w = w,
        .b = b,
        .source_buffer = { .at = ws },
        .weights_buffer = ws + s->weights_at,
        .sums_buffer = ws + s->sums_at,
    };

    return run(&t);
}
