/* file.h: a block device in a file: on the host, and on an emulated board through semihosting (platform.h
 * says how). */
#ifndef POET_FILE_H
#define POET_FILE_H

#include "poet/blockdev.h"

#ifdef __cplusplus
extern "C" {
#endif

struct poet_file_dev {
    struct poet_blockdev dev; /* hand this to the pager */
    int file;
    uint32_t reads, progs;                      /* calls so far */
    uint32_t sectors_read, sectors_programmed; /* by them */
};

/* The file exists and is as long as the store: poetgen writes it. POET_EIO where it cannot be opened. The
 * struct stays where it is while the device is in use. */
int poet_file_dev_open(struct poet_file_dev *file, const char *name, uint32_t sector_bytes);
int poet_file_dev_close(struct poet_file_dev *file);

#ifdef __cplusplus
}
#endif

#endif
