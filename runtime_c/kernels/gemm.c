/* gemm.c: y = x w, each element one sequential sum over k.
 *
 * Four rows by four columns of sums stay in registers, so that 8 loads serve 16 multiply-adds; no sum is ever
 * split. Loads are cheap where an operand's neighbours along k, or across the tile, follow each other in
 * memory, so each such pair has its own inner loop. */
#include "poet/kernels/gemm.h"

/* y[i][j] = y[i][j], or 0, + sum over k of a[i][k] b[k][j]. */
struct product {
    int32_t k, go_on;
    const float *a, *b;
    float *y;
    int32_t a_row, a_col, b_row, b_col, y_row, y_col;
};

/* One sum for each of 4 rows. */
struct four {
    float a, b, c, d;
};

POET_INLINE void mac4(struct four *sum, struct four k, float v)
{
    sum->a += k.a * v;
    sum->b += k.b * v;
    sum->c += k.c * v;
    sum->d += k.d * v;
}

/* Rows i .. i + 3, all columns by fours. The strides are those of p, or what is known of them when compiling.
 */
POET_INLINE void rows4(const struct product *p, int32_t i, int32_t n, int32_t a_row, int32_t a_col,
                       int32_t b_row, int32_t b_col, int32_t y_col)
{
    const float *const a = p->a + i * p->a_row;
    const float *b = p->b;
    float *y0 = p->y + i * p->y_row, *y1 = y0 + p->y_row, *y2 = y1 + p->y_row, *y3 = y2 + p->y_row;

    for (; n >= 4; n -= 4) {
        const float *a0 = a, *a1 = a0 + a_row, *a2 = a1 + a_row, *a3 = a2 + a_row;
        const float *b0 = b, *b1 = b0 + b_col, *b2 = b1 + b_col, *b3 = b2 + b_col;
        struct four s0 = { 0.0f, 0.0f, 0.0f, 0.0f }, s1 = s0, s2 = s0, s3 = s0;

        if (p->go_on) {
            s0 = (struct four){ y0[0], y1[0], y2[0], y3[0] };
            s1 = (struct four){ y0[y_col], y1[y_col], y2[y_col], y3[y_col] };
            s2 = (struct four){ y0[2 * y_col], y1[2 * y_col], y2[2 * y_col], y3[2 * y_col] };
            s3 = (struct four){ y0[3 * y_col], y1[3 * y_col], y2[3 * y_col], y3[3 * y_col] };
        }
        for (int32_t k = p->k; k > 0; k--) {
            const struct four v = { *a0, *a1, *a2, *a3 };

            mac4(&s0, v, *b0);
            mac4(&s1, v, *b1);
            mac4(&s2, v, *b2);
            mac4(&s3, v, *b3);
            a0 += a_col, a1 += a_col, a2 += a_col, a3 += a_col;
            b0 += b_row, b1 += b_row, b2 += b_row, b3 += b_row;
        }
        y0[0] = s0.a, y1[0] = s0.b, y2[0] = s0.c, y3[0] = s0.d;
        y0[y_col] = s1.a, y1[y_col] = s1.b, y2[y_col] = s1.c, y3[y_col] = s1.d;
        y0[2 * y_col] = s2.a, y1[2 * y_col] = s2.b, y2[2 * y_col] = s2.c, y3[2 * y_col] = s2.d;
        y0[3 * y_col] = s3.a, y1[3 * y_col] = s3.b, y2[3 * y_col] = s3.c, y3[3 * y_col] = s3.d;
        y0 += 4 * y_col, y1 += 4 * y_col, y2 += 4 * y_col, y3 += 4 * y_col;
        b += 4 * b_col;
    }
}

POET_INLINE struct four next4(const float *v)
{
    return (struct four){ v[0], v[1], v[2], v[3] };
}

/* One row, all columns by eights, then by fours. across: b_col is known to be 1. */
POET_INLINE void row1(const struct product *p, int32_t i, int32_t n, int32_t a_col, int32_t b_row,
                      int32_t b_col, int32_t across)
{
    const int32_t y_col = p->y_col;
    const float *const row = p->a + i * p->a_row, *b = p->b;
    float *y = p->y + i * p->y_row;

    while (n >= 4) {
        const int32_t wide = n >= 8;
        const float *a = row;
        const float *b0 = b, *b1 = b0 + b_col, *b2 = b1 + b_col, *b3 = b2 + b_col;
        struct four s = { 0.0f, 0.0f, 0.0f, 0.0f }, u = s;

        if (p->go_on) s = (struct four){ y[0], y[y_col], y[2 * y_col], y[3 * y_col] };
        if (wide) {
            const float *b4 = b3 + b_col, *b5 = b4 + b_col, *b6 = b5 + b_col, *b7 = b6 + b_col;

            if (p->go_on) u = (struct four){ y[4 * y_col], y[5 * y_col], y[6 * y_col], y[7 * y_col] };
            for (int32_t k = p->k; k > 0; k--) {
                mac4(&s, across ? next4(b0) : (struct four){ *b0, *b1, *b2, *b3 }, *a);
                mac4(&u, across ? next4(b0 + 4) : (struct four){ *b4, *b5, *b6, *b7 }, *a);
                a += a_col;
                b0 += b_row, b1 += b_row, b2 += b_row, b3 += b_row;
                b4 += b_row, b5 += b_row, b6 += b_row, b7 += b_row;
            }
            y[4 * y_col] = u.a, y[5 * y_col] = u.b, y[6 * y_col] = u.c, y[7 * y_col] = u.d;
        } else {
            for (int32_t k = p->k; k > 0; k--) {
                mac4(&s, across ? next4(b0) : (struct four){ *b0, *b1, *b2, *b3 }, *a);
                a += a_col;
                b0 += b_row, b1 += b_row, b2 += b_row, b3 += b_row;
            }
        }
        y[0] = s.a, y[y_col] = s.b, y[2 * y_col] = s.c, y[3 * y_col] = s.d;
        y += (wide ? 8 : 4) * y_col;
        b += (wide ? 8 : 4) * b_col;
        n -= wide ? 8 : 4;
    }
}

