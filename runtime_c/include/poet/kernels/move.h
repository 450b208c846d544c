/* move.h: blocks of elements to another place. */
#ifndef POET_KERNELS_MOVE_H
#define POET_KERNELS_MOVE_H

#include "poet/poet.h"

/* Four loops; x and y: how far each moves there. They begin at element x_at and y_at. */
struct poet_move {
    int32_t size0, size1, size2, size3;
    int32_t x0, x1, x2, x3;
    int32_t y0, y1, y2, y3;
    int32_t x_at, y_at;
};

void poet_move_f32(const struct poet_move *s, const float *x, float *y);
void poet_move_u8(const struct poet_move *s, const uint8_t *x, uint8_t *y);

/* y = value */
void poet_fill_f32(size_t n, float value, float *y);

#endif
