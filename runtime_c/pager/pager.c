/* pager.c: see pager.h; the format is docs/store-format.md, version 1. Words are little-endian, as every
 * target is. */
#include "poet/pager.h"

#include <string.h>

#ifdef __GNUC__
#define ALIGNED(p, bytes) __builtin_assume_aligned(p, bytes)
#else
#define ALIGNED(p, bytes) (p)
#endif

#define VERSION 1u
#define SUPERBLOCK_BYTES 256u /* the smallest sector */

/* Byte offsets in a superblock. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_SEQUENCE = 12,
    AT_STEP = 16,
    AT_GEOMETRY = 20, /* sector_bytes, erase_sectors, slot_sectors, sectors */
    AT_FLAGS = 36,    /* what a reader must know to use the store; no flag is defined yet */
    AT_MODEL = 64,
    AT_LAYOUT = 96,
    AT_STATE = 128,
    AT_CHECK = SUPERBLOCK_BYTES - 4
};

static const unsigned char magic[8] = { 'p', 'o', 'e', 't', 'g', 'e', 'n', '\0' };

static uint32_t get(const unsigned char *sector, size_t offset)
{
    uint32_t word;
    memcpy(&word, (const unsigned char *)ALIGNED(sector, 4) + offset, sizeof word);
    return word;
}

static void put(unsigned char *sector, size_t offset, uint32_t word)
{
    memcpy((unsigned char *)ALIGNED(sector, 4) + offset, &word, sizeof word);
}

uint32_t poet_check(uint32_t h, const void *words, size_t bytes)
{
    const unsigned char *p = ALIGNED(words, 4);
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t word;
        memcpy(&word, p + i, sizeof word);
        h = (h ^ word) * 16777619u;
    }
    return h;
}

static int is_same(const unsigned char *a, const void *b, size_t bytes)
{
    const unsigned char *c = b;
    for (size_t i = 0; i < bytes; i++) {
        if (a[i] != c[i]) return 0;
    }
    return 1;
}

static uint32_t erase_unit(const struct poet_blockdev *dev)
{
    return dev->erase != NULL ? dev->erase_sectors : 1;
}

/* Write `bytes` of data, padding and check word at `sector`: the start of an erase unit. */
static int write_page(struct poet_pager *pager, uint32_t sector, uint32_t bytes, const void *data)
{
    const struct poet_blockdev *dev = pager->dev;
    if (dev == NULL) return POET_ESTATE;
    const uint32_t sector_bytes = dev->sector_bytes;
    const uint32_t whole = bytes / sector_bytes;
    const uint32_t tail = bytes % sector_bytes;

    if (dev->erase != NULL) {
        const uint32_t unit = dev->erase_sectors;
        POET_TRY(dev->erase(dev, sector, (whole + unit) / unit * unit));
    }
    if (whole > 0) POET_TRY(dev->prog(dev, sector, data, whole));
    memcpy(pager->bounce, (const unsigned char *)data + (bytes - tail), tail);
    memset(pager->bounce + tail, 0, sector_bytes - tail);
    put(pager->bounce, sector_bytes - 4, poet_check(POET_CHECK_START, data, bytes));
    return dev->prog(dev, sector + whole, pager->bounce, 1);
}

static int read_page(struct poet_pager *pager, uint32_t sector, uint32_t bytes, void *data)
{
    const struct poet_blockdev *dev = pager->dev;
    if (dev == NULL) return POET_ESTATE;
    const uint32_t sector_bytes = dev->sector_bytes;
    const uint32_t whole = bytes / sector_bytes;
    const uint32_t tail = bytes % sector_bytes;

    if (whole > 0) POET_TRY(dev->read(dev, sector, data, whole));
    POET_TRY(dev->read(dev, sector + whole, pager->bounce, 1));
    memcpy((unsigned char *)data + (bytes - tail), pager->bounce, tail);
    const uint32_t check = get(pager->bounce, sector_bytes - 4);
    return check == poet_check(POET_CHECK_START, data, bytes) ? POET_OK : POET_ECHECK;
}

int poet_page_out(struct poet_pager *pager, const struct poet_page *page, const void *tensor)
{
    return write_page(pager, page->sector, page->bytes, tensor);
}

int poet_page_in(struct poet_pager *pager, const struct poet_page *page, void *tensor)
{
    return read_page(pager, page->sector, page->bytes, tensor);
}

/* First sector of a persistent tensor as it is after `step` training steps. */
static uint32_t slot_sector(const struct poet_pager *pager, const struct poet_page *page, uint32_t step)
{
    return page->sector + ((step & 1) != 0 ? pager->id->slot_sectors : 0);
}

int poet_slot_out(struct poet_pager *pager, const struct poet_page *page, const void *tensor)
{
    if (pager->dev == NULL) return POET_ESTATE;
    return write_page(pager, slot_sector(pager, page, pager->step + 1), page->bytes, tensor);
}

int poet_slot_in(struct poet_pager *pager, const struct poet_page *page, void *tensor)
{
    if (pager->dev == NULL) return POET_ESTATE;
    return read_page(pager, slot_sector(pager, page, pager->step), page->bytes, tensor);
}

