/* stream_conv2d_dw.c: see stream_conv2d_dw.h. Each element of dw is the sum that the kernel of conv2d.h
 * makes, cut between images or output rows and continued: the same bits for every tile. */
#include "poet/streams/stream_conv2d_dw.h"

#include "poet/streams/stream_conv2d.h"

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t over(int32_t n, int32_t d)
{
    return (n + d - 1) / d;
}

struct nest {
    struct poet_pager *pager;
    const struct poet_stream_conv2d_dw *s;
    struct poet_images x, dy;
    struct poet_stream dw;                   /* where there is no update */
    const struct poet_stream_update *update; /* or NULL */
    struct poet_buffer x_buffer, dy_buffer;
    float *dw_buffer, *pieces;
};

/* Some outputs and inputs (of their groups), a block of w; and its gradient in RAM. */
struct block {
    int32_t out, outs, in, ins;
    float *dw;
    int32_t dw_out; /* its stride */
};

/* Sum up the gradient of one block. */
static int sum_up(struct nest *t, const struct block *b)
{
    const struct poet_conv2d *const c = &t->s->c;
    const int32_t grouped = c->groups > 1, group = c->out_c / c->groups;
    const int32_t in = grouped ? b->out / group * b->ins : b->in;
    const int32_t ins = grouped ? b->outs / group * b->ins : b->ins;
    struct poet_block x = { .chan = in - in % t->s->held_ins };
    struct poet_block dy = { .chan = b->out - b->out % t->s->held_outs };
    enum poet_start start = POET_START_ZERO;

    x.chans = least(t->s->held_ins, c->in_c - x.chan);
    dy.chans = least(t->s->held_outs, c->out_c - dy.chan);
    for (int32_t image = 0; image < c->batch; image += t->s->images) {
        for (int32_t row = 0; row < c->out_h; row += t->s->rows, start = POET_CONTINUE) {
            struct poet_view from_x, from_dy;

            x.image = dy.image = image;
            x.images = dy.images = least(t->s->images, c->batch - image);
            dy.row = row;
            dy.rows = least(t->s->rows, c->out_h - row);
            const struct poet_rows r = poet_conv2d_reach(c, row, dy.rows);
            x.row = r.first;
            x.rows = r.end - r.first;
            POET_TRY(poet_block_read(t->pager, &t->x, &x, &t->x_buffer, &from_x));
            POET_TRY(poet_block_read(t->pager, &t->dy, &dy, &t->dy_buffer, &from_dy));

            struct poet_conv2d k = *c;
            k.batch = x.images;
            k.groups = grouped ? b->outs / group : 1;
            k.in_c = ins;
            k.in_h = x.rows;
            k.out_c = b->outs;
            k.out_h = dy.rows;
            k.pad_top += x.row - row * c->stride_h;
            k.x_batch = from_x.batch;
            k.x_chan = from_x.chan;
            k.x_row = from_x.row;
            k.y_batch = from_dy.batch;
            k.y_chan = from_dy.chan;
            k.y_row = from_dy.row;
            k.w_out = b->dw_out;
            poet_conv2d_dw_f32(&k, start, from_x.at + (in - x.chan) * k.x_chan,
                               from_dy.at + (b->out - dy.chan) * k.y_chan, b->dw);
        }
    }
    return POET_OK;
}

/* Update n floats of w from `at` on. */
static int update_piece(struct nest *t, int32_t at, int32_t n, const float *dw)
{
    const struct poet_stream_update *const u = t->update;
    const uint32_t byte = 4u * (uint32_t)at, bytes = 4u * (uint32_t)n;
    float *here[1 + POET_STATES] = { NULL }, *buffer = t->pieces;

    for (int32_t i = 0; i <= u->states; i++) {
        if (u->next[i].at != NULL) {
            here[i] = u->next[i].at + at;
            continue;
        }
        here[i] = buffer;
        buffer += t->s->piece;
        POET_TRY(poet_span_read(t->pager, u->old[i].sector, byte, here[i], bytes));
    }
    u->apply(u->rule, n, dw, here[0], here + 1);
    for (int32_t i = 0; i <= u->states; i++) {
        if (u->next[i].at != NULL) continue;
        POET_TRY(poet_span_write(t->pager, u->next[i].sector, byte, here[i], bytes));
    }
    return POET_OK;
}

