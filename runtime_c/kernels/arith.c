/* arith.c: does this compiler, with these flags, on this core, add and multiply as the plan's arithmetic
 * does?
 *
 * Compiled with the kernels' own flags. What is compared comes from volatile objects, so that the core
 * computes it and not the compiler, which would round correctly whatever the flags say. */
#include "poet/poet.h"

#ifndef POET_ALLOW_FAST_MATH

#define LANES 16 /* as many as any vectoriser takes at once */

static float hidden(float value)
{
    volatile float v = value;

    return v;
}

/* A product and a sum in one expression, as in the kernels: fused, the product would keep its low bits. */
static int contracts(void)
{
    const float a = hidden(0x1.001p0f), b = hidden(0x1.001p0f); /* a b = 1 + 2^-11 + 2^-24, a tie */
    float sum = hidden(-0x1.002p0f);

    sum += a * b;
    return sum != 0.0f;
}

/* Subnormals as operands and as results, one at a time and in a loop that a compiler may give to vector
 * units, which may flush where scalar ones do not. */
static int flushes(void)
{
    volatile float in[LANES];
    float x[LANES], half[LANES], sum[LANES];
    const float tiny = hidden(0x1p-126f), factor = hidden(0.5f);

    if (tiny * factor == 0.0f) return 1;
    for (int i = 0; i < LANES; i++) in[i] = 0x1.8p-126f;
    for (int i = 0; i < LANES; i++) x[i] = in[i];
    for (int i = 0; i < LANES; i++) half[i] = x[i] * factor; /* subnormal */
    for (int i = 0; i < LANES; i++) sum[i] = half[i] + half[i];
    for (int i = 0; i < LANES; i++) {
        in[i] = half[i];
        if (in[i] != 0x1.8p-127f) return 1;
        in[i] = sum[i];
        if (in[i] != 0x1.8p-126f) return 1;
    }
    return 0;
}

/* To nearest, ties to even. */
static int rounds_otherwise(void)
{
    const float one = hidden(1.0f), half_ulp = hidden(0x1p-24f), three_halves = hidden(0x1.8p-23f);

    if (one + half_ulp != 1.0f || one + three_halves != 0x1.000004p0f) return 1;
    return -one - half_ulp != -1.0f || -one - three_halves != -0x1.000004p0f;
}

/* Sums in another order, divisions as products, the sign of a zero lost: the parts of -ffast-math come alone,
 * too. */
static int rewrites(void)
{
    const float big = hidden(0x1p25f), one = hidden(1.0f), ten = hidden(10.0f);
    const float quotient[] = { hidden(9.0f) / ten, hidden(13.0f) / ten, hidden(18.0f) / ten };
    const volatile float sum = 0.0f + hidden(-0.0f);

    if ((one + big) - big != 0.0f) return 1;
    if (quotient[0] != 0x1.ccccccp-1f || quotient[1] != 0x1.4cccccp0f || quotient[2] != 0x1.ccccccp0f)
        return 1;
    return one / sum < 0.0f; /* 1 / -0 is -infinity */
}

int poet_arith_check(void)
{
    return contracts() || flushes() || rounds_otherwise() || rewrites() ? POET_EARITH : POET_OK;
}

#else

int poet_arith_check(void)
{
    return POET_OK;
}

#endif
