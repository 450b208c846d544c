/* dropout.c: dropout by counter. */
#include "poet/kernels/dropout.h"

/* Philox-4x32-10: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011. */
static void philox(uint32_t c[4], uint32_t key0, uint32_t key1)
{
    for (int32_t round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * c[0];
        const uint64_t b = (uint64_t)0xcd9e8d57u * c[2];

        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ key0;
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ key1;
        c[3] = (uint32_t)a;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
}

void poet_dropout_f32(const struct poet_dropout *s, int32_t seed, int32_t step, const float *x, float *y)
{
    for (int32_t i = 0; i < s->size; i += 4) {
        uint32_t word[4] = { (uint32_t)i / 4, (uint32_t)s->node, (uint32_t)step, 0 };
        const int32_t n = s->size - i < 4 ? s->size - i : 4;

        philox(word, (uint32_t)seed, 0);
        for (int32_t j = 0; j < n; j++) { /* times 0 and not 0: a NaN passes */
            y[i + j] = x[i + j] * ((int32_t)(word[j] >> 8) >= s->keep_from ? s->scale : 0.0f);
        }
    }
}
