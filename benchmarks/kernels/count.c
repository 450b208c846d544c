/* count.c: each kernel on typical shapes, between mark 1 and mark 2. Prints a line a case: kernel, shape, the
 * multiply-accumulates of taps inside the image. */
#include "poet/kernels/conv2d.h"
#include "poet/kernels/gemm.h"
#include "poet/platform.h"

#include "mark.h"

static float x[40000], y[40000], w[60000], b[1024];

static void print(const char *text)
{
    while (*text != '\0') poet_platform_putc(*text++);
}

static void print_u32(uint32_t value)
{
    if (value > 9u) print_u32(value / 10u);
    poet_platform_putc((char)('0' + value % 10u));
}

static void report(const char *kernel, const char *shape, uint32_t macs)
{
    print(kernel);
    print(" ");
    print(shape);
    print(" ");
    print_u32(macs);
    print("\n");
}

/* Taps inside the image, along one axis, over all output positions. */
static int32_t inside(int32_t in, int32_t out, int32_t kernel, int32_t stride, int32_t pad)
{
    int32_t n = 0;

    for (int32_t p = 0; p < out; p++) {
        for (int32_t k = 0; k < kernel; k++) {
            const int32_t at = p * stride + k - pad;

            n += at >= 0 && at < in;
        }
    }
    return n;
}

struct shape {
    const char *name;
    int32_t batch, in_c, in_h, in_w, out_c, kernel_h, kernel_w, stride, pad_h, pad_w, groups;
};

static const struct shape shapes[] = {
    { "3x3,8->16,16x16", 1, 8, 16, 16, 16, 3, 3, 1, 1, 1, 1 },
    { "3x3,32->32,8x8", 1, 32, 8, 8, 32, 3, 3, 1, 1, 1, 1 },
    { "3x3,32->32,4x4", 1, 32, 4, 4, 32, 3, 3, 1, 1, 1, 1 },
    { "3x3,16->16,32x32", 1, 16, 32, 32, 16, 3, 3, 1, 1, 1, 1 },
    { "3x3/2,16->32,16x16", 1, 16, 16, 16, 32, 3, 3, 2, 1, 1, 1 },
    { "3x3,3->8,32x32", 1, 3, 32, 32, 8, 3, 3, 1, 1, 1, 1 },
    { "3x3,1->8,28x28", 1, 1, 28, 28, 8, 3, 3, 1, 1, 1, 1 },
    { "3x3,10->10,13x13", 1, 10, 13, 13, 10, 3, 3, 1, 1, 1, 1 },
    { "5x5,6->16,12x12,valid", 1, 6, 12, 12, 16, 5, 5, 1, 0, 0, 1 },
    { "1d-k5,6->16,100", 1, 6, 1, 100, 16, 1, 5, 1, 0, 2, 1 },
    { "1d-k5,16->32,100", 1, 16, 1, 100, 32, 1, 5, 1, 0, 2, 1 },
    { "1d-k5,32->32,50", 1, 32, 1, 50, 32, 1, 5, 1, 0, 2, 1 },
    { "1d-k5,32->32,50,batch8", 8, 32, 1, 50, 32, 1, 5, 1, 0, 2, 1 },
    { "1d-k3,32->32,25", 1, 32, 1, 25, 32, 1, 3, 1, 0, 1, 1 },
    { "1x1,16->32,16x16", 1, 16, 16, 16, 32, 1, 1, 1, 0, 0, 1 },
    { "1x1,64->64,5x5", 1, 64, 5, 5, 64, 1, 1, 1, 0, 0, 1 },
    { "1x1/2,32->64,8x8", 1, 32, 8, 8, 64, 1, 1, 2, 0, 0, 1 },
    { "dw3x3,32,16x16", 1, 32, 16, 16, 32, 3, 3, 1, 1, 1, 32 },
    { "dw3x3,64,5x5", 1, 64, 5, 5, 64, 3, 3, 1, 1, 1, 64 },
    { "dw3x3/2,32,16x16", 1, 32, 16, 16, 32, 3, 3, 2, 1, 1, 32 },
};

static void conv(const struct shape *c)
{
    const int32_t out_h = (c->in_h + 2 * c->pad_h - c->kernel_h) / c->stride + 1;
    const int32_t out_w = (c->in_w + 2 * c->pad_w - c->kernel_w) / c->stride + 1;
    const struct poet_conv2d s = {
        c->batch,
        c->in_c,
        c->in_h,
        c->in_w,
        c->out_c,
        out_h,
        out_w,
        c->kernel_h,
        c->kernel_w,
        c->stride,
        c->stride,
        1,
        1,
        c->pad_h,
        c->pad_w,
        c->groups,
        c->in_c * c->in_h * c->in_w,
        c->in_h * c->in_w,
        c->in_w,
        c->out_c * out_h * out_w,
        out_h * out_w,
        out_w,
        c->in_c / c->groups * c->kernel_h * c->kernel_w,
        c->kernel_h * c->kernel_w,
    };
    const uint32_t macs = (uint32_t)(c->batch * c->out_c * (c->in_c / c->groups) *
                                     inside(c->in_h, out_h, c->kernel_h, c->stride, c->pad_h) *
                                     inside(c->in_w, out_w, c->kernel_w, c->stride, c->pad_w));

    POET_MARK(1);
    poet_conv2d_f32(&s, POET_START_BIAS, x, w, b, y);
    POET_MARK(2);
    report("conv2d", c->name, macs);
    POET_MARK(1);
    poet_conv2d_dx_f32(&s, POET_START_ZERO, w, y, x);
    POET_MARK(2);
    report("conv2d_dx", c->name, macs);
    POET_MARK(1);
    poet_conv2d_dw_f32(&s, POET_START_ZERO, x, y, w);
    POET_MARK(2);
    report("conv2d_dw", c->name, macs);
}

struct layer {
    const char *name;
    int32_t batch, in, out;
};

static const struct layer layers[] = {
    { "64->32,batch8", 8, 64, 32 }, { "512->64,batch8", 8, 512, 64 }, { "64->10,batch8", 8, 64, 10 },
    { "64->32,batch1", 1, 64, 32 }, { "512->64,batch1", 1, 512, 64 }, { "64->10,batch1", 1, 64, 10 },
    { "49->50,batch3", 3, 49, 50 },
};

/* y = x w', w[out][in]; dx = dy w; dw = dy' x. */
static void dense(const struct layer *l)
{
    const int32_t m = l->batch, n = l->out, k = l->in;
    const struct poet_gemm forward = { m, n, k, k, 1, 1, k, n, 1, 0, 1 };
    const struct poet_gemm dx = { m, k, n, n, 1, k, 1, k, 1, 0, 0 };
    const struct poet_gemm dw = { n, k, m, 1, n, k, 1, k, 1, 0, 0 };
    const uint32_t macs = (uint32_t)(m * n * k);

    POET_MARK(1);
    poet_gemm_f32(&forward, POET_START_BIAS, x, w, b, y);
    POET_MARK(2);
    report("gemm", l->name, macs);
    POET_MARK(1);
    poet_gemm_f32(&dx, POET_START_ZERO, y, w, NULL, x);
    POET_MARK(2);
    report("gemm_dx", l->name, macs);
    POET_MARK(1);
    poet_gemm_f32(&dw, POET_START_ZERO, y, x, NULL, w);
    POET_MARK(2);
    report("gemm_dw", l->name, macs);
}

int main(void)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) conv(&shapes[i]);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) dense(&layers[i]);
    return 0;
}
