/* softmax.c: softmax and its logarithm. */
#include "poet/kernels/softmax.h"

#include "poet/math.h"

/* The first largest of n numbers that lie `step` apart. */
static float largest(int32_t n, int32_t step, const float *x)
{
    float max = x[0];

    for (int32_t k = 1; k < n; k++) {
        if (x[k * step] > max) {
            max = x[k * step];
        }
    }
    return max;
}

void poet_softmax_f32(int32_t rows, int32_t n, int32_t inner, const float *x, float *y)
{
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t i = 0; i < inner; i++) {
            const float *const from = x + r * n * inner + i;
            float *const to = y + r * n * inner + i;
            const float max = largest(n, inner, from);
            float sum = 0.0f;

            for (int32_t k = 0; k < n; k++) {
                const float e = poet_expf(from[k * inner] - max);

                sum += e;
                to[k * inner] = e;
            }
            for (int32_t k = 0; k < n; k++) {
                to[k * inner] /= sum;
            }
        }
    }
}

void poet_softmax_dx_f32(int32_t rows, int32_t n, int32_t inner, const float *y, const float *dy,
                         float *dx)
{
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t i = 0; i < inner; i++) {
            const int32_t at = r * n * inner + i;
            float sum = 0.0f;

            for (int32_t k = 0; k < n; k++) {
                sum += dy[at + k * inner] * y[at + k * inner];
            }
            for (int32_t k = 0; k < n; k++) {
                dx[at + k * inner] = y[at + k * inner] * (dy[at + k * inner] - sum);
            }
        }
    }
}

void poet_log_softmax_f32(int32_t rows, int32_t n, int32_t inner, const float *x, float *y)
{
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t i = 0; i < inner; i++) {
            const float *const from = x + r * n * inner + i;
            float *const to = y + r * n * inner + i;
            const float max = largest(n, inner, from);
            float sum = 0.0f, logarithm;

            for (int32_t k = 0; k < n; k++) {
                sum += poet_expf(from[k * inner] - max);
            }
            logarithm = poet_logf(sum);
            for (int32_t k = 0; k < n; k++) {
                to[k * inner] = (from[k * inner] - max) - logarithm;
            }
        }
    }
}

void poet_log_softmax_dx_f32(int32_t rows, int32_t n, int32_t inner, const float *y, const float *dy,
                             float *dx)
{
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t i = 0; i < inner; i++) {
            const int32_t at = r * n * inner + i;
            float sum = 0.0f;

            for (int32_t k = 0; k < n; k++) {
                sum += dy[at + k * inner];
            }
            for (int32_t k = 0; k < n; k++) {
                dx[at + k * inner] = dy[at + k * inner] - poet_expf(y[at + k * inner]) * sum;
            }
        }
    }
}
