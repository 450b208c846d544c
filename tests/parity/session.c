/* session.c: plays a script on a generated model, in place of the project's own main.c. The test puts
 * MODEL, HEADER, INPUT_BYTES and LABEL_BYTES above it.
 *
 * script.bin holds commands of two words, in order; what each returned goes to answers.bin, with the model's
 * step after it. Training step k takes batch k of data.bin. */
#include HEADER

#include "poet/platform.h"

#include "runtime/blockdev/file.h"

#define JOINED(a, b) a##_##b
#define JOIN(a, b) JOINED(a, b)
#define CALL(function) JOIN(MODEL, function)

enum command {
    INIT,        /* with the store of store.bin; argument 0: without */
    SEED,        /* := argument */
    TRAIN,       /* argument: how many steps */
    SAVE,        /* */
    LOAD,        /* */
    COMMIT_BOTH, /* each training step saves */
    GET,         /* parameters to params.bin */
    SET,         /* parameters from new.bin; argument: bytes after which the source fails */
    INFER        /* on batch `argument`; the output to out.bin */
};

struct source {
    int file;
    uint32_t left;
};

static struct MODEL model;
static _Alignas(8) unsigned char input[INPUT_BYTES], label[LABEL_BYTES];
static struct poet_file_dev card;
static uint32_t answers[2 * 64];

static int read_batch(uint32_t batch)
{
    const int file = poet_file_open("data.bin", POET_FILE_READ);
    if (file < 0) return file;
    POET_TRY(poet_file_seek(file, batch * (INPUT_BYTES + LABEL_BYTES)));
    POET_TRY(poet_file_read(file, input, INPUT_BYTES));
    POET_TRY(poet_file_read(file, label, LABEL_BYTES));
    return poet_file_close(file);
}

static int train(uint32_t steps)
{
    const struct CALL(inputs) in = { (const void *)input };
    for (uint32_t k = 0; k < steps; k++) {
        float loss;
        POET_TRY(read_batch(model.step));
        POET_TRY(CALL(train_step)(&model, &in, (const void *)label, LR, &loss));
    }
    return POET_OK;
}

static int infer(uint32_t batch)
{
    static float out[OUTPUTS];
    const struct CALL(inputs) in = { (const void *)input };
    POET_TRY(read_batch(batch));
    POET_TRY(CALL(infer)(&model, &in, out));
    const int file = poet_file_open("out.bin", POET_FILE_WRITE);
    if (file < 0) return file;
    POET_TRY(poet_file_write(file, out, sizeof out));
    return poet_file_close(file);
}

static int to_file(void *context, const void *bytes, size_t size)
{
    return poet_file_write(*(const int *)context, bytes, (uint32_t)size);
}

static int from_file(void *context, void *bytes, size_t size)
{
    struct source *source = context;
    if (source->left < size) return POET_ERANGE;
    source->left -= (uint32_t)size;
    return poet_file_read(source->file, bytes, (uint32_t)size);
}

static int get(void)
{
    int file = poet_file_open("params.bin", POET_FILE_WRITE);
    if (file < 0) return file;
    POET_TRY(CALL(get_params)(&model, to_file, &file));
    return poet_file_close(file);
}

static int set(uint32_t bytes)
{
    struct source source = { poet_file_open("new.bin", POET_FILE_READ), bytes };
    if (source.file < 0) return source.file;
    POET_TRY(CALL(set_params)(&model, from_file, &source));
    return poet_file_close(source.file);
}

static int play(uint32_t command, uint32_t argument)
{
    switch (command) {
    case INIT:
        if (argument == 0) return CALL(init)(&model, NULL, 0, NULL);
        POET_TRY(poet_file_dev_open(&card, "store.bin", SECTOR_BYTES));
        return CALL(init)(&model, NULL, 0, &card.dev);
    case SEED: model.seed = argument; return POET_OK;
    case TRAIN: return train(argument);
    case SAVE: return CALL(save)(&model);
    case LOAD: return CALL(load)(&model);
    case COMMIT_BOTH: model.commits |= POET_PART_RAM; return POET_OK;
    case GET: return get();
    case SET: return set(argument);
    case INFER: return infer(argument);
    default: return POET_EINVAL;
    }
}

static int play_script(void)
{
    static uint32_t script[1 + 2 * 32]; /* commands, then pairs */
    int file = poet_file_open("script.bin", POET_FILE_READ);
    if (file < 0) return 1;
    if (poet_file_read(file, script, sizeof script) != POET_OK) return 2;
    (void)poet_file_close(file);
    for (uint32_t k = 0; k < script[0]; k++) {
        answers[2 * k] = (uint32_t)play(script[1 + 2 * k], script[2 + 2 * k]);
        answers[2 * k + 1] = model.step;
    }
    file = poet_file_open("answers.bin", POET_FILE_WRITE);
    if (file < 0) return 3;
    return poet_file_write(file, answers, 8 * script[0]) == POET_OK ? 0 : 4;
}

int main(void)
{
    poet_platform_init();
    poet_platform_exit(play_script());
    return 0;
}
