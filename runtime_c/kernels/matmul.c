/* matmul.c: products of stacks of matrices. */
#include "poet/kernels/matmul.h"

#include "poet/kernels/gemm.h"

void poet_matmul_f32(const struct poet_matmul *s, const float *x, const float *w, float *y)
{
    const enum poet_start start = s->zeroed != 0 ? POET_CONTINUE : POET_START_ZERO;
    const struct poet_gemm one = {
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .x_row = s->x_row,
        .x_col = s->x_col,
        .w_row = s->w_row,
        .w_col = s->w_col,
        .y_row = s->y_row,
        .y_col = s->y_col,
    };

    for (int32_t i = 0; i < s->zeroed; i++) y[i] = 0.0f;
    for (int32_t h = 0; h < s->size0; h++) {
        for (int32_t i = 0; i < s->size1; i++) {
            for (int32_t j = 0; j < s->size2; j++) {
                const float *a = x + h * s->x0 + i * s->x1 + j * s->x2;
                const float *b = w + h * s->w0 + i * s->w1 + j * s->w2;
                float *to = y + h * s->y0 + i * s->y1 + j * s->y2;

                for (int32_t l = 0; l < s->size3; l++) {
                    poet_gemm_f32(&one, start, a, b, NULL, to);
                    a += s->x3;
                    b += s->w3;
                    to += s->y3;
                }
            }
        }
    }
}
