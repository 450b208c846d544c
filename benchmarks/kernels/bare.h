/* bare.h: the little that a test program on a bare core needs. */
#ifndef POET_BARE_H
#define POET_BARE_H

#include <stddef.h>
#include <stdint.h>

void bare_print(const char *text);
void bare_print_u32(uint32_t value);
void bare_exit(int code);

#endif
