/* start.c: reset, and output by semihosting, for test programs on QEMU's mps2 machines. */
#include "bare.h"

extern uint32_t bare_stack_top, bare_bss_start, bare_bss_end, bare_data_start, bare_data_end, bare_data_load;
int main(void);
void bare_reset(void);

static int semihosting(int operation, const void *argument)
{
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;

    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void bare_print(const char *text)
{
    (void)semihosting(0x04, text);
}

void bare_print_u32(uint32_t value)
{
    char digits[11];
    char *at = digits + 10;

    *at = '\0';
    do {
        *--at = (char)('0' + value % 10u);
        value /= 10u;
    } while (value != 0u);
    bare_print(at);
}

void bare_exit(int code)
{
    const uint32_t block[2] = { 0x20026u, (uint32_t)code }; /* ADP_Stopped_ApplicationExit */

    for (;;) (void)semihosting(0x20, block);
}

static void fault(void)
{
    bare_print("fault\n");
    bare_exit(99);
}

void bare_reset(void)
{
    const uint32_t *from = &bare_data_load;

    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* CPACR: the FPU, where there is one */
    __asm__ volatile("dsb\n isb" ::: "memory");
    for (uint32_t *to = &bare_data_start; to < &bare_data_end;) *to++ = *from++;
    for (uint32_t *to = &bare_bss_start; to < &bare_bss_end;) *to++ = 0;
    bare_exit(main());
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void)) & bare_stack_top, bare_reset, fault, fault, fault, fault, fault,
};
