/* cross_entropy.c: softmax and cross entropy in one. */
#include "poet/kernels/cross_entropy.h"

#include "poet/math.h"

/* The index of the first largest of x[0 .. n - 1]. */
static int32_t first_largest(int32_t n, const float *x)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n; i++) {
        if (x[i] > x[best]) {
            best = i;
        }
    }
    return best;
}

void poet_softmax_cross_entropy_f32(int32_t rows, int32_t classes, const float *logits, const int32_t *label,
                                    float *loss)
{
    float total = 0.0f;

    for (int32_t r = 0; r < rows; r++) {
        const float *const x = logits + r * classes;
        const float max = x[first_largest(classes, x)];
        float sum = 0.0f;

        for (int32_t c = 0; c < classes; c++) {
            sum += poet_expf(x[c] - max);
        }
        total += poet_logf(sum) - (x[label[r]] - max);
    }
    *loss = total / (float)rows;
}

void poet_softmax_cross_entropy_dx_f32(int32_t rows, int32_t classes, const float *logits,
                                       const int32_t *label, float *dlogits)
{
    for (int32_t r = 0; r < rows; r++) {
        const float *const x = logits + r * classes;
        float *const dx = dlogits + r * classes;
        const float max = x[first_largest(classes, x)];
        float sum = 0.0f;

        for (int32_t c = 0; c < classes; c++) {
            const float e = poet_expf(x[c] - max);

            sum += e;
            dx[c] = e;
        }
        for (int32_t c = 0; c < classes; c++) {
            const float p = dx[c] / sum;

            dx[c] = (c == label[r] ? p - 1.0f : p) / (float)rows;
        }
    }
}

void poet_count_correct_f32(int32_t rows, int32_t classes, const float *logits, const int32_t *label,
                            int32_t *count)
{
    int32_t correct = 0;

    for (int32_t r = 0; r < rows; r++) {
        if (first_largest(classes, logits + r * classes) == label[r]) {
            correct++;
        }
    }
    *count = correct;
}
