/* startup.c: from reset to main on every Cortex-M, and what a fault says. */
#include "poet/platform.h"

#define CPACR (*(volatile uint32_t *)0xE000ED88u) /* coprocessor access: the FPU is off after reset */
#define SCB_CFSR (*(volatile uint32_t *)0xE000ED28u)
#define SCB_HFSR (*(volatile uint32_t *)0xE000ED2Cu)

#define EXIT_FAULT 70 /* told from main's own codes; the host's EX_SOFTWARE */

extern uint32_t __data_start[], __data_end[], __bss_start[], __bss_end[], __stack_top[];
extern const uint32_t __data_image[];

int main(void);
void reset_handler(void);
void fault_handler(void);
void fault_report(const uint32_t *frame, uint32_t number);

/* The loops are volatile so that the compiler does not make them calls of memcpy and memset, which may use
 * the FPU. */
__attribute__((noreturn)) void reset_handler(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    CPACR |= 0xFu << 20; /* CP10 and CP11, full access */
    __asm volatile("dsb\n\tisb" ::: "memory");
#endif
    const uint32_t *from = __data_image;
    for (volatile uint32_t *to = __data_start; to < __data_end;) *to++ = *from++;
    for (volatile uint32_t *to = __bss_start; to < __bss_end;) *to++ = 0;
    poet_platform_init();
    poet_platform_exit(main());
    for (;;) {
    }
}

static void print(const char *text)
{
    while (*text != '\0') poet_platform_putc(*text++);
}

static void print_hex(const char *name, uint32_t value)
{
    print(name);
    for (int digit = 0; digit < 8; digit++) {
        poet_platform_putc("0123456789abcdef"[value >> 28]);
        value <<= 4;
    }
}

/* `frame` is what the core pushed: r0-r3, r12, lr, pc, xpsr. */
void fault_report(const uint32_t *frame, uint32_t number)
{
    print_hex("\nfault: exception ", number);
#if __ARM_ARCH_ISA_THUMB >= 2
    print_hex(" CFSR 0x", SCB_CFSR);
    print_hex(" HFSR 0x", SCB_HFSR);
#endif
    const uintptr_t at = (uintptr_t)frame;
    if ((at & 3) == 0 && at + 32 <= (uintptr_t)__stack_top) { /* else the stack pointer was what broke */
        print_hex(" pc 0x", frame[6]);
        print_hex(" lr 0x", frame[5]);
    }
    print("\n");
    poet_platform_exit(EXIT_FAULT);
}

__attribute__((naked)) void fault_handler(void)
{
    __asm volatile("mrs r0, msp\n\t"
                   "mrs r1, ipsr\n\t"
                   "ldr r2, =fault_report\n\t"
                   "bx r2\n\t"
                   ".ltorg");
}

typedef void (*handler)(void);

/* The 15 exceptions of the core; a program that uses interrupts has a table of its own. */
__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    handler reset;
    handler others[14];
} vectors = { __stack_top, reset_handler, { [0 ... 13] = fault_handler } };