static int update_block(struct nest *t, const struct block *b)
{
    const struct poet_conv2d *const c = &t->s->c;
    const int32_t row = b->ins * c->w_in; /* floats of one output that follow each other */
    const int32_t is_one_run = row == c->w_out, runs = is_one_run ? 1 : b->outs;

    for (int32_t i = 0; i < runs; i++) {
        const float *dw = b->dw + i * b->dw_out;
        int32_t at = (b->out + i) * c->w_out + b->in * c->w_in;

        for (int32_t left = is_one_run ? b->outs * row : row, n; left > 0; left -= n) {
            n = least(left, t->s->piece - at % t->s->piece); /* pieces end where sectors end */
            POET_TRY(update_piece(t, at, n, dw));
            at += n;
            dw += n;
        }
    }
    if (t->s->piece_at < t->s->dw_at) { /* over x and dy */
        t->x_buffer.has.images = 0;
        t->dy_buffer.has.images = 0;
    }
    return POET_OK;
}

static int write_block(struct nest *t, const struct block *b)
{
    const struct poet_conv2d *const c = &t->s->c;
    const struct poet_box box = { 1, 0, b->outs, c->w_out, b->ins * c->w_in };

    return poet_box_write(t->pager, t->dw.sector, b->out * c->w_out + b->in * c->w_in, &box, b->dw);
}

static int begin(struct nest *t)
{
    const struct poet_conv2d *const c = &t->s->c;
    const uint32_t bytes = 4u * (uint32_t)c->out_c * (uint32_t)c->w_out;

    if (t->update == NULL) {
        return t->dw.at != NULL ? POET_OK : poet_span_begin(t->pager, t->dw.sector, bytes);
    }
    for (int32_t i = 0; i <= t->update->states; i++) {
        if (t->update->next[i].at != NULL) continue;
        POET_TRY(poet_span_begin(t->pager, t->update->next[i].sector, bytes));
    }
    return POET_OK;
}

static int run(struct nest *t)
{
    const struct poet_stream_conv2d_dw *const s = t->s;
    const struct poet_conv2d *const c = &s->c;
    const int32_t in_c = c->in_c / c->groups, taps = c->kernel_h * c->kernel_w;
    const int32_t by_out = over(c->out_c, s->outs), by_in = over(in_c, s->ins);

    POET_TRY(begin(t));
    for (int32_t i = 0; i < by_out * by_in; i++) {
        struct block b = { .out = (s->ins_first ? i % by_out : i / by_in) * s->outs,
                           .in = (s->ins_first ? i / by_out : i % by_in) * s->ins };

        b.outs = least(s->outs, c->out_c - b.out);
        b.ins = least(s->ins, in_c - b.in);
        b.dw = t->dw_buffer;
        b.dw_out = b.ins * taps;
        if (t->update == NULL && t->dw.at != NULL) {
            b.dw = t->dw.at + (b.out * c->w_out + b.in * c->w_in);
            b.dw_out = c->w_out;
        }
        POET_TRY(sum_up(t, &b));
        if (t->update != NULL) {
            POET_TRY(update_block(t, &b));
        } else if (t->dw.at == NULL) {
            POET_TRY(write_block(t, &b));
        }
    }
    return POET_OK;
}

static struct nest nest(struct poet_pager *pager, const struct poet_stream_conv2d_dw *s, struct poet_stream x,
                        struct poet_stream dy, float *workspace)
{
    const struct poet_conv2d *const c = &s->c;

    return (struct nest){
        .pager = pager,
        .s = s,
        .x = { x, c->x_batch, c->x_chan, c->x_row, c->in_w },
        .dy = { dy, c->y_batch, c->y_chan, c->y_row, c->out_w },
        .x_buffer = { .at = workspace },
        .dy_buffer = { .at = workspace + s->dy_at },
        .dw_buffer = workspace + s->dw_at,
        .pieces = workspace + s->piece_at,
    };
}

int poet_stream_conv2d_dw_f32(struct poet_pager *pager, const struct poet_stream_conv2d_dw *s,
                              struct poet_stream x, struct poet_stream dy, struct poet_stream dw,
                              void *workspace)
{
    struct nest t = nest(pager, s, x, dy, workspace);

    t.dw = dw;
    return run(&t);
}

int poet_stream_conv2d_update(struct poet_pager *pager, const struct poet_stream_conv2d_dw *s,
                              struct poet_stream x, struct poet_stream dy,
                              const struct poet_stream_update *update, void *workspace)
{
    struct nest t = nest(pager, s, x, dy, workspace);

    t.update = update;
    return run(&t);
}
