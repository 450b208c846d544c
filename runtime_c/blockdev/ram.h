/* ram.h: a block device in memory: a second bank, an external RAM, a test. */
#ifndef POET_RAM_H
#define POET_RAM_H

#include "poet/blockdev.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `bytes` holds sectors x sector_bytes and outlives the device. */
void poet_ram_dev_init(struct poet_blockdev *dev, void *bytes, uint32_t sectors, uint32_t sector_bytes);

#ifdef __cplusplus
}
#endif

#endif
