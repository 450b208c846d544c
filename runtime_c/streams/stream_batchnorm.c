/* stream_batchnorm.c: see stream_batchnorm.h. Sums go on from piece to piece, so the bits are the
 * kernels'. */
#include "poet/streams/stream_batchnorm.h"

#include "poet/kernels/add.h"
#include "poet/kernels/batchnorm_relu.h"
#include "poet/kernels/channel_sum.h"

static struct poet_pass over(struct poet_pager *pager, const struct poet_stream_batchnorm *s, void *workspace)
{
    return poet_pass(pager, s->batch * s->channels * s->size, s->piece, workspace);
}

static struct poet_planes planes(const struct poet_pass *p, const struct poet_stream_batchnorm *s, int32_t at)
{
    return poet_pass_planes(p, s->channels, s->size, at);
}

/* These planes as the kernels take them. */
static struct poet_batchnorm part(const struct poet_planes *k, const struct poet_stream_batchnorm *s)
{
    const struct poet_batchnorm of = { k->batch, k->channels, k->size, s->eps };
    return of;
}

static void zero(int32_t n, float *sum)
{
    for (int32_t c = 0; c < n; c++) sum[c] = 0.0f;
}

int poet_stream_batchnorm_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                              struct poet_stream x, const float *g, const float *b, const float *mean,
                              const float *var, struct poet_stream y, void *workspace)
{
    struct poet_pass p = over(pager, s, workspace);
    const int32_t from = poet_pass_operand(&p, x), to = poet_pass_result(&p, y);

    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        for (struct poet_planes k = planes(&p, s, 0); k.batch > 0; k = planes(&p, s, k.end)) {
            const struct poet_batchnorm of = part(&k, s);
            poet_batchnorm_f32(&of, poet_piece(&p, from) + k.at, g + k.chan, b + k.chan, mean + k.chan,
                               var + k.chan, poet_piece(&p, to) + k.at);
        }
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}

int poet_stream_batchnorm_dx_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                 struct poet_stream dy, const float *g, const float *var,
                                 struct poet_stream dx, void *workspace)
{
    struct poet_pass p = over(pager, s, workspace);
    const int32_t from = poet_pass_operand(&p, dy), to = poet_pass_result(&p, dx);

    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        for (struct poet_planes k = planes(&p, s, 0); k.batch > 0; k = planes(&p, s, k.end)) {
            const struct poet_batchnorm of = part(&k, s);
            poet_batchnorm_dx_f32(&of, poet_piece(&p, from) + k.at, g + k.chan, var + k.chan,
                                  poet_piece(&p, to) + k.at);
        }
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}

int poet_stream_batchnorm_dg_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                 struct poet_stream dy, struct poet_stream x, const float *mean,
                                 const float *var, float *dg, void *workspace)
{
    struct poet_pass p = over(pager, s, workspace);
    const int32_t gradient = poet_pass_operand(&p, dy), input = poet_pass_operand(&p, x);

    zero(s->channels, dg);
    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        for (struct poet_planes k = planes(&p, s, 0); k.batch > 0; k = planes(&p, s, k.end)) {
            const struct poet_batchnorm of = part(&k, s);
            poet_batchnorm_dg_f32(&of, POET_CONTINUE, poet_piece(&p, gradient) + k.at,
                                  poet_piece(&p, input) + k.at, mean + k.chan, var + k.chan, dg + k.chan);
        }
        poet_pass_skip(&p);
    }
    return POET_OK;
}

int poet_stream_batchnorm_sums_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                   struct poet_stream dy, struct poet_stream x, const float *mean,
                                   const float *var, float *dg, float *db, void *workspace)
{
    struct poet_pass p = over(pager, s, workspace);
    const int32_t gradient = poet_pass_operand(&p, dy), input = poet_pass_operand(&p, x);

    zero(s->channels, dg);
    zero(s->channels, db);
    POET_TRY(poet_pass_begin(&p));
    for (; p.count > 0; poet_pass_skip(&p)) {
        POET_TRY(poet_pass_read(&p));
        for (struct poet_planes k = planes(&p, s, 0); k.batch > 0; k = planes(&p, s, k.end)) {
            const struct poet_batchnorm of = part(&k, s);
            const float *const d = poet_piece(&p, gradient) + k.at;
            poet_batchnorm_dg_f32(&of, POET_CONTINUE, d, poet_piece(&p, input) + k.at, mean + k.chan,
                                  var + k.chan, dg + k.chan);
            poet_channel_sum_f32(k.batch, k.channels, k.size, POET_CONTINUE, d, db + k.chan);
        }
    }
    return POET_OK;
}

