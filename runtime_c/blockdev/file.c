#include "file.h"

#include "poet/platform.h"

static int seek(const struct poet_blockdev *dev, uint32_t sector, uint32_t sectors)
{
    const struct poet_file_dev *file = dev->context;
    if (sector > dev->sectors || sectors > dev->sectors - sector) return POET_EINVAL;
    return poet_file_seek(file->file, sector * dev->sector_bytes); /* < 2 GiB, as poet_file_size is */
}

static int file_read(const struct poet_blockdev *dev, uint32_t sector, void *buffer, uint32_t sectors)
{
    struct poet_file_dev *file = dev->context;
    POET_TRY(seek(dev, sector, sectors));
    POET_TRY(poet_file_read(file->file, buffer, sectors * dev->sector_bytes));
    file->reads++;
    file->sectors_read += sectors;
    return POET_OK;
}

static int file_prog(const struct poet_blockdev *dev, uint32_t sector, const void *buffer, uint32_t sectors)
{
    struct poet_file_dev *file = dev->context;
    POET_TRY(seek(dev, sector, sectors));
    POET_TRY(poet_file_write(file->file, buffer, sectors * dev->sector_bytes));
    file->progs++;
    file->sectors_programmed += sectors;
    return POET_OK;
}

int poet_file_dev_open(struct poet_file_dev *file, const char *name, uint32_t sector_bytes)
{
    *file = (struct poet_file_dev){ .file = poet_file_open(name, POET_FILE_UPDATE) };
    if (file->file < 0) return POET_EIO;
    const int32_t bytes = poet_file_size(file->file);
    if (bytes < 0) {
        (void)poet_file_close(file->file);
        return POET_EIO;
    }
    file->dev = (struct poet_blockdev){ .context = file,
                                        .read = file_read,
                                        .prog = file_prog,
                                        .sector_bytes = sector_bytes,
                                        .erase_sectors = 1,
                                        .sectors = (uint32_t)bytes / sector_bytes };
    return POET_OK;
}

int poet_file_dev_close(struct poet_file_dev *file)
{
    return poet_file_close(file->file);
}