/* Along k in both; along k in a, across in b; across in both; any. */
POET_NOINLINE void rows4_along(const struct product *p, int32_t i, int32_t n)
{
    rows4(p, i, n, p->a_row, 1, 1, p->b_col, 1);
}

POET_NOINLINE void rows4_mixed(const struct product *p, int32_t i, int32_t n)
{
    rows4(p, i, n, p->a_row, 1, p->b_row, 1, 1);
}

POET_NOINLINE void rows4_across(const struct product *p, int32_t i, int32_t n)
{
    rows4(p, i, n, 1, p->a_col, p->b_row, 1, 1);
}

POET_NOINLINE void rows4_any(const struct product *p, int32_t i, int32_t n)
{
    rows4(p, i, n, p->a_row, p->a_col, p->b_row, p->b_col, p->y_col);
}

POET_NOINLINE void row1_along(const struct product *p, int32_t i, int32_t n)
{
    row1(p, i, n, 1, 1, p->b_col, 0);
}

POET_NOINLINE void row1_across(const struct product *p, int32_t i, int32_t n)
{
    row1(p, i, n, p->a_col, p->b_row, 1, 1);
}

POET_NOINLINE void row1_any(const struct product *p, int32_t i, int32_t n)
{
    row1(p, i, n, p->a_col, p->b_row, p->b_col, 0);
}

static void rows(const struct product *p, int32_t m, int32_t n)
{
    void (*four_rows)(const struct product *, int32_t, int32_t) = rows4_any;
    void (*one_row)(const struct product *, int32_t, int32_t) = row1_any;
    int32_t i = 0;

    if (p->y_col == 1 && p->a_col == 1) {
        if (p->b_row == 1) {
            four_rows = rows4_along;
        } else if (p->b_col == 1) {
            four_rows = rows4_mixed;
        }
    } else if (p->y_col == 1 && p->a_row == 1 && p->b_col == 1) {
        four_rows = rows4_across;
    }
    if (p->b_col == 1) {
        one_row = row1_across;
    } else if (p->b_row == 1 && p->a_col == 1) {
        one_row = row1_along;
    }
    for (; m - i >= 4; i += 4) four_rows(p, i, n);
    for (; i < m; i++) one_row(p, i, n);
}

void poet_gemm_f32(const struct poet_gemm *s, enum poet_start start, const float *x, const float *w,
                   const float *b, float *y)
{
    const int32_t n4 = s->n / 4 * 4, m4 = s->m / 4 * 4;
    struct product p = {
        .k = s->k,
        .go_on = start == POET_CONTINUE || (start == POET_START_BIAS && b != NULL),
        .a = x,
        .b = w,
        .y = y,
        .a_row = s->x_row,
        .a_col = s->x_col,
        .b_row = s->w_row,
        .b_col = s->w_col,
        .y_row = s->y_row,
        .y_col = s->y_col,
    };

    if (start == POET_START_BIAS && b != NULL) {
        for (int32_t i = 0; i < s->m; i++) {
            for (int32_t j = 0; j < s->n; j++) {
                y[i * s->y_row + j * s->y_col] = 0.0f + b[i * s->b_row + j * s->b_col];
            }
        }
    }
    rows(&p, s->m, n4);
    if (n4 == s->n) return;

    /* The last columns as rows of the transposed product: fours of rows, then what is left of both. */
    if (m4 > 0) {
        const struct product q = {
            .k = p.k,
            .go_on = p.go_on,
            .a = w + n4 * s->w_col,
            .b = x,
            .y = y + n4 * s->y_col,
            .a_row = s->w_col,
            .a_col = s->w_row,
            .b_row = s->x_col,
            .b_col = s->x_row,
            .y_row = s->y_col,
            .y_col = s->y_row,
        };

        rows(&q, s->n - n4, m4);
    }
    for (int32_t i = m4; i < s->m; i++) {
        for (int32_t j = n4; j < s->n; j++) {
            const float *a0 = x + i * s->x_row, *b0 = w + j * s->w_col;
            float *to = y + (i * s->y_row + j * s->y_col);
            float sum = p.go_on ? *to : 0.0f;

            for (int32_t k = s->k; k > 0; k--) {
                sum += *a0 * *b0;
                a0 += s->x_col;
                b0 += s->w_row;
            }
            *to = sum;
        }
    }
}

void poet_gemm_scale_f32(const struct poet_gemm *s, float alpha, float beta, const float *b, float *y)
{
    for (int32_t i = 0; i < s->m; i++) {
        for (int32_t j = 0; j < s->n; j++) {
            float *to = y + (i * s->y_row + j * s->y_col);
            const float scaled = alpha * *to;

            *to = b != NULL ? scaled + beta * b[i * s->b_row + j * s->b_col] : scaled;
        }
    }
}

void poet_scale_f32(size_t n, float factor, const float *x, float *y)
{
    for (; n > 0; n--) *y++ = factor * *x++;
}
