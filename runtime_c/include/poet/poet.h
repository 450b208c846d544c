/* poet.h: results and the few macros that generated code and the runtime share. */
#ifndef POET_POET_H
#define POET_POET_H

#include <stddef.h>
#include <stdint.h>

#if defined(__FAST_MATH__) && !defined(POET_ALLOW_FAST_MATH)
#error "poetgen's arithmetic is the same bits on every core only without -ffast-math (define POET_ALLOW_FAST_MATH to give that up)"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && !defined(POET_ALLOW_FAST_MATH)
#error "floats must be evaluated as float (x87 does not: use -mfpmath=sse)"
#endif

enum poet_result {
    POET_OK = 0,
    POET_EINVAL = -1,     /* an argument is wrong: a null pointer, a misaligned arena */
    POET_ENOMEM = -2,     /* the caller's arena is smaller than NAME_ARENA_BYTES */
    POET_ERANGE = -3,     /* a label or an index is outside its range; nothing was changed */
    POET_ENONFINITE = -4, /* the loss is not finite */
    POET_EARITH = -5,     /* the compiler's flags change float arithmetic (contraction, flush to zero, rounding) */
    POET_EIO = -10,       /* the device failed */
    POET_ENOSPC = -11,    /* the device is smaller than the store */
    POET_EFORMAT = -12,   /* the device holds no poetgen store: format it, or write the image first */
    POET_EVERSION = -13,  /* the store's format version is not ours */
    POET_EMODEL = -14,    /* the store belongs to another model or another plan */
    POET_ECHECK = -15,    /* a page's check word does not match its bytes */
    POET_ESTATE = -16     /* the store is not open, or holds no saved state yet */
};

/* Evaluate EXPR; hand its error to our caller. */
#define POET_TRY(expr)                                                                                       \
    do {                                                                                                     \
        const int poet_rc_ = (expr);                                                                         \
        if (poet_rc_ != POET_OK) return poet_rc_;                                                            \
    } while (0)

/* Stands between the steps of a schedule: kick a watchdog, yield to an RTOS. */
#ifndef POET_YIELD
#define POET_YIELD() ((void)0)
#endif

/* Opens a step of a schedule: its number and what happens, for the reader; a pause, for the watchdog. */
#ifndef POET_STEP
#define POET_STEP(number, what) POET_YIELD();
#endif

/* The residency at OFFSET bytes in an arena. */
#define POET_AT(type, arena, offset) ((type *)(void *)((arena) + (offset)))

/* Bytes behind the static arena, for tests that look who writes there. */
#ifndef POET_ARENA_GUARD
#define POET_ARENA_GUARD 0
#endif

/* False for Inf and NaN. */
#define POET_IS_FINITE(x) ((x) - (x) == 0.0f)

/* Where a project wants its arena: __attribute__((section(".ccmram"))), say. */
#ifndef POET_ARENA_ATTR
#define POET_ARENA_ATTR
#endif

/* What NAME_evaluate adds to. */
struct poet_metrics {
    float loss_sum;   /* sum over samples of their loss */
    uint32_t count;   /* samples */
    uint32_t correct; /* samples whose first largest output is the label (classification only) */
};

/* Where a stream of bytes goes, and where one comes from: all bytes or a negative result. */
typedef int (*poet_sink)(void *context, const void *bytes, size_t size);
typedef int (*poet_source)(void *context, void *bytes, size_t size);

#ifdef __cplusplus
extern "C" {
#endif

/* The arithmetic self-test, compiled with the kernels' own flags: 0 or POET_EARITH. */
int poet_arith_check(void);

#ifdef __cplusplus
}
#endif

#endif
