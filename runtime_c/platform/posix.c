/* posix.c: the host as a board. */
#define _POSIX_C_SOURCE 200809L
#include "poet/platform.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

void poet_platform_init(void)
{
}

void poet_platform_putc(char c)
{
    (void)putchar(c);
}

void poet_platform_exit(int code)
{
    exit(code);
}

int poet_file_open(const char *name, enum poet_file_mode mode)
{
    static const int flags[] = { [POET_FILE_READ] = O_RDONLY,
                                 [POET_FILE_WRITE] = O_WRONLY | O_CREAT | O_TRUNC,
                                 [POET_FILE_UPDATE] = O_RDWR };
    const int file = open(name, flags[mode], 0666);
    return file < 0 ? POET_EIO : file;
}

int poet_file_seek(int file, uint32_t position)
{
    return lseek(file, (off_t)position, SEEK_SET) < 0 ? POET_EIO : POET_OK;
}

int poet_file_read(int file, void *buffer, uint32_t bytes)
{
    for (unsigned char *to = buffer; bytes > 0;) {
        const ssize_t got = read(file, to, bytes);
        if (got <= 0) return POET_EIO;
        to += got;
        bytes -= (uint32_t)got;
    }
    return POET_OK;
}

int poet_file_write(int file, const void *buffer, uint32_t bytes)
{
    for (const unsigned char *from = buffer; bytes > 0;) {
        const ssize_t put = write(file, from, bytes);
        if (put <= 0) return POET_EIO;
        from += put;
        bytes -= (uint32_t)put;
    }
    return POET_OK;
}

int poet_file_close(int file)
{
    return close(file) < 0 ? POET_EIO : POET_OK;
}

int32_t poet_file_size(int file)
{
    struct stat status;
    if (fstat(file, &status) < 0 || status.st_size < 0 || status.st_size > INT32_MAX) return POET_EIO;
    return (int32_t)status.st_size;
}

void poet_stack_paint(void)
{
}

uint32_t poet_stack_used(void)
{
    return 0;
}
