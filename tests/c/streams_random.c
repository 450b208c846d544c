/* streams_random.c: the streamed convolutions against the resident kernels, bit for bit. One case per line of
 * numbers on standard input (test_streams.py writes them); per case the calls and sectors that the device
 * counted. Then the same case again with a call of the device that fails. Exits with 1 at a surprise. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime_c/blockdev/emulated.h"
#include "check.h"
#include "poet/kernels/sgd.h"
#include "poet/streams/stream_conv2d.h"
#include "poet/streams/stream_conv2d_adam.h"
#include "poet/streams/stream_conv2d_dw.h"
#include "poet/streams/stream_conv2d_sgd.h"

enum kind { FORWARD, DX, DW, SGD, SGD_DECAY, MOMENTUM, MOMENTUM_DECAY, ADAM, KINDS };
enum { X, W, Y, V, M, TENSORS }; /* Y: y or dy; X: x or dx; V, M: states */

static uint64_t state;

static uint32_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static int32_t number(void)
{
    long v;
    CHECK(scanf("%ld", &v) == 1);
    return (int32_t)v;
}

/* An operand: its values before and (as the resident kernels make them) after, and where it is. */
struct tensor {
    size_t floats;
    float *before, *after, *arena;
    struct poet_stream old, next;
    uint32_t sector, next_sector;
};

static struct poet_emulated_dev device;
static struct poet_pager pager;
static struct tensor t[TENSORS];
static enum kind kind;
static struct poet_conv2d c;
static struct poet_stream_conv2d tile;
static struct poet_stream_conv2d_dw dw_tile;
static float *bias, *workspace;
static const float u[2] = { 0.5f, 0.25f };
static const struct poet_adam adam = { 0, 0.9f, 0.1f, 0.99f, 0.01f, 1e-3f, 0.0f };
#define LR 0.125f
#define BETA 0.75f

static float some_value(int zeros)
{
    const uint32_t r = draw();
    if (zeros || r % 8 == 0) return r & 16 ? 0.0f : -0.0f;
    return (float)((int32_t)(draw() % 2001) - 1000) * 0.0078125f + (float)(r % 977) * 1e-6f;
}

static float *reserve(size_t floats)
{
    float *const p = malloc(floats > 0 ? floats * sizeof *p : 1);
    CHECK(p != NULL);
    return p;
}

static void resident(void)
{
    const enum poet_start start = bias != NULL ? POET_START_BIAS : POET_START_ZERO;
    float *const dw = reserve(t[W].floats);

    if (kind == FORWARD) {
        poet_conv2d_f32(&c, start, t[X].before, t[W].before, bias, t[Y].after);
    } else if (kind == DX) {
        enum poet_start from = POET_START_ZERO;
        for (int32_t i = 0; bias != NULL && i < c.batch * c.in_c; i++, from = POET_CONTINUE) {
            t[X].after[i] = 0.0f + bias[i % c.in_c];
        }
        poet_conv2d_dx_f32(&c, from, t[W].before, t[Y].before, t[X].after);
    } else {
        const size_t n = t[W].floats;
        float *const to = kind == DW ? t[W].after : dw;
        struct poet_adam a = adam;

        a.size = (int32_t)n;
        poet_conv2d_dw_f32(&c, POET_START_ZERO, t[X].before, t[Y].before, to);
        if (kind == SGD) poet_sgd_f32(n, LR, dw, t[W].after);
        if (kind == SGD_DECAY) poet_sgd_decay_f32(n, LR, BETA, dw, t[W].after);
        if (kind == MOMENTUM) poet_momentum_f32(n, LR, BETA, dw, t[W].after, t[V].after);
        if (kind == MOMENTUM_DECAY) {
            poet_momentum_decay_f32(n, LR, BETA, 0.5f, dw, t[W].after, t[V].after);
        }
        if (kind == ADAM) poet_adam_f32(&a, LR, u, dw, t[W].after, t[M].after, t[V].after);
    }
    free(dw);
}

static int streamed(void)
{
    const float decay = kind == SGD_DECAY ? BETA : kind == MOMENTUM_DECAY ? 0.5f : 0.0f;

    switch (kind) {
    case FORWARD:
        return poet_stream_conv2d_f32(&pager, &tile, t[X].old, t[W].old, bias, t[Y].next, workspace);
    case DX:
        return poet_stream_conv2d_dx_f32(&pager, &tile, t[W].old, t[Y].old, bias, t[X].next, workspace);
    case DW:
        return poet_stream_conv2d_dw_f32(&pager, &dw_tile, t[X].old, t[Y].old, t[W].next, workspace);
    case SGD:
    case SGD_DECAY:
        return poet_stream_conv2d_sgd_f32(&pager, &dw_tile, t[X].old, t[Y].old, LR, decay, t[W].old,
                                          t[W].next, workspace);
    case MOMENTUM:
    case MOMENTUM_DECAY:
        return poet_stream_conv2d_momentum_f32(&pager, &dw_tile, t[X].old, t[Y].old, LR, BETA, decay,
                                               t[W].old, t[W].next, t[V].old, t[V].next, workspace);
    default:
        return poet_stream_conv2d_adam_f32(&pager, &dw_tile, &adam, t[X].old, t[Y].old, LR, u, t[W].old,
                                           t[W].next, t[M].old, t[M].next, t[V].old, t[V].next, workspace);
    }
}

/* Everything as it is before the node runs. */
static void reset(void)
{
    const struct poet_blockdev *const dev = &device.dev;

    memset(device.bytes, 0x5A, (size_t)dev->sectors * dev->sector_bytes);
    for (int i = 0; i < TENSORS; i++) {
        memcpy(t[i].arena, t[i].before, 4 * t[i].floats);
        memcpy(device.bytes + (size_t)t[i].sector * dev->sector_bytes, t[i].before, 4 * t[i].floats);
    }
    memset(&device.counts, 0, sizeof device.counts);
}

