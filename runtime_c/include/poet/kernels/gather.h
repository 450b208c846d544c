/* gather.h: rows of tables by ids, and the gradient of the tables. */
#ifndef POET_KERNELS_GATHER_H
#define POET_KERNELS_GATHER_H

#include "poet/poet.h"

/* Tables [rows][inner] one after the other; the same ids for each. A negative id counts from the end. */
struct poet_gather {
    int32_t tables, rows, inner, ids;
};

/* y[table][i] = x[table][id[i]]; a row of NaN where no such row is */
void poet_gather_f32(const struct poet_gather *s, const float *x, const int32_t *id, float *y);

/* dx[table][r] = sum from +0, i ascending, of dy[table][i] where id[i] is r */
void poet_gather_dx_f32(const struct poet_gather *s, const float *dy, const int32_t *id, float *dx);

/* x[table][r] -= lr (that gradient), for the rows that an id names. work: one row. */
void poet_gather_sgd_f32(const struct poet_gather *s, float lr, const float *dy, const int32_t *id,
                         float *work, float *x);

#endif
