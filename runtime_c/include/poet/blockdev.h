/* blockdev.h: whatever keeps a page while the arena is needed for something else: an SD card, a NOR flash, a
 * file.
 *
 * All transfers are whole sectors; addresses are sector numbers, so 32 bits reach 2 TiB at 512 B a sector.
 * Every call returns POET_OK or a negative POET_E... */
#ifndef POET_BLOCKDEV_H
#define POET_BLOCKDEV_H

#include "poet.h"

struct poet_blockdev {
    void *context;
    int (*read)(const struct poet_blockdev *dev, uint32_t sector, void *buffer, uint32_t sectors);
    int (*prog)(const struct poet_blockdev *dev, uint32_t sector, const void *buffer, uint32_t sectors);
    int (*erase)(const struct poet_blockdev *dev, uint32_t sector, uint32_t sectors); /* NULL: none needed */
    int (*sync)(const struct poet_blockdev *dev); /* NULL: prog is durable */
    uint32_t sector_bytes;  /* a power of two, 256 to 4096 */
    uint32_t erase_sectors; /* an erase covers a multiple of this, aligned to it; 1 where erase is NULL */
    uint32_t sectors;       /* size of the device */
};

#endif
