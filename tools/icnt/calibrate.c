/* calibrate.c: one kernel of each class of work, on a layer of ordinary size. CASE says which; 0: none, so that
 * the rest of the program can be taken off. calibrate.py divides the cycles by the work. */
#include "poet/kernels/batchnorm.h"
#include "poet/kernels/channel_sum.h"
#include "poet/kernels/conv2d.h"
#include "poet/kernels/cross_entropy.h"
#include "poet/kernels/gemm.h"
#include "poet/kernels/pool.h"
#include "poet/kernels/relu.h"
#include "poet/kernels/sgd.h"

#include <string.h>

int main(void);

/* 8 -> 16 channels, 3 x 3, padded by 1, 8 x 8; and 16 -> 16 of a sequence of 48, kernel 5: it fits a microbit. */
static const struct poet_conv2d image = {
    .batch = 1,      .in_c = 8,       .in_h = 8,       .in_w = 8,      .out_c = 16,    .out_h = 8,
    .out_w = 8,      .kernel_h = 3,   .kernel_w = 3,   .stride_h = 1,  .stride_w = 1,  .dilation_h = 1,
    .dilation_w = 1, .pad_top = 1,    .pad_left = 1,   .groups = 1,    .x_batch = 512, .x_chan = 64,
    .x_row = 8,      .y_batch = 1024, .y_chan = 64,    .y_row = 8,     .w_out = 72,    .w_in = 9,
};
static const struct poet_conv2d sequence = {
    .batch = 1,      .in_c = 16,     .in_h = 1,        .in_w = 48,     .out_c = 16,    .out_h = 1,
    .out_w = 48,     .kernel_h = 1,  .kernel_w = 5,    .stride_h = 1,  .stride_w = 1,  .dilation_h = 1,
    .dilation_w = 1, .pad_top = 0,   .pad_left = 2,    .groups = 1,    .x_batch = 768, .x_chan = 48,
    .x_row = 48,     .y_batch = 768, .y_chan = 48,     .y_row = 48,    .w_out = 80,    .w_in = 5,
};

/* 8 samples, 16 inputs, 32 outputs: y[8][32] = x[8][16] w[16][32], and its gradients. */
static const struct poet_gemm forward = { 8, 32, 16, 16, 1, 32, 1, 32, 1, 0, 1 };
static const struct poet_gemm dx = { 8, 16, 32, 32, 1, 1, 32, 16, 1, 0, 0 };
static const struct poet_gemm dw = { 16, 32, 8, 1, 16, 32, 1, 32, 1, 0, 0 };

static const struct poet_pool pool = {
    .batch = 1,    .channels = 8, .x_chan = 64,  .x_row = 8,      .y_chan = 16,    .y_row = 4,
    .in_h = 8,     .in_w = 8,     .out_h = 4,      .out_w = 4,      .kernel_h = 2,
    .kernel_w = 2, .stride_h = 2, .stride_w = 2, .dilation_h = 1, .dilation_w = 1,
    .index_chan = 16, .index_row = 4,
};
static const struct poet_batchnorm norm = { .batch = 1, .channels = 8, .size = 64, .eps = 1e-5f };

static float x[768], w[1280], y[1024];
static uint8_t index[512];
static const int32_t label[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };

int main(void)
{
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) x[i] = (float)((int)(i * 37 % 101) - 50) * 0.013f;
    for (size_t i = 0; i < sizeof w / sizeof w[0]; i++) w[i] = (float)(i * 29 % 103 + 1) * 0.017f; /* > 0 */
    for (size_t i = 0; i < sizeof y / sizeof y[0]; i++) y[i] = (float)((int)(i * 23 % 107) - 53) * 0.019f;
    __asm volatile("" : : "r"(x), "r"(w), "r"(y) : "memory"); /* filled in every case */
    switch (CASE) {
    case 1: poet_conv2d_f32(&image, POET_START_BIAS, x, w, x, y); break;
    case 2: poet_conv2d_dx_f32(&image, POET_START_ZERO, w, y, x); break;
    case 3: poet_conv2d_dw_f32(&image, POET_START_ZERO, x, y, w); break;
    case 4: poet_conv2d_f32(&sequence, POET_START_BIAS, x, w, x, y); break;
    case 5: poet_conv2d_dx_f32(&sequence, POET_START_ZERO, w, y, x); break;
    case 6: poet_conv2d_dw_f32(&sequence, POET_START_ZERO, x, y, w); break;
    case 7: poet_gemm_f32(&forward, POET_START_BIAS, x, w, x, y); break;
    case 8: poet_gemm_f32(&dx, POET_START_ZERO, y, w, NULL, x); break;
    case 9: poet_gemm_f32(&dw, POET_START_ZERO, x, y, NULL, w); break;
    case 10: poet_relu_f32(512, x, y); break;
    case 11: poet_relu_dx_f32(512, x, y, w); break;
    case 12: poet_channel_sum_f32(1, 8, 64, POET_START_ZERO, x, y); break;
    case 13: poet_maxpool_f32(&pool, x, y, index); break;
    case 14: poet_maxpool_dx_f32(&pool, y, index, x); break;
    case 15: poet_batchnorm_f32(&norm, x, w, w + 8, w + 16, w + 24, y); break;
    case 16: poet_batchnorm_dx_f32(&norm, y, w, w + 24, x); break;
    case 17: poet_batchnorm_dg_f32(&norm, POET_START_ZERO, y, x, w + 16, w + 24, w + 32); break;
    case 18: poet_softmax_cross_entropy_f32(8, 10, x, label, y); break;
    case 19: poet_softmax_cross_entropy_dx_f32(8, 10, x, label, y); break;
    case 20: poet_sgd_f32(512, 0.01f, x, y); break;
    case 21: poet_momentum_f32(512, 0.01f, 0.9f, x, y, w); break;
    case 22: memcpy(y, x, 2048); break;
    default: break;
    }
    return 0;
}