int poet_stream_batchnorm_gradients_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                        struct poet_stream dy, struct poet_stream x, const float *g,
                                        const float *mean, const float *var, struct poet_stream dx, float *dg,
                                        float *db, void *workspace)
{
    struct poet_pass p = over(pager, s, workspace);
    const int32_t gradient = poet_pass_operand(&p, dy), input = poet_pass_operand(&p, x);
    const int32_t to = poet_pass_result(&p, dx);

    zero(s->channels, dg);
    zero(s->channels, db);
    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        for (struct poet_planes k = planes(&p, s, 0); k.batch > 0; k = planes(&p, s, k.end)) {
            const struct poet_batchnorm of = part(&k, s);
            const float *const d = poet_piece(&p, gradient) + k.at;
            poet_batchnorm_dg_f32(&of, POET_CONTINUE, d, poet_piece(&p, input) + k.at, mean + k.chan,
                                  var + k.chan, dg + k.chan);
            poet_channel_sum_f32(k.batch, k.channels, k.size, POET_CONTINUE, d, db + k.chan);
            poet_batchnorm_dx_f32(&of, d, g + k.chan, var + k.chan, poet_piece(&p, to) + k.at);
        }
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}

/* mean and var of the batch: two passes over lane x. */
static int statistics(struct poet_pass *p, const struct poet_stream_batchnorm *s, int32_t x, float *mean,
                      float *var)
{
    const float count = (float)(s->batch * s->size);

    zero(s->channels, mean);
    for (; p->count > 0; poet_pass_skip(p)) {
        POET_TRY(poet_pass_read(p));
        for (struct poet_planes k = planes(p, s, 0); k.batch > 0; k = planes(p, s, k.end)) {
            poet_channel_sum_f32(k.batch, k.channels, k.size, POET_CONTINUE, poet_piece(p, x) + k.at,
                                 mean + k.chan);
        }
    }
    poet_pass_again(p);
    for (int32_t c = 0; c < s->channels; c++) mean[c] /= count;

    zero(s->channels, var);
    for (; p->count > 0; poet_pass_skip(p)) {
        POET_TRY(poet_pass_read(p));
        for (struct poet_planes k = planes(p, s, 0); k.batch > 0; k = planes(p, s, k.end)) {
            const struct poet_batchnorm of = part(&k, s);
            poet_batchnorm_squares_f32(&of, POET_CONTINUE, poet_piece(p, x) + k.at, mean + k.chan,
                                       var + k.chan);
        }
    }
    poet_pass_again(p);
    for (int32_t c = 0; c < s->channels; c++) var[c] /= count;
    return POET_OK;
}

int poet_stream_batchnorm_train_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                    struct poet_stream x, const float *g, const float *b,
                                    struct poet_stream y, float *mean, float *var, void *workspace)
{
    struct poet_pass p = over(pager, s, workspace);
    const int32_t from = poet_pass_operand(&p, x), to = poet_pass_result(&p, y);

    POET_TRY(poet_pass_begin(&p));
    POET_TRY(statistics(&p, s, from, mean, var));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        for (struct poet_planes k = planes(&p, s, 0); k.batch > 0; k = planes(&p, s, k.end)) {
            const struct poet_batchnorm of = part(&k, s);
            poet_batchnorm_normalise_f32(&of, poet_piece(&p, from) + k.at, g + k.chan, b + k.chan,
                                         mean + k.chan, var + k.chan, poet_piece(&p, to) + k.at);
        }
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}