/* The new values of a tensor. */
static const void *result(const struct tensor *x)
{
    if (x->next.at != NULL) return x->arena;
    return device.bytes + (size_t)x->next.sector * device.dev.sector_bytes;
}

static void one_case(void)
{
    const int32_t sector_bytes = number(), erase = number(), streams = number(), zeros = number();
    const int32_t has_bias = number(), workspace_floats = number();
    int32_t *field = &c.batch;

    state = (uint64_t)(uint32_t)number();
    for (size_t i = 0; i < sizeof c / 4; i++) memcpy(&field[i], &(int32_t){ number() }, 4);
    if (kind <= DX) {
        tile = (struct poet_stream_conv2d){ .c = c };
        for (field = &tile.outs; field <= &tile.sums_at; field++) *field = number();
    } else {
        dw_tile = (struct poet_stream_conv2d_dw){ .c = c };
        for (field = &dw_tile.outs; field <= &dw_tile.piece_at; field++) *field = number();
    }

    const size_t floats[TENSORS] = { (size_t)(c.batch * c.x_batch), (size_t)(c.out_c * c.w_out),
                                     (size_t)(c.batch * c.y_batch), (size_t)(c.out_c * c.w_out),
                                     (size_t)(c.out_c * c.w_out) };
    const uint32_t unit = erase > 0 ? (uint32_t)erase : 1;
    uint32_t sector = 0;
    for (int i = 0; i < TENSORS; i++) {
        const uint32_t sectors = (uint32_t)(4 * floats[i]) / (uint32_t)sector_bytes + 1;
        const int is_streamed = (streams >> (i > Y ? W : i)) & 1;

        t[i].floats = floats[i];
        t[i].before = reserve(floats[i]);
        t[i].after = reserve(floats[i]);
        t[i].arena = reserve(floats[i]);
        for (size_t k = 0; k < floats[i]; k++) t[i].before[k] = some_value(zeros);
        for (size_t k = 0; i == V && k < floats[i]; k++) {
            if (t[i].before[k] < 0.0f) t[i].before[k] = -t[i].before[k]; /* a second moment is positive */
        }
        memcpy(t[i].after, t[i].before, 4 * floats[i]);
        t[i].sector = sector;
        sector += (sectors + unit - 1) / unit * unit;
        t[i].next_sector = sector;
        sector += (sectors + unit - 1) / unit * unit;
        t[i].old = is_streamed ? (struct poet_stream){ .sector = t[i].sector }
                               : (struct poet_stream){ .at = t[i].arena };
        t[i].next = is_streamed ? (struct poet_stream){ .sector = t[i].next_sector } : t[i].old;
    }
    bias = has_bias ? reserve((size_t)(kind == DX ? c.in_c : c.out_c)) : NULL;
    for (int32_t i = 0; bias != NULL && i < (kind == DX ? c.in_c : c.out_c); i++) bias[i] = some_value(zeros);
    workspace = reserve((size_t)workspace_floats);
    resident();

    unsigned char *const bytes = malloc((size_t)sector * (size_t)sector_bytes);
    double bounce[4096 / sizeof(double)];
    CHECK(bytes != NULL);
    poet_emulated_dev_init(&device, bytes, NULL, sector, (uint32_t)sector_bytes, (uint32_t)erase);
    pager = (struct poet_pager){ .dev = &device.dev, .bounce = (unsigned char *)bounce };

    reset();
    CHECK(streamed() == POET_OK);
    CHECK(device.violations == 0);
    for (int i = 0; i < TENSORS; i++) {
        const int is_state = (i == V && kind >= MOMENTUM) || (i == M && kind == ADAM);
        const int is_made = is_state || i == (kind == FORWARD ? Y : kind == DX ? X : W);
        const unsigned char *const old = bytes + (size_t)t[i].sector * (size_t)sector_bytes;
        const unsigned char *const end = bytes + (size_t)t[i].next_sector * (size_t)sector_bytes;

        if (is_made) {
            CHECK(memcmp(result(&t[i]), t[i].after, 4 * t[i].floats) == 0);
        } else if (t[i].old.at != NULL) {
            CHECK(memcmp(t[i].arena, t[i].before, 4 * t[i].floats) == 0);
        }
        CHECK(memcmp(old, t[i].before, 4 * t[i].floats) == 0);
        for (const unsigned char *p = old + 4 * t[i].floats; p < end; p++) CHECK(*p == 0x5A);
        if (erase == 0) {
            const uint32_t next_end = i + 1 < TENSORS ? t[i + 1].sector : sector;
            const unsigned char *p = end + 4 * t[i].floats;

            for (; p < bytes + (size_t)next_end * (size_t)sector_bytes; p++) CHECK(*p == 0x5A);
        }
    }
    const struct poet_emulated_counts n = device.counts;
    (void)printf("%u %u %u %u\n", n.reads, n.progs, n.sectors_read, n.sectors_programmed);

    if (n.calls > 0) {
        reset();
        device.fail_at = 1 + draw() % n.calls;
        CHECK(streamed() == POET_EIO);
        CHECK(device.counts.calls == device.fail_at);
        pager.dev = NULL;
        CHECK(streamed() == POET_ESTATE);
    }
    for (int i = 0; i < TENSORS; i++) {
        free(t[i].before);
        free(t[i].after);
        free(t[i].arena);
    }
    free(bias);
    free(workspace);
    free(bytes);
}

int main(void)
{
    for (long k; scanf("%ld", &k) == 1;) {
        CHECK(k >= 0 && k < KINDS);
        kind = (enum kind)k;
        one_case();
    }
    return 0;
}
