/* pass.c: see pass.h. */
#include "poet/streams/pass.h"

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

struct poet_pass poet_pass(struct poet_pager *pager, int32_t size, int32_t piece, void *workspace)
{
    const struct poet_pass p = { .pager = pager, .size = size, .most = piece, .workspace = workspace };
    return p;
}

static int32_t add(struct poet_pass *p, struct poet_stream t)
{
    const struct poet_lane lane = { .at = t.at, .is_buffer = t.at == NULL };
    p->lane[p->lanes] = lane;
    return p->lanes++;
}

int32_t poet_pass_operand(struct poet_pass *p, struct poet_stream x)
{
    const int32_t k = add(p, x);
    p->lane[k].from = x.sector;
    p->lane[k].is_read = x.at == NULL;
    p->residents += x.at != NULL;
    return k;
}

int32_t poet_pass_result(struct poet_pass *p, struct poet_stream y)
{
    const int in_store = y.at == NULL;
    int32_t k = p->lanes;
    if (in_store || p->residents == 0) { /* else y may be in the place of the operand that is in the arena */
        k = 0;
        while (k < p->lanes && !(p->lane[k].is_buffer && !p->lane[k].is_written)) k++;
    }
    if (k == p->lanes) (void)add(p, y);
    p->lane[k].at = y.at;
    p->lane[k].to = y.sector;
    p->lane[k].is_buffer = p->lane[k].is_written = in_store;
    return k;
}

int32_t poet_pass_update(struct poet_pass *p, struct poet_stream old, struct poet_stream next)
{
    const int32_t k = add(p, old);
    p->lane[k].from = old.sector;
    p->lane[k].to = next.sector;
    p->lane[k].is_read = p->lane[k].is_written = old.at == NULL;
    return k;
}

int poet_pass_begin(struct poet_pass *p)
{
    float *buffer = p->workspace;
    for (int32_t k = 0; k < p->lanes; k++) {
        struct poet_lane *const lane = &p->lane[k];
        if (lane->is_buffer) {
            lane->at = buffer;
            buffer += least(p->most, p->size);
        }
        if (lane->is_written) POET_TRY(poet_span_begin(p->pager, lane->to, 4u * (uint32_t)p->size));
    }
    p->count = least(p->most, p->size);
    return POET_OK;
}

int poet_pass_read(struct poet_pass *p)
{
    for (int32_t k = 0; k < p->lanes; k++) {
        const struct poet_lane *const lane = &p->lane[k];
        if (!lane->is_read) continue;
        POET_TRY(poet_span_read(p->pager, lane->from, 4u * (uint32_t)p->from, poet_piece(p, k),
                                4u * (uint32_t)p->count));
    }
    return POET_OK;
}

int poet_pass_write(struct poet_pass *p)
{
    for (int32_t k = 0; k < p->lanes; k++) {
        const struct poet_lane *const lane = &p->lane[k];
        if (!lane->is_written) continue;
        POET_TRY(poet_span_write(p->pager, lane->to, 4u * (uint32_t)p->from, poet_piece(p, k),
                                 4u * (uint32_t)p->count));
    }
    poet_pass_skip(p);
    return POET_OK;
}

float *poet_piece(const struct poet_pass *p, int32_t lane)
{
    return p->lane[lane].at + (p->lane[lane].is_buffer ? 0 : p->from);
}

void poet_pass_skip(struct poet_pass *p)
{
    p->from += p->count;
    p->count = least(p->most, p->size - p->from);
}

void poet_pass_again(struct poet_pass *p)
{
    p->from = 0;
    p->count = least(p->most, p->size);
    for (int32_t k = 0; k < p->lanes; k++) {
        if (!p->lane[k].is_buffer || p->count == p->size) p->lane[k].is_read = 0;
    }
}

struct poet_planes poet_pass_planes(const struct poet_pass *p, int32_t channels, int32_t size, int32_t at)
{
    const int32_t first = p->from + at, left = p->count - at;
    const int32_t plane = first / size, in_plane = first - plane * size, chan = plane % channels;
    struct poet_planes run = { .at = at, .chan = chan, .batch = 1, .channels = 1, .size = size };

    if (left <= 0) {
        run.batch = 0;
    } else if (in_plane != 0 || left < size) {
        run.size = least(size - in_plane, left);
    } else if (chan != 0 || left < channels * size) {
        run.channels = least(channels - chan, left / size);
    } else {
        run.channels = channels;
        run.batch = left / (channels * size);
    }
    run.end = at + run.batch * run.channels * run.size;
    return run;
}

int poet_pass_unary(struct poet_pager *pager, int32_t size, int32_t piece,
                    void (*kernel)(size_t n, const float *x, float *y), struct poet_stream x,
                    struct poet_stream y, void *workspace)
{
    struct poet_pass p = poet_pass(pager, size, piece, workspace);
    const int32_t from = poet_pass_operand(&p, x), to = poet_pass_result(&p, y);

    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        kernel((size_t)p.count, poet_piece(&p, from), poet_piece(&p, to));
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}

int poet_pass_binary(struct poet_pager *pager, int32_t size, int32_t piece,
                     void (*kernel)(size_t n, const float *a, const float *b, float *y), struct poet_stream a,
                     struct poet_stream b, struct poet_stream y, void *workspace)
{
    struct poet_pass p = poet_pass(pager, size, piece, workspace);
    const int32_t first = poet_pass_operand(&p, a), second = poet_pass_operand(&p, b);
    const int32_t to = poet_pass_result(&p, y);

    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        kernel((size_t)p.count, poet_piece(&p, first), poet_piece(&p, second), poet_piece(&p, to));
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}
