/* mark.h: a point in a program that icnt notes: the instruction count, and the number `id`, a constant below
 * 4096.
 *
 * One instruction, PLD [SP, #id]: a hint that changes no register and no memory. It exists from ARMv7-M on:
 * not on the Cortex-M0. */
#ifndef POET_MARK_H
#define POET_MARK_H

#define POET_MARK(id) __asm volatile("pld [sp, %0]" : : "i"(id) : "memory")

#endif
