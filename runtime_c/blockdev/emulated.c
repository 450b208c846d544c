#include "emulated.h"

#include <string.h>

static unsigned char *at(unsigned char *bytes, const struct poet_blockdev *dev, uint32_t sector)
{
    return bytes + (size_t)sector * dev->sector_bytes;
}

static int break_rule(struct poet_emulated_dev *emulated)
{
    emulated->violations++;
    return POET_EINVAL;
}

/* Count a call; POET_EIO if it is the one to fail or power is gone. */
static int begin(struct poet_emulated_dev *emulated, uint32_t *kind)
{
    emulated->counts.calls++;
    (*kind)++;
    if (emulated->is_dead || emulated->counts.calls == emulated->fail_at) return POET_EIO;
    return POET_OK;
}

static int is_inside(const struct poet_blockdev *dev, uint32_t sector, uint32_t sectors)
{
    return sectors > 0 && sector <= dev->sectors && sectors <= dev->sectors - sector;
}

static void note_transfer(struct poet_emulated_dev *emulated, uint32_t sector, uint32_t sectors, int is_prog)
{
    const int goes_on = sector == emulated->next_sector && is_prog == emulated->last_was_prog;
    if (!goes_on) emulated->counts.transactions++;
    emulated->next_sector = sector + sectors;
    emulated->last_was_prog = is_prog;
}

/* Does power last for one more sector? If not, the device is dead and `sector` is torn: half of it is
 * `bytes`. */
static int spend_sector(struct poet_emulated_dev *emulated, unsigned char *sector, const void *bytes)
{
    const size_t half = emulated->dev.sector_bytes / 2;
    if (emulated->cut_after == UINT32_MAX) return POET_OK;
    if (emulated->cut_after-- > 0) return POET_OK;
    emulated->is_dead = 1;
    if (bytes != NULL) {
        memcpy(sector, bytes, half);
    } else {
        memset(sector, 0xFF, half);
    }
    return POET_EIO;
}

static int emulated_read(const struct poet_blockdev *dev, uint32_t sector, void *buffer, uint32_t sectors)
{
    struct poet_emulated_dev *emulated = dev->context;
    POET_TRY(begin(emulated, &emulated->counts.reads));
    if (!is_inside(dev, sector, sectors)) return break_rule(emulated);
    memcpy(buffer, at(emulated->bytes, dev, sector), (size_t)sectors * dev->sector_bytes);
    emulated->counts.sectors_read += sectors;
    note_transfer(emulated, sector, sectors, 0);
    return POET_OK;
}

static int emulated_prog(const struct poet_blockdev *dev, uint32_t sector, const void *buffer,
                         uint32_t sectors)
{
    struct poet_emulated_dev *emulated = dev->context;
    POET_TRY(begin(emulated, &emulated->counts.progs));
    if (!is_inside(dev, sector, sectors)) return break_rule(emulated);
    const unsigned char *from = buffer;
    unsigned char *to = at(emulated->bytes, dev, sector);
    if (dev->erase != NULL) {
        for (size_t i = 0; i < (size_t)sectors * dev->sector_bytes; i++) {
            if ((from[i] & ~to[i]) != 0) return break_rule(emulated); /* only an erase turns a 0 to 1 */
        }
    }
    for (uint32_t i = 0; i < sectors; i++) {
        POET_TRY(spend_sector(emulated, to, from));
        memcpy(to, from, dev->sector_bytes);
        to += dev->sector_bytes;
        from += dev->sector_bytes;
        emulated->counts.sectors_programmed++;
    }
    note_transfer(emulated, sector, sectors, 1);
    return POET_OK;
}

static int emulated_erase(const struct poet_blockdev *dev, uint32_t sector, uint32_t sectors)
{
    struct poet_emulated_dev *emulated = dev->context;
    POET_TRY(begin(emulated, &emulated->counts.erases));
    if (!is_inside(dev, sector, sectors)) return break_rule(emulated);
    if (sector % dev->erase_sectors != 0 || sectors % dev->erase_sectors != 0) return break_rule(emulated);
    for (uint32_t i = 0; i < sectors; i++) {
        unsigned char *to = at(emulated->bytes, dev, sector + i);
        POET_TRY(spend_sector(emulated, to, NULL));
        memset(to, 0xFF, dev->sector_bytes);
        emulated->counts.sectors_erased++;
    }
    return POET_OK;
}

static int emulated_sync(const struct poet_blockdev *dev)
{
    struct poet_emulated_dev *emulated = dev->context;
    POET_TRY(begin(emulated, &emulated->counts.syncs));
    if (emulated->durable != NULL) {
        memcpy(emulated->durable, emulated->bytes, (size_t)dev->sectors * dev->sector_bytes);
    }
    return POET_OK;
}

void poet_emulated_dev_init(struct poet_emulated_dev *emulated, void *bytes, void *durable, uint32_t sectors,
                            uint32_t sector_bytes, uint32_t erase_sectors)
{
    *emulated = (struct poet_emulated_dev){ .cut_after = UINT32_MAX, .bytes = bytes, .durable = durable };
    emulated->dev = (struct poet_blockdev){ .context = emulated,
                                            .read = emulated_read,
                                            .prog = emulated_prog,
                                            .erase = erase_sectors > 0 ? emulated_erase : NULL,
                                            .sync = emulated_sync,
                                            .sector_bytes = sector_bytes,
                                            .erase_sectors = erase_sectors > 0 ? erase_sectors : 1,
                                            .sectors = sectors };
    emulated->next_sector = UINT32_MAX;
    if (durable != NULL) memcpy(durable, bytes, (size_t)sectors * sector_bytes);
}

void poet_emulated_dev_restart(struct poet_emulated_dev *emulated, uint32_t seed)
{
    const struct poet_blockdev *dev = &emulated->dev;
    for (uint32_t sector = 0; emulated->durable != NULL && sector < dev->sectors; sector++) {
        unsigned char *seen = at(emulated->bytes, dev, sector);
        unsigned char *kept = at(emulated->durable, dev, sector);
        seed = seed * 1664525u + 1013904223u; /* a linear congruential generator: its high bit will do */
        if ((seed >> 31) != 0) {
            memcpy(kept, seen, dev->sector_bytes);
        } else {
            memcpy(seen, kept, dev->sector_bytes);
        }
    }
    emulated->counts = (struct poet_emulated_counts){ 0 };
    emulated->next_sector = UINT32_MAX;
    emulated->fail_at = 0;
    emulated->cut_after = UINT32_MAX;
    emulated->is_dead = 0;
}
