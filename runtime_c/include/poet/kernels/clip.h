/* clip.h: x held between bounds. A NaN passes. In place is allowed. */
#ifndef POET_KERNELS_CLIP_H
#define POET_KERNELS_CLIP_H

#include "poet/poet.h"

void poet_clip_f32(size_t n, float low, float high, const float *x, float *y);
void poet_clip_low_f32(size_t n, float low, const float *x, float *y);
void poet_clip_high_f32(size_t n, float high, const float *x, float *y);
void poet_copy_f32(size_t n, const float *x, float *y);

/* dx = low < y < high ? dy : 0 (a y of NaN lets dy pass) */
void poet_clip_dx_f32(size_t n, float low, float high, const float *y, const float *dy, float *dx);

#endif
