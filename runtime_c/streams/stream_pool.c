/* stream_pool.c: see stream_pool.h. Each window, and each sum over windows, is made in one tile. */
#include "poet/streams/stream_pool.h"

struct nest {
    struct poet_pager *pager;
    const struct poet_pool *s;
    const struct poet_bands *cut;
    int is_dx;
    struct poet_images source, made;
    struct poet_buffer buffer;
    float *sums;            /* a tile of what is made, unless that is in the arena */
    int32_t rows;           /* of what is made */
    struct poet_block tile; /* of it, at hand; images 0: all are done */
    struct poet_block needs;
};

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t most(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static struct nest nest(struct poet_pager *pager, const struct poet_pool *s, const struct poet_bands *bands,
                        int is_dx, struct poet_stream x, struct poet_stream y, void *workspace)
{
    const struct poet_images of_x = { x, s->channels * s->in_h * s->in_w, s->x_chan, s->x_row, s->in_w };
    const struct poet_images of_y = { y, s->channels * s->out_h * s->out_w, s->y_chan, s->y_row, s->out_w };
    float *const at = workspace;
    struct nest t = { .pager = pager, .s = s, .cut = bands, .is_dx = is_dx };

    t.source = is_dx ? of_y : of_x;
    t.made = is_dx ? of_x : of_y;
    t.rows = is_dx ? s->in_h : s->out_h;
    t.buffer.at = at;
    if (t.made.home.at == NULL) t.sums = at + bands->made_at;
    return t;
}

/* What a tile needs: rows of x under the windows of rows of y, or rows of dy whose windows reach rows of
 * dx. */
static struct poet_block source_of(const struct nest *t)
{
    const struct poet_pool *const s = t->s;
    const int32_t extent = (s->kernel_h - 1) * s->dilation_h + 1, last = t->tile.row + t->tile.rows - 1;
    struct poet_block b = t->tile;
    int32_t end;
    if (t->is_dx) {
        b.row = most(b.row + s->pad_h - extent + s->stride_h, 0) / s->stride_h;
        end = least((last + s->pad_h) / s->stride_h + 1, s->out_h);
    } else {
        b.row = most(b.row * s->stride_h - s->pad_h, 0);
        end = least(last * s->stride_h - s->pad_h + extent, s->in_h);
    }
    b.rows = most(end - b.row, 0);
    if (b.rows == 0) b.row = 0;
    return b;
}

static void move_to(struct nest *t, int32_t image, int32_t chan, int32_t row)
{
    const struct poet_block tile = { .image = image, .images = image < t->s->batch,
                                     .row = row,     .rows = least(t->cut->rows, t->rows - row),
                                     .chan = chan,   .chans = least(t->cut->chans, t->s->channels - chan) };
    t->tile = tile;
    t->needs = source_of(t);
}

static int begin(struct nest *t)
{
    move_to(t, 0, 0, 0);
    if (t->made.home.at != NULL) return POET_OK;
    return poet_span_begin(t->pager, t->made.home.sector, 4u * (uint32_t)(t->s->batch * t->made.batch));
}

/* The source's rows, where to make the tile, and the pooling that takes the one to the other. */
static int fetch(struct nest *t, const float **from, float **to, struct poet_pool *band)
{
    const struct poet_images *const m = &t->made;
    const struct poet_block *const b = &t->tile, *const x = t->is_dx ? b : &t->needs;
    const struct poet_block *const y = t->is_dx ? &t->needs : b;
    struct poet_view source = { NULL, 0, 0, 0 };
    struct poet_view made = { NULL, 0, m->width, b->chans * m->width };

    *to = t->sums;
    if (m->home.at != NULL) {
        *to = m->home.at + b->image * m->batch + b->row * m->row + b->chan * m->chan;
        made.chan = m->chan;
        made.row = m->row;
    }
    if (t->needs.rows > 0) {
        POET_TRY(poet_block_read(t->pager, &t->source, &t->needs, &t->buffer, &source));
    }
    *from = source.at != NULL ? source.at : *to; /* no window reaches the tile: nothing is read there */

    *band = *t->s;
    band->batch = 1;
    band->channels = b->chans;
    band->x_chan = t->is_dx ? made.chan : source.chan;
    band->x_row = t->is_dx ? made.row : source.row;
    band->y_chan = t->is_dx ? source.chan : made.chan;
    band->y_row = t->is_dx ? source.row : made.row;
    band->in_h = x->rows;
    band->out_h = y->rows;
    band->pad_h += x->row - y->row * t->s->stride_h; /* row 0 of the band is x->row, its window 0 is y->row */
    return POET_OK;
}

/* Where the index of the windows at hand begins. */
static int32_t index_at(const struct nest *t)
{
    const struct poet_block *const y = t->is_dx ? &t->needs : &t->tile;
    return y->image * t->s->channels * t->s->out_h * t->s->out_w + y->row * t->s->index_row +
           y->chan * t->s->index_chan;
}

/* Write the tile, and go on to the next. */
static int put(struct nest *t)
{
    const struct poet_block *const b = &t->tile;
    if (t->made.home.at == NULL) POET_TRY(poet_block_write(t->pager, &t->made, b, t->sums));
    if (b->row + b->rows < t->rows) {
        move_to(t, b->image, b->chan, b->row + b->rows);
    } else if (b->chan + b->chans < t->s->channels) {
        move_to(t, b->image, b->chan + b->chans, 0);
    } else {
        move_to(t, b->image + 1, 0, 0);
    }
    return POET_OK;
}

int poet_stream_maxpool_f32(struct poet_pager *pager, const struct poet_pool *s,
                            const struct poet_bands *bands, struct poet_stream x, struct poet_stream y,
                            uint8_t *index, void *workspace)
{
    struct nest t = nest(pager, s, bands, 0, x, y, workspace);
    POET_TRY(begin(&t));
    while (t.tile.images > 0) {
        struct poet_pool band;
        const float *from;
        float *to;
        POET_TRY(fetch(&t, &from, &to, &band));
        poet_maxpool_f32(&band, from, to, index != NULL ? index + index_at(&t) : NULL);
        POET_TRY(put(&t));
    }
    return POET_OK;
}

int poet_stream_maxpool_dx_f32(struct poet_pager *pager, const struct poet_pool *s,
                               const struct poet_bands *bands, struct poet_stream dy, const uint8_t *index,
                               struct poet_stream dx, void *workspace)
{
    struct nest t = nest(pager, s, bands, 1, dx, dy, workspace);
    POET_TRY(begin(&t));
    while (t.tile.images > 0) {
        struct poet_pool band;
        const float *from;
        float *to;
        POET_TRY(fetch(&t, &from, &to, &band));
        poet_maxpool_dx_f32(&band, from, index + index_at(&t), to);
        POET_TRY(put(&t));
    }
    return POET_OK;
}

/* What an average has in common with a maximum. */
static struct poet_pool window_of(const struct poet_average *a)
{
    const struct poet_pool s = { .batch = a->batch,           .channels = a->channels,
                                 .x_chan = a->x_chan,         .x_row = a->x_row,
                                 .y_chan = a->y_chan,         .y_row = a->y_row,
                                 .in_h = a->in_h,             .in_w = a->in_w,
                                 .out_h = a->out_h,           .out_w = a->out_w,
                                 .kernel_h = a->kernel_h,     .kernel_w = a->kernel_w,
                                 .stride_h = a->stride_h,     .stride_w = a->stride_w,
                                 .pad_h = a->pad_h,           .pad_w = a->pad_w,
                                 .dilation_h = a->dilation_h, .dilation_w = a->dilation_w };
    return s;
}

/* The average over a band; the padding that counts is still as far from each window. */
static struct poet_average average(const struct poet_average *a, const struct nest *t,
                                   const struct poet_pool *s)
{
    const int32_t first = t->is_dx ? t->tile.row : t->needs.row; /* row of x */
    struct poet_average band = *a;
    band.batch = 1;
    band.channels = s->channels;
    band.x_chan = s->x_chan;
    band.x_row = s->x_row;
    band.y_chan = s->y_chan;
    band.y_row = s->y_row;
    band.in_h = s->in_h;
    band.out_h = s->out_h;
    band.pad_h = s->pad_h;
    band.before_h += first;
    band.after_h += a->in_h - first - s->in_h;
    return band;
}

int poet_stream_avgpool_f32(struct poet_pager *pager, const struct poet_average *s,
                            const struct poet_bands *bands, struct poet_stream x, struct poet_stream y,
                            void *workspace)
{
    const struct poet_pool window = window_of(s);
    struct nest t = nest(pager, &window, bands, 0, x, y, workspace);
    POET_TRY(begin(&t));
    while (t.tile.images > 0) {
        struct poet_pool band;
        const float *from;
        float *to;
        POET_TRY(fetch(&t, &from, &to, &band));
        const struct poet_average here = average(s, &t, &band);
        poet_avgpool_f32(&here, from, to);
        POET_TRY(put(&t));
    }
    return POET_OK;
}

int poet_stream_avgpool_dx_f32(struct poet_pager *pager, const struct poet_average *s,
                               const struct poet_bands *bands, struct poet_stream dy, struct poet_stream dx,
                               void *workspace)
{
    const struct poet_pool window = window_of(s);
    struct nest t = nest(pager, &window, bands, 1, dx, dy, workspace);
    POET_TRY(begin(&t));
    while (t.tile.images > 0) {
        struct poet_pool band;
        const float *from;
        float *to;
        POET_TRY(fetch(&t, &from, &to, &band));
        const struct poet_average here = average(s, &t, &band);
        poet_avgpool_dx_f32(&here, from, to);
        POET_TRY(put(&t));
    }
    return POET_OK;
}