int poet_slot_stream(struct poet_pager *pager, const struct poet_page *page, poet_sink sink, void *context)
{
    const struct poet_blockdev *dev = pager->dev;
    if (dev == NULL) return POET_ESTATE;
    uint32_t sector = slot_sector(pager, page, pager->step);
    uint32_t left = page->bytes;
    uint32_t check = POET_CHECK_START;
    for (;;) {
        POET_TRY(dev->read(dev, sector++, pager->bounce, 1));
        const uint32_t part = left < dev->sector_bytes ? left : dev->sector_bytes;
        check = poet_check(check, pager->bounce, part);
        left -= part;
        if (part < dev->sector_bytes && check != get(pager->bounce, dev->sector_bytes - 4)) return POET_ECHECK;
        if (part > 0) POET_TRY(sink(context, pager->bounce, part));
        if (part < dev->sector_bytes) return POET_OK;
    }
}

/* Is what the bounce sector holds a superblock that belongs in copy 0 or 1? */
static int judge_superblock(const unsigned char *sector, uint32_t copy)
{
    if (!is_same(sector + AT_MAGIC, magic, sizeof magic)) return POET_EFORMAT;
    if (get(sector, AT_VERSION) != VERSION) return POET_EVERSION;
    if (get(sector, AT_CHECK) != poet_check(POET_CHECK_START, sector, AT_CHECK)) return POET_ECHECK;
    if ((get(sector, AT_SEQUENCE) & 1) != copy) return POET_ECHECK;
    return POET_OK;
}

/* A superblock whose check word matches is in the bounce sector: is its store ours? */
static int judge_store(const unsigned char *sector, const struct poet_store_id *id)
{
    if (get(sector, AT_FLAGS) != 0) return POET_EVERSION;
    if (!is_same(sector + AT_MODEL, id->model, sizeof id->model)) return POET_EMODEL;
    if (!is_same(sector + AT_LAYOUT, id->layout, sizeof id->layout)) return POET_EMODEL;
    const uint32_t geometry[4] = { id->sector_bytes, id->erase_sectors, id->slot_sectors, id->sectors };
    return is_same(sector + AT_GEOMETRY, geometry, sizeof geometry) ? POET_OK : POET_EMODEL;
}

int poet_pager_open(struct poet_pager *pager, const struct poet_blockdev *dev, const struct poet_store_id *id,
                    void *bounce)
{
    pager->dev = NULL; /* nothing is written before the store is recognised */
    if (dev == NULL || id == NULL || bounce == NULL || ((uintptr_t)bounce & 7) != 0) return POET_EINVAL;
    if (dev->sector_bytes != id->sector_bytes || id->sector_bytes < SUPERBLOCK_BYTES) return POET_EINVAL;
    if (id->erase_sectors == 0 || id->erase_sectors % erase_unit(dev) != 0) return POET_EINVAL;
    if (dev->sectors < id->sectors || dev->sectors <= id->erase_sectors) return POET_ENOSPC;

    unsigned char *sector = bounce;
    int found = POET_EFORMAT;
    uint32_t newest = 0; /* its sequence number; the last bit tells the copy */
    for (uint32_t copy = 0; copy < 2; copy++) {
        POET_TRY(dev->read(dev, copy * id->erase_sectors, sector, 1));
        const int rc = judge_superblock(sector, copy);
        if (rc == POET_OK) {
            const uint32_t sequence = get(sector, AT_SEQUENCE);
            if (found != POET_OK || (int32_t)(sequence - newest) > 0) newest = sequence;
        }
        if (rc == POET_OK || found == POET_EFORMAT) found = rc;
    }
    if (found != POET_OK) return found;

    POET_TRY(dev->read(dev, (newest & 1) * id->erase_sectors, sector, 1));
    POET_TRY(judge_superblock(sector, newest & 1));
    POET_TRY(judge_store(sector, id));
    pager->sequence = newest;
    pager->step = get(sector, AT_STEP);
    memcpy(pager->state, sector + AT_STATE, sizeof pager->state);
    pager->id = id;
    pager->bounce = sector;
    pager->dev = dev;
    return POET_OK;
}

int poet_commit(struct poet_pager *pager)
{
    const struct poet_blockdev *dev = pager->dev;
    const struct poet_store_id *id = pager->id;
    unsigned char *sector = pager->bounce;
    if (dev == NULL) return POET_ESTATE;

    const uint32_t sequence = pager->sequence + 1;
    const uint32_t geometry[4] = { id->sector_bytes, id->erase_sectors, id->slot_sectors, id->sectors };
    memset(sector, 0, dev->sector_bytes);
    memcpy(sector + AT_MAGIC, magic, sizeof magic);
    put(sector, AT_VERSION, VERSION);
    put(sector, AT_SEQUENCE, sequence);
    put(sector, AT_STEP, pager->step + 1);
    memcpy(sector + AT_GEOMETRY, geometry, sizeof geometry);
    memcpy(sector + AT_MODEL, id->model, sizeof id->model);
    memcpy(sector + AT_LAYOUT, id->layout, sizeof id->layout);
    memcpy(sector + AT_STATE, pager->state, sizeof pager->state);
    put(sector, AT_CHECK, poet_check(POET_CHECK_START, sector, AT_CHECK));

    /* The older copy gives way; the newer one stays the state until this one is whole. */
    const uint32_t home = (sequence & 1) * id->erase_sectors;
    pager->dev = NULL;
    if (dev->sync != NULL) POET_TRY(dev->sync(dev)); /* what the superblock speaks of is there before it */
    if (dev->erase != NULL) POET_TRY(dev->erase(dev, home, id->erase_sectors));
    POET_TRY(dev->prog(dev, home, sector, 1));
    if (dev->sync != NULL) POET_TRY(dev->sync(dev));
    pager->dev = dev;
    pager->sequence = sequence;
    pager->step++;
    return POET_OK;
}
