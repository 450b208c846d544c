#include "ram.h"

#include <string.h>

static int is_inside(const struct poet_blockdev *dev, uint32_t sector, uint32_t sectors)
{
    return sector <= dev->sectors && sectors <= dev->sectors - sector;
}

static unsigned char *at(const struct poet_blockdev *dev, uint32_t sector)
{
    return (unsigned char *)dev->context + (size_t)sector * dev->sector_bytes;
}

static int ram_read(const struct poet_blockdev *dev, uint32_t sector, void *buffer, uint32_t sectors)
{
    if (!is_inside(dev, sector, sectors)) return POET_EINVAL;
    memcpy(buffer, at(dev, sector), (size_t)sectors * dev->sector_bytes);
    return POET_OK;
}

static int ram_prog(const struct poet_blockdev *dev, uint32_t sector, const void *buffer, uint32_t sectors)
{
    if (!is_inside(dev, sector, sectors)) return POET_EINVAL;
    memcpy(at(dev, sector), buffer, (size_t)sectors * dev->sector_bytes);
    return POET_OK;
}

void poet_ram_dev_init(struct poet_blockdev *dev, void *bytes, uint32_t sectors, uint32_t sector_bytes)
{
    *dev = (struct poet_blockdev){ .context = bytes,
                                   .read = ram_read,
                                   .prog = ram_prog,
                                   .sector_bytes = sector_bytes,
                                   .erase_sectors = 1,
                                   .sectors = sectors };
}
