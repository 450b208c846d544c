/* semihost.c: an emulated board. A BKPT 0xAB asks the emulator for what a host's operating system would do.
 * The numbers are from Arm's "Semihosting for AArch32 and AArch64". */
#include "poet/platform.h"

#include <string.h>

enum {
    SYS_OPEN = 0x01,
    SYS_CLOSE = 0x02,
    SYS_WRITEC = 0x03,
    SYS_WRITE = 0x05,
    SYS_READ = 0x06,
    SYS_SEEK = 0x0A,
    SYS_FLEN = 0x0C,
    SYS_EXIT_EXTENDED = 0x20
};

#define APPLICATION_EXIT 0x20026u /* with the exit code as its subcode */

static int32_t ask(uint32_t operation, const void *arguments)
{
    register uint32_t r0 __asm("r0") = operation;
    register const void *r1 __asm("r1") = arguments;
    __asm volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return (int32_t)r0;
}

void poet_platform_init(void)
{
}

void poet_platform_putc(char c)
{
    (void)ask(SYS_WRITEC, &c);
}

void poet_platform_exit(int code)
{
    const uint32_t arguments[] = { APPLICATION_EXIT, (uint32_t)code };
    for (;;) (void)ask(SYS_EXIT_EXTENDED, arguments);
}

int poet_file_open(const char *name, enum poet_file_mode mode)
{
    /* As fopen's "rb", "wb" and "r+b". */
    static const uint32_t modes[] = { [POET_FILE_READ] = 1, [POET_FILE_WRITE] = 5, [POET_FILE_UPDATE] = 3 };
    const uint32_t arguments[] = { (uint32_t)(uintptr_t)name, modes[mode], (uint32_t)strlen(name) };
    const int32_t file = ask(SYS_OPEN, arguments);
    return file < 0 ? POET_EIO : file;
}

int poet_file_seek(int file, uint32_t position)
{
    const uint32_t arguments[] = { (uint32_t)file, position };
    return ask(SYS_SEEK, arguments) != 0 ? POET_EIO : POET_OK;
}

/* SYS_READ and SYS_WRITE return how many bytes they did *not* move. */
int poet_file_read(int file, void *buffer, uint32_t bytes)
{
    const uint32_t arguments[] = { (uint32_t)file, (uint32_t)(uintptr_t)buffer, bytes };
    return ask(SYS_READ, arguments) != 0 ? POET_EIO : POET_OK;
}

int poet_file_write(int file, const void *buffer, uint32_t bytes)
{
    const uint32_t arguments[] = { (uint32_t)file, (uint32_t)(uintptr_t)buffer, bytes };
    return ask(SYS_WRITE, arguments) != 0 ? POET_EIO : POET_OK;
}

int poet_file_close(int file)
{
    const uint32_t arguments[] = { (uint32_t)file };
    return ask(SYS_CLOSE, arguments) != 0 ? POET_EIO : POET_OK;
}

int32_t poet_file_size(int file)
{
    const uint32_t arguments[] = { (uint32_t)file };
    const int32_t bytes = ask(SYS_FLEN, arguments);
    return bytes < 0 ? POET_EIO : bytes;
}

/* Stack measurement: the stack grows down from __stack_top to __stack_limit (boards/common/sections.ld). */
extern uint32_t __stack_limit[], __stack_top[];

#define PAINT 0xC5C5C5C5u

void poet_stack_paint(void)
{
    uint32_t *word = __stack_limit;
    uint32_t sp;
    /* One piece of assembly: a compiler may push registers after a stack pointer that it read earlier. */
    __asm volatile(".syntax unified\n\t"
                   "mov  %1, sp\n\t"
                   "b    2f\n"
                   "1:\n\t"
                   "str  %2, [%0]\n\t"
                   "adds %0, %0, #4\n"
                   "2:\n\t"
                   "cmp  %0, %1\n\t"
                   "blo  1b"
                   : "+l"(word), "=&l"(sp)
                   : "l"(PAINT)
                   : "memory", "cc");
}

uint32_t poet_stack_used(void)
{
    const uint32_t *word = __stack_limit;
    while (word < __stack_top && *word == PAINT) word++;
    return (uint32_t)((uintptr_t)__stack_top - (uintptr_t)word);
}
