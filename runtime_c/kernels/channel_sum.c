/* channel_sum.c: sum over all but the channel axis. */
#include "poet/kernels/channel_sum.h"

void poet_channel_sum_f32(int32_t batch, int32_t channels, int32_t size, enum poet_start start,
                          const float *dy, float *db)
{
    if (start != POET_CONTINUE) {
        for (int32_t c = 0; c < channels; c++) {
            db[c] = 0.0f;
        }
    }
    for (int32_t n = 0; n < batch; n++) {
        for (int32_t c = 0; c < channels; c++) {
            float sum = db[c];
            int32_t i = size;

            for (; i >= 4; i -= 4) {
                sum += dy[0];
                sum += dy[1];
                sum += dy[2];
                sum += dy[3];
                dy += 4;
            }
            for (; i > 0; i--) {
                sum += *dy++;
            }
            db[c] = sum;
        }
    }
}
