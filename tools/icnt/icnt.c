/* icnt.c: a QEMU plugin that counts the instructions a Cortex-M executes: exactly, per address.
 *
 *     gcc -O2 -shared -fPIC -fvisibility=hidden -o icnt.so icnt.c
 *     qemu-system-arm ... -plugin ./icnt.so,out=/absolute/counts.txt[,kill=N]
 *
 * Counting is per translation block, which costs little: its instructions are known, so each run of the block
 * adds its length (one that a fault leaves half way is counted whole). `kill=N` ends QEMU, exit code 137, at the
 * first block that begins after N instructions or more: a power cut that can be repeated. The output, one record
 * a line:
 *
 *     M id count            the mark `id` (mark.h) was passed after `count` instructions
 *     T count               instructions in all
 *     A address size count  how often the instruction at `address` (hexadecimal) of `size` bytes was executed
 *     K count               killed here; no T and A follow
 */
#include "qemu_plugin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = 1;
QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
                                           char **argv);

struct instruction {
    struct instruction *next; /* of the same bucket */
    uint64_t address;
    unsigned size; /* bytes */
    uint64_t count;
};

/* A translation block. QEMU may translate the same addresses again; the counts are added up at the end. */
struct block {
    struct block *next;
    uint64_t count;
    size_t length;
    struct instruction *instructions[];
};

struct mark {
    unsigned id;
    unsigned ahead; /* of its block from the mark on: counted when the block began, not executed yet */
};

enum { BUCKETS = 1 << 16, KILLED = 137 /* as a shell says it of a process killed by signal 9 */ };

static struct instruction *buckets[BUCKETS];
static struct block *blocks;
static uint64_t total, kill_after;
static FILE *out;

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL) abort();
    return memory;
}

static struct instruction *instruction_at(uint64_t address, unsigned size)
{
    struct instruction **link = &buckets[(address >> 1) % BUCKETS];
    for (; *link != NULL; link = &(*link)->next) {
        if ((*link)->address == address) return *link;
    }
    *link = allocate(sizeof **link);
    (*link)->address = address;
    (*link)->size = size;
    return *link;
}

static void on_mark(unsigned cpu, void *userdata)
{
    const struct mark *mark = userdata;
    (void)cpu;
    (void)fprintf(out, "M %u %" PRIu64 "\n", mark->id, total - mark->ahead);
}

static void on_block(unsigned cpu, void *userdata)
{
    const struct block *block = userdata;
    (void)cpu;
    const uint64_t executed = total - block->length; /* the block is counted, not executed yet */
    if (executed < kill_after) return;
    (void)fprintf(out, "K %" PRIu64 "\n", executed);
    (void)fflush(out);
    _exit(KILLED);
}

/* The id of PLD [SP, #id], or -1. */
static int mark_id(const unsigned char *code, unsigned size)
{
    if (size != 4) return -1;
    const unsigned first = code[0] | (unsigned)code[1] << 8;
    const unsigned second = code[2] | (unsigned)code[3] << 8;
    return first == 0xF89D && (second & 0xF000) == 0xF000 ? (int)(second & 0xFFF) : -1;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *translated)
{
    (void)id;
    const size_t length = qemu_plugin_tb_n_insns(translated);
    struct block *block = allocate(sizeof *block + length * sizeof block->instructions[0]);
    block->length = length;
    block->next = blocks;
    blocks = block;

    if (kill_after > 0) {
        qemu_plugin_register_vcpu_insn_exec_cb(qemu_plugin_tb_get_insn(translated, 0), on_block,
                                               QEMU_PLUGIN_CB_NO_REGS, block);
    }
    qemu_plugin_register_vcpu_tb_exec_inline(translated, QEMU_PLUGIN_INLINE_ADD_U64, &block->count, 1);
    qemu_plugin_register_vcpu_tb_exec_inline(translated, QEMU_PLUGIN_INLINE_ADD_U64, &total, length);

    for (size_t i = 0; i < length; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(translated, i);
        const unsigned char *code = qemu_plugin_insn_data(insn);
        /* By Thumb's encoding: QEMU's own size can be 2 too large at the end of a page. */
        const unsigned size = code[1] >> 3 >= 0x1D ? 4 : 2;
        block->instructions[i] = instruction_at(qemu_plugin_insn_vaddr(insn), size);
        const int found = mark_id(code, size);
        if (found >= 0) {
            struct mark *mark = allocate(sizeof *mark);
            *mark = (struct mark){ .id = (unsigned)found, .ahead = (unsigned)(length - i) };
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, QEMU_PLUGIN_CB_NO_REGS, mark);
        }
    }
}

static void on_exit_of_qemu(qemu_plugin_id_t id, void *userdata)
{
    (void)id;
    (void)userdata;
    for (const struct block *block = blocks; block != NULL; block = block->next) {
        for (size_t i = 0; i < block->length; i++) block->instructions[i]->count += block->count;
    }
    (void)fprintf(out, "T %" PRIu64 "\n", total);
    for (size_t bucket = 0; bucket < BUCKETS; bucket++) {
        for (const struct instruction *i = buckets[bucket]; i != NULL; i = i->next) {
            if (i->count == 0) continue;
            (void)fprintf(out, "A %" PRIx64 " %u %" PRIu64 "\n", i->address, i->size, i->count);
        }
    }
    (void)fclose(out);
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    const char *name = NULL;
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "out=", 4) == 0) {
            name = argv[i] + 4;
        } else if (strncmp(argv[i], "kill=", 5) == 0) {
            kill_after = strtoull(argv[i] + 5, NULL, 0);
        } else {
            (void)fprintf(stderr, "icnt: %s is not known; use out=FILE and kill=N\n", argv[i]);
            return -1;
        }
    }
    out = name != NULL ? fopen(name, "w") : NULL;
    if (out == NULL) {
        (void)fprintf(stderr, "icnt: cannot write out=%s\n", name != NULL ? name : "");
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, on_exit_of_qemu, NULL);
    return 0;
}
