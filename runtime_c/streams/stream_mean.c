/* stream_mean.c: see stream_mean.h. */
#include "poet/streams/stream_mean.h"

/* Elements at `at` of the piece at hand that share one mean: part of a row of channel `mean` % channels. */
struct row {
    int32_t at, end, mean;
};

static struct row row(const struct poet_pass *p, const struct poet_stream_mean *s, int32_t at)
{
    const int32_t first = p->from + at, line = first / s->size, rest = s->size - first % s->size;
    const int32_t image = line / (s->rows * s->channels), left = p->count - at;
    const struct row r = { at, at + (rest < left ? rest : left), image * s->channels + line % s->channels };
    return r;
}

int poet_stream_mean_f32(struct poet_pager *pager, const struct poet_stream_mean *s, struct poet_stream x,
                         float *y, void *workspace)
{
    const int32_t means = s->images * s->channels;
    const float count = (float)(s->rows * s->size);
    struct poet_pass p = poet_pass(pager, means * s->rows * s->size, s->piece, workspace);
    const int32_t from = poet_pass_operand(&p, x);

    for (int32_t i = 0; i < means; i++) y[i] = 0.0f;
    POET_TRY(poet_pass_begin(&p));
    for (; p.count > 0; poet_pass_skip(&p)) {
        POET_TRY(poet_pass_read(&p));
        const float *const v = poet_piece(&p, from);
        for (struct row r = row(&p, s, 0); r.at < p.count; r = row(&p, s, r.end)) {
            float sum = y[r.mean];
            for (int32_t i = r.at; i < r.end; i++) sum += v[i];
            y[r.mean] = sum;
        }
    }
    for (int32_t i = 0; i < means; i++) y[i] /= count;
    return POET_OK;
}

int poet_stream_mean_dx_f32(struct poet_pager *pager, const struct poet_stream_mean *s, const float *dy,
                            struct poet_stream dx, void *workspace)
{
    const float count = (float)(s->rows * s->size);
    struct poet_pass p = poet_pass(pager, s->images * s->channels * s->rows * s->size, s->piece, workspace);
    const int32_t to = poet_pass_result(&p, dx);

    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        float *const v = poet_piece(&p, to);
        for (struct row r = row(&p, s, 0); r.at < p.count; r = row(&p, s, r.end)) {
            const float share = dy[r.mean] / count;
            for (int32_t i = r.at; i < r.end; i++) v[i] = share;
        }
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}
