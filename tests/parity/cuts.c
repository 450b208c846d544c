/* cuts.c: calls of a generated model whose device fails, or loses power, at every point. The test puts MODEL,
 * HEADER, INPUT_BYTES and so on above it; store.bin and data.bin lie in the working directory.
 *
 * Whatever happens during a call, the store afterwards holds the whole state before it or the whole state
 * after it. */
#include HEADER

#include "poet/platform.h"

#include "runtime_c/blockdev/emulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOINED(a, b) a##_##b
#define JOIN(a, b) JOINED(a, b)
#define CALL(function) JOIN(MODEL, function)
#define CHECK(claim)                                                                                         \
    do {                                                                                                     \
        if (!(claim)) {                                                                                      \
            (void)fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #claim);                 \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

enum { SEED = 77, MAX_PARAMS_BYTES = 1 << 20 };

static struct MODEL model;
static struct poet_emulated_dev dev;
static unsigned char image[SECTORS * SECTOR_BYTES], bytes[sizeof image], durable[sizeof image];
static _Alignas(8) unsigned char input[3 * (INPUT_BYTES + LABEL_BYTES)];
static unsigned char before[MAX_PARAMS_BYTES], after[MAX_PARAMS_BYTES], now[MAX_PARAMS_BYTES];
static size_t position;

static int put(void *context, const void *piece, size_t size)
{
    memcpy((unsigned char *)context + position, piece, size);
    position += size;
    return POET_OK;
}

static int ones(void *context, void *piece, size_t size)
{
    (void)context;
    for (size_t i = 0; i < size; i += 4) memcpy((unsigned char *)piece + i, &(float){ 1.0f }, 4);
    return POET_OK;
}

static void get(unsigned char *params)
{
    position = 0;
    CHECK(CALL(get_params)(&model, put, params) == POET_OK);
}

static int train(void)
{
    unsigned char *batch = input + model.step % 3 * (INPUT_BYTES + LABEL_BYTES);
    const struct CALL(inputs) in = { (const void *)batch };
    float loss;
    return CALL(train_step)(&model, &in, (const void *)(batch + INPUT_BYTES), LR, &loss);
}

static int train_and_save(void)
{
    model.commits |= POET_PART_RAM;
    return train();
}

static int set(void)
{
    return CALL(set_params)(&model, ones, NULL);
}

static int save_another_seed(void)
{
    model.seed = SEED + 1;
    return CALL(save)(&model);
}

/* Two training steps from the image, saved. */
static void prepare(void)
{
    memcpy(bytes, image, sizeof bytes);
    poet_emulated_dev_init(&dev, bytes, durable, SECTORS, SECTOR_BYTES, ERASE_SECTORS);
    CHECK(CALL(init)(&model, NULL, 0, &dev.dev) == POET_OK);
    model.seed = SEED;
    CHECK(train_and_save() == POET_OK && train_and_save() == POET_OK);
    dev.counts = (struct poet_emulated_counts){ 0 };
}

/* The state in the store: 0 before the call, 1 after it. */
static int state(void)
{
    CHECK(CALL(init)(&model, NULL, 0, &dev.dev) == POET_OK);
    CHECK(CALL(load)(&model) == POET_OK);
    get(now);
    const int is_before = memcmp(now, before, position) == 0 && model.step == 2 && model.seed == SEED;
    CHECK(is_before || memcmp(now, after, position) == 0);
    return !is_before;
}

static void check(int (*call)(void))
{
    prepare();
    get(before);
    dev.counts = (struct poet_emulated_counts){ 0 };
    CHECK(call() == POET_OK);
    const struct poet_emulated_counts counts = dev.counts;
    get(after);
    CHECK(state() == 1);

    uint32_t seen[2] = { 0 };
    for (uint32_t k = 1; k <= counts.calls; k++) {
        prepare();
        dev.fail_at = k;
        CHECK(call() == POET_EIO);
        dev.fail_at = 0;
        seen[state()]++;
        CHECK(dev.violations == 0);
    }
    CHECK(seen[0] > 0);

    for (uint32_t k = 0; k < counts.sectors_programmed + counts.sectors_erased; k++) {
        for (uint32_t seed = 0; seed < 3; seed++) {
            prepare();
            dev.cut_after = k;
            CHECK(call() == POET_EIO);
            poet_emulated_dev_restart(&dev, seed * 7919u + k);
            seen[state()]++;
            CHECK(dev.violations == 0);
        }
    }
}

int main(void)
{
    int file = poet_file_open("store.bin", POET_FILE_READ);
    CHECK(file >= 0 && poet_file_read(file, image, sizeof image) == POET_OK);
    (void)poet_file_close(file);
    file = poet_file_open("data.bin", POET_FILE_READ);
    CHECK(file >= 0 && poet_file_read(file, input, sizeof input) == POET_OK);
    (void)poet_file_close(file);
    CHECK(sizeof(float) * JOIN(UPPER, PARAMS) <= MAX_PARAMS_BYTES);
    check(train_and_save);
    check(set);
    check(save_another_seed);
    return 0;
}
