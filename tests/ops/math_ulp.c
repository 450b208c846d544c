/* math_ulp.c: the runtime's functions against libm's in double, over runs of bit patterns. */
#include "poet/math.h"

#include <math.h>
#include <string.h>

typedef float (*function)(float);
typedef double (*truth)(double);

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* The distance of y from t in units of the last place that a float of t's size has. */
static double ulp(float y, double t)
{
    int e;

    if (isnan(t) || isnan(y)) return isnan(t) && isnan(y) ? 0.0 : INFINITY;
    if (isinf(y) || (float)t == y) return (float)t == y ? 0.0 : INFINITY;
    frexp(t, &e);
    return fabs((double)y - t) / ldexp(1.0, e < -125 ? -149 : e - 24);
}

/* The largest error over bit patterns first, first + stride, ...; *where is one with it. */
double worst_ulp(int32_t which, uint64_t first, uint64_t stride, uint32_t *where);
double worst_ulp(int32_t which, uint64_t first, uint64_t stride, uint32_t *where)
{
    static const function f[] = { poet_sqrtf, poet_expf, poet_logf, poet_tanhf, poet_erff, poet_sigmoidf };
    static const truth t[] = { sqrt, exp, log, tanh, erf, sigmoid };
    double worst = -1.0;

    for (uint64_t i = first; i < UINT64_C(1) << 32; i += stride) {
        const uint32_t u = (uint32_t)i;
        float x;
        double error;

        memcpy(&x, &u, sizeof x);
        error = ulp(f[which](x), t[which]((double)x));
        if (error > worst) {
            worst = error;
            *where = u;
        }
    }
    return worst;
}

/* y[i] = f(the float whose bits are first + i stride) */
void tabulate(int32_t which, uint32_t first, uint32_t stride, uint32_t n, float *y);
void tabulate(int32_t which, uint32_t first, uint32_t stride, uint32_t n, float *y)
{
    static const function f[] = { poet_sqrtf, poet_expf, poet_logf, poet_tanhf, poet_erff, poet_sigmoidf };

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t u = first + i * stride;
        float x;

        memcpy(&x, &u, sizeof x);
        y[i] = f[which](x);
    }
}
