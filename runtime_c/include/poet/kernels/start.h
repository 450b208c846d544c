/* start.h: where a kernel's sums begin. A sum cut into consecutive pieces gives the same bits as the whole
 * one. */
#ifndef POET_KERNELS_START_H
#define POET_KERNELS_START_H

#include "poet/poet.h"

enum poet_start {
    POET_START_ZERO, /* +0.0f */
    POET_START_BIAS, /* 0.0f + bias, which turns a bias of -0 into +0; a null bias is zero */
    POET_CONTINUE    /* what is in the output */
};

/* For speed alone: what must see constants, and inner loops that need all registers for themselves. */
#if defined(__GNUC__)
#define POET_INLINE static inline __attribute__((always_inline))
#define POET_NOINLINE static __attribute__((noinline))
#else
#define POET_INLINE static inline
#define POET_NOINLINE static
#endif

#endif