int poet_stream_batchnorm_train_dx_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                       struct poet_stream dy, struct poet_stream x, const float *g,
                                       const float *mean, const float *var, const float *dg, const float *db,
                                       struct poet_stream dx, void *workspace)
{
    struct poet_pass p = over(pager, s, workspace);
    const int32_t gradient = poet_pass_operand(&p, dy), input = poet_pass_operand(&p, x);
    const int32_t to = poet_pass_result(&p, dx);

    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        for (struct poet_planes k = planes(&p, s, 0); k.batch > 0; k = planes(&p, s, k.end)) {
            const struct poet_batchnorm of = part(&k, s);
            poet_batchnorm_train_dx_part_f32(&of, s->batch * s->size, poet_piece(&p, gradient) + k.at,
                                             poet_piece(&p, input) + k.at, g + k.chan, mean + k.chan,
                                             var + k.chan, dg + k.chan, db + k.chan,
                                             poet_piece(&p, to) + k.at);
        }
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}

int poet_stream_batchnorm_relu_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                   struct poet_stream x, const float *g, const float *b, const float *mean,
                                   const float *var, struct poet_stream y, void *workspace)
{
    struct poet_pass p = over(pager, s, workspace);
    const int32_t from = poet_pass_operand(&p, x), to = poet_pass_result(&p, y);

    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        for (struct poet_planes k = planes(&p, s, 0); k.batch > 0; k = planes(&p, s, k.end)) {
            const struct poet_batchnorm of = part(&k, s);
            poet_batchnorm_relu_f32(&of, poet_piece(&p, from) + k.at, g + k.chan, b + k.chan, mean + k.chan,
                                    var + k.chan, poet_piece(&p, to) + k.at);
        }
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}

int poet_stream_batchnorm_add_relu_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                       struct poet_stream x, const float *g, const float *b,
                                       const float *mean, const float *var, struct poet_stream shortcut,
                                       struct poet_stream y, void *workspace)
{
    struct poet_pass p = over(pager, s, workspace);
    const int32_t from = poet_pass_operand(&p, x), other = poet_pass_operand(&p, shortcut);
    const int32_t to = poet_pass_result(&p, y);

    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        for (struct poet_planes k = planes(&p, s, 0); k.batch > 0; k = planes(&p, s, k.end)) {
            const struct poet_batchnorm of = part(&k, s);
            poet_batchnorm_add_relu_f32(&of, poet_piece(&p, from) + k.at, g + k.chan, b + k.chan,
                                        mean + k.chan, var + k.chan, poet_piece(&p, other) + k.at,
                                        poet_piece(&p, to) + k.at);
        }
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}

/* In the place of lane `to`: the sum of two gradients. */
static void add_up(const struct poet_pass *p, int32_t gradient, int32_t other, int32_t to)
{
    poet_add_f32((size_t)p->count, poet_piece(p, gradient), poet_piece(p, other), poet_piece(p, to));
}

int poet_stream_batchnorm_relu_dx_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                      struct poet_stream dy, struct poet_stream x, const float *g,
                                      const float *b, const float *mean, const float *var,
                                      struct poet_stream dx, float *dg, float *db, void *workspace)
{
    struct poet_pass p = over(pager, s, workspace);
    const int32_t gradient = poet_pass_operand(&p, dy), input = poet_pass_operand(&p, x);
    const int32_t to = poet_pass_result(&p, dx);

    zero(s->channels, dg);
    zero(s->channels, db);
    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        for (struct poet_planes k = planes(&p, s, 0); k.batch > 0; k = planes(&p, s, k.end)) {
            const struct poet_batchnorm of = part(&k, s);
            poet_batchnorm_relu_dx_f32(&of, POET_CONTINUE, poet_piece(&p, gradient) + k.at,
                                       poet_piece(&p, input) + k.at, g + k.chan, b + k.chan, mean + k.chan,
                                       var + k.chan, poet_piece(&p, to) + k.at, dg + k.chan, db + k.chan);
        }
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}

