/* math.c: the runtime's own functions. */
#include "poet/math.h"

#include <string.h>

static uint32_t bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

static float from_bits(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

/* 2^n for -126 <= n <= 127 */
static float two_to(int32_t n)
{
    return from_bits((uint32_t)(n + 127) << 23);
}

float poet_sqrtf(float x)
{
#if defined(__ARM_FP) && (__ARM_FP & 4)
    float y;

    __asm__("vsqrt.f32 %0, %1" : "=t"(y) : "t"(x));
    return y;
#else
    uint32_t m = bits(x), root = 0, rest = 0;
    int32_t e;

    if (!(x > 0.0f) || m == 0x7f800000u) {
        return x < 0.0f ? from_bits(0x7fc00000u) : x; /* +-0, inf and NaN as they are */
    }
    e = (int32_t)(m >> 23);
    m &= 0x007fffffu;
    if (e == 0) { /* subnormal: the leading one goes where it belongs */
        for (e = 1; m < 0x00800000u; e--) {
            m <<= 1;
        }
    } else {
        m |= 0x00800000u;
    }
    e -= 127;
    m <<= 7; /* x = m 2^(e - 30), m in [2^30, 2^31) */
    if (e & 1) {
        m <<= 1; /* e - 1 is even: m takes the factor */
        e--;
    }
    for (int32_t i = 0; i < 25; i++) { /* digit by digit: 24 bits of root and one to round by */
        rest = (rest << 2) | (m >> 30);
        m <<= 2;
        root <<= 1;
        if (rest > 2 * root) {
            rest -= 2 * root + 1;
            root++;
        }
    }
    root = (root >> 1) + (root & 1); /* a tie cannot be: its square would have too many bits */
    return from_bits(root + ((uint32_t)(e / 2 + 126) << 23));
#endif
}

float poet_expf(float x)
{
    const float log2_e = 0x1.715476p+0f;
    const float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f; /* n ln2_high is exact */
    int32_t n;
    float t, r, p;

    if (x != x) {
        return x;
    }
    if (x > 0x1.62e42ep+6f) {
        return from_bits(0x7f800000u);
    }
    if (x < -0x1.9fe368p+6f) {
        return 0.0f;
    }
    t = x * log2_e;
    n = (int32_t)(t < 0.0f ? t - 0.5f : t + 0.5f);
    r = (x - (float)n * ln2_high) - (float)n * ln2_low;
    /* e^r - 1 - r on |r| <= ln2 / 2, within 1e-8 */
    p = 0x1.120b68p-7f + r * 0x1.6d7522p-10f;
    p = 0x1.5554b8p-5f + r * p;
    p = 0x1.5554dcp-3f + r * p;
    p = 0.5f + r * p;
    p = 1.0f + (r + (r * r) * p);
    /* in two factors: 2^n itself need not be a normal float */
    return (p * two_to(n / 2)) * two_to(n - n / 2);
}

float poet_logf(float x)
{
    const float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f; /* e ln2_high is exact */
    int32_t e = 0;
    uint32_t u;
    float f, s, z, half, p, k;

    if (x != x || bits(x) == 0x7f800000u) {
        return x;
    }
    if (x <= 0.0f) {
        return from_bits(x < 0.0f ? 0x7fc00000u : 0xff800000u);
    }
    if (bits(x) < 0x00800000u) { /* subnormal */
        x *= 0x1p25f;
        e = -25;
    }
    /* x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2) */
    u = bits(x) + (0x3f800000u - 0x3f3504f3u);
    e += (int32_t)(u >> 23) - 127;
    f = from_bits((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    /* log(1 + f) = 2 atanh(s) = f - f^2/2 + s (f^2/2 + z p(z)) */
    s = f / (2.0f + f);
    z = s * s;
    half = 0.5f * (f * f);
    p = 0x1.997be6p-2f + z * 0x1.2ef16p-2f;
    p = 0x1.55555cp-1f + z * p;
    k = (float)e;
    return k * ln2_high - ((half - (s * (half + z * p) + k * ln2_low)) - f);
}

float poet_tanhf(float x)
{
    const float a = x < 0.0f ? -x : x;
    float p;

    if (a < 0.55f) {
        const float z = x * x;

        p = 0x1.5d3e22p-6f + z * -0x1.b1ee8ep-8f;
        p = -0x1.b9a2eep-5f + z * p;
        p = 0x1.110ff4p-3f + z * p;
        p = -0x1.555554p-2f + z * p;
        return x + x * (z * p);
    }
    if (x != x) {
        return x;
    }
    p = a > 10.0f ? 1.0f : 1.0f - 2.0f / (poet_expf(2.0f * a) + 1.0f);
    return x < 0.0f ? -p : p;
}

float poet_erff(float x)
{
    const float a = x < 0.0f ? -x : x;
    float p;

    if (a < 0.875f) {
        const float z = x * x;

        p = -0x1.b3a6d2p-11f + z * 0x1.7e97fcp-14f;
        p = 0x1.55c152p-8f + z * p;
        p = -0x1.b82618p-6f + z * p;
        p = 0x1.ce2f06p-4f + z * p;
        p = -0x1.812746p-2f + z * p;
        return x + x * (0x1.06eba8p-3f + z * p); /* 2 / sqrt(pi) - 1 */
    }
    if (x != x) {
        return x;
    }
    if (a > 4.0f) {
        p = 1.0f;
    } else { /* 1 - erf = e^p on 0.875 .. 4 */
        p = -0x1.95516ap-9f + a * 0x1.a5875cp-13f;
        p = 0x1.6f55ccp-6f + a * p;
        p = -0x1.ab5398p-4f + a * p;
        p = -0x1.460262p-1f + a * p;
        p = -0x1.20c06ep+0f + a * p;
        p = -0x1.180f10p-13f + a * p;
        p = 1.0f - poet_expf(p);
    }
    return x < 0.0f ? -p : p;
}

float poet_sigmoidf(float x)
{
    float e;

    if (x < 0.0f) { /* e^x and not e^-x: that would overflow */
        e = poet_expf(x);
        return e / (1.0f + e);
    }
    return 1.0f / (1.0f + poet_expf(-x));
}
