/* platform.h: the few functions a board writes. The emulated boards and the host speak to files; a real
 * board has a serial line. */
#ifndef POET_PLATFORM_H
#define POET_PLATFORM_H

#include "poet.h"

#ifdef __cplusplus
extern "C" {
#endif

enum poet_file_mode {
    POET_FILE_READ,
    POET_FILE_WRITE, /* a new file, or an old one emptied */
    POET_FILE_UPDATE /* read and write; the file exists */
};

void poet_platform_init(void);
void poet_platform_putc(char c);
void poet_platform_exit(int code); /* does not return */

/* Files by semihosting or by the host's own calls. A handle is >= 0; errors are POET_EIO. read and write
 * move all bytes or fail. */
int poet_file_open(const char *name, enum poet_file_mode mode);
int poet_file_seek(int file, uint32_t position);
int poet_file_read(int file, void *buffer, uint32_t bytes);
int poet_file_write(int file, const void *buffer, uint32_t bytes);
int poet_file_close(int file);
int32_t poet_file_size(int file); /* bytes, or POET_EIO */

/* Stack measurement: paint below the stack pointer, then the most bytes ever used. 0 where it cannot be
 * told. */
void poet_stack_paint(void);
uint32_t poet_stack_used(void);

#ifdef __cplusplus
}
#endif

#endif