int poet_stream_batchnorm_relu_dx_of_sum_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                             struct poet_stream dy, struct poet_stream other,
                                             struct poet_stream x, const float *g, const float *b,
                                             const float *mean, const float *var, struct poet_stream dx,
                                             float *dg, float *db, void *workspace)
{
    struct poet_pass p = over(pager, s, workspace);
    const int32_t first = poet_pass_operand(&p, dy), second = poet_pass_operand(&p, other);
    const int32_t to = poet_pass_result(&p, dx), input = poet_pass_operand(&p, x);

    zero(s->channels, dg);
    zero(s->channels, db);
    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        add_up(&p, first, second, to);
        for (struct poet_planes k = planes(&p, s, 0); k.batch > 0; k = planes(&p, s, k.end)) {
            const struct poet_batchnorm of = part(&k, s);
            float *const at = poet_piece(&p, to) + k.at;
            poet_batchnorm_relu_dx_f32(&of, POET_CONTINUE, at, poet_piece(&p, input) + k.at, g + k.chan,
                                       b + k.chan, mean + k.chan, var + k.chan, at, dg + k.chan, db + k.chan);
        }
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}

int poet_stream_batchnorm_add_relu_dx_f32(struct poet_pager *pager, const struct poet_stream_batchnorm *s,
                                          struct poet_stream dy, struct poet_stream y, struct poet_stream x,
                                          const float *g, const float *mean, const float *var,
                                          struct poet_stream dx, float *dg, float *db, struct poet_stream ds,
                                          void *workspace)
{
    struct poet_pass p = over(pager, s, workspace);
    const int32_t gradient = poet_pass_operand(&p, dy), mask = poet_pass_operand(&p, y);
    const int32_t input = poet_pass_operand(&p, x);
    const int32_t to = poet_pass_result(&p, dx), other = poet_pass_result(&p, ds);

    zero(s->channels, dg);
    zero(s->channels, db);
    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        for (struct poet_planes k = planes(&p, s, 0); k.batch > 0; k = planes(&p, s, k.end)) {
            const struct poet_batchnorm of = part(&k, s);
            poet_batchnorm_add_relu_dx_f32(&of, POET_CONTINUE, poet_piece(&p, gradient) + k.at,
                                           poet_piece(&p, mask) + k.at, poet_piece(&p, input) + k.at,
                                           g + k.chan, mean + k.chan, var + k.chan, poet_piece(&p, to) + k.at,
                                           dg + k.chan, db + k.chan, poet_piece(&p, other) + k.at);
        }
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}

int poet_stream_batchnorm_add_relu_dx_of_sum_f32(struct poet_pager *pager,
                                                 const struct poet_stream_batchnorm *s,
                                                 struct poet_stream dy, struct poet_stream other,
                                                 struct poet_stream y, struct poet_stream x, const float *g,
                                                 const float *mean, const float *var, struct poet_stream dx,
                                                 float *dg, float *db, struct poet_stream ds,
                                                 void *workspace)
{
    struct poet_pass p = over(pager, s, workspace);
    const int32_t first = poet_pass_operand(&p, dy), second = poet_pass_operand(&p, other);
    const int32_t to = poet_pass_result(&p, dx);
    const int32_t mask = poet_pass_operand(&p, y), input = poet_pass_operand(&p, x);
    const int32_t shortcut = poet_pass_result(&p, ds);

    zero(s->channels, dg);
    zero(s->channels, db);
    POET_TRY(poet_pass_begin(&p));
    while (p.count > 0) {
        POET_TRY(poet_pass_read(&p));
        add_up(&p, first, second, to);
        for (struct poet_planes k = planes(&p, s, 0); k.batch > 0; k = planes(&p, s, k.end)) {
            const struct poet_batchnorm of = part(&k, s);
            float *const at = poet_piece(&p, to) + k.at;
            poet_batchnorm_add_relu_dx_f32(&of, POET_CONTINUE, at, poet_piece(&p, mask) + k.at,
                                           poet_piece(&p, input) + k.at, g + k.chan, mean + k.chan,
                                           var + k.chan, at, dg + k.chan, db + k.chan,
                                           poet_piece(&p, shortcut) + k.at);
        }
        POET_TRY(poet_pass_write(&p));
    }
    return POET_OK;
}

int poet_stream_add_relu_f32(struct poet_pager *pager, int32_t size, int32_t piece, struct poet_stream a,
                             struct poet_stream b, struct poet_stream y, void *workspace)
{
    return poet_pass_binary(pager, size, piece, poet_add_relu_f32, a, b, y, workspace);
}
