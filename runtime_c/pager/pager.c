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
    AT_SLOTS = 40,
    AT_SAVED = 44,
    AT_SEED = 48,
    AT_MODEL = 64,
    AT_LAYOUT = 96,
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

/* Make the page at `sector`, the start of an erase unit, ready for `bytes` of data. */
static int erase_page(const struct poet_blockdev *dev, uint32_t sector, uint32_t bytes)
{
    if (dev->erase == NULL) return POET_OK;
    const uint32_t unit = dev->erase_sectors;
    return dev->erase(dev, sector, (bytes / dev->sector_bytes + unit) / unit * unit);
}

/* Write a page's last sector: `tail` bytes that are in the bounce sector, padding, check word. */
static int write_last(const struct poet_pager *pager, uint32_t sector, uint32_t tail, uint32_t check)
{
    const struct poet_blockdev *dev = pager->dev;
    memset(pager->bounce + tail, 0, dev->sector_bytes - tail);
    put(pager->bounce, dev->sector_bytes - 4, check);
    return dev->prog(dev, sector, pager->bounce, 1);
}

static int write_page(struct poet_pager *pager, uint32_t sector, uint32_t bytes, const void *data)
{
    const struct poet_blockdev *dev = pager->dev;
    const uint32_t whole = bytes / dev->sector_bytes;
    const uint32_t tail = bytes % dev->sector_bytes;

    POET_TRY(erase_page(dev, sector, bytes));
    if (whole > 0) POET_TRY(dev->prog(dev, sector, data, whole));
    memcpy(pager->bounce, (const unsigned char *)data + (bytes - tail), tail);
    return write_last(pager, sector + whole, tail, poet_check(POET_CHECK_START, data, bytes));
}

static int read_page(struct poet_pager *pager, uint32_t sector, const struct poet_page *page, void *data)
{
    const struct poet_blockdev *dev = pager->dev;
    const uint32_t bytes = page->bytes;
    const uint32_t sector_bytes = dev->sector_bytes;
    const uint32_t whole = bytes / sector_bytes;
    const uint32_t tail = bytes % sector_bytes;

    if (whole > 0) POET_TRY(dev->read(dev, sector, data, whole));
    POET_TRY(dev->read(dev, sector + whole, pager->bounce, 1));
    memcpy((unsigned char *)data + (bytes - tail), pager->bounce, tail);
    if (page->streamed) return POET_OK;
    const uint32_t check = get(pager->bounce, sector_bytes - 4);
    return check == poet_check(POET_CHECK_START, data, bytes) ? POET_OK : POET_ECHECK;
}

int poet_page_out(struct poet_pager *pager, const struct poet_page *page, const void *tensor)
{
    if (pager->dev == NULL) return POET_ESTATE;
    return write_page(pager, page->sector, page->bytes, tensor);
}

int poet_page_in(struct poet_pager *pager, const struct poet_page *page, void *tensor)
{
    if (pager->dev == NULL) return POET_ESTATE;
    return read_page(pager, page->sector, page, tensor);
}

/* First sector of a page in the slot that is committed for its part of the state. */
static uint32_t committed(const struct poet_pager *pager, enum poet_part part, const struct poet_page *page)
{
    return page->sector + ((pager->slots & part) != 0 ? pager->id->slot_sectors : 0);
}

/* The same in the slot that the next commit may make the state. */
static uint32_t coming(const struct poet_pager *pager, enum poet_part part, const struct poet_page *page)
{
    return page->sector + ((pager->slots & part) != 0 ? 0 : pager->id->slot_sectors);
}

uint32_t poet_slot_sector(const struct poet_pager *pager, const struct poet_page *page, int next)
{
    return next ? coming(pager, POET_PART_STORE, page) : committed(pager, POET_PART_STORE, page);
}

int poet_slot_out(struct poet_pager *pager, const struct poet_page *page, const void *tensor)
{
    if (pager->dev == NULL) return POET_ESTATE;
    return write_page(pager, coming(pager, POET_PART_STORE, page), page->bytes, tensor);
}

int poet_slot_in(struct poet_pager *pager, const struct poet_page *page, void *tensor)
{
    if (pager->dev == NULL) return POET_ESTATE;
    return read_page(pager, committed(pager, POET_PART_STORE, page), page, tensor);
}

int poet_save_out(struct poet_pager *pager, const struct poet_page *page, const void *tensor)
{
    if (pager->dev == NULL) return POET_ESTATE;
    return write_page(pager, coming(pager, POET_PART_RAM, page), page->bytes, tensor);
}

int poet_save_in(struct poet_pager *pager, const struct poet_page *page, void *tensor)
{
    if (pager->dev == NULL) return POET_ESTATE;
    return read_page(pager, committed(pager, POET_PART_RAM, page), page, tensor);
}

int poet_slot_read(struct poet_pager *pager, const struct poet_page *page, poet_sink sink, void *context)
{
    const struct poet_blockdev *dev = pager->dev;
    if (dev == NULL) return POET_ESTATE;
    uint32_t sector = committed(pager, POET_PART_STORE, page);
    uint32_t left = page->bytes;
    uint32_t check = POET_CHECK_START;
    for (;;) {
        POET_TRY(dev->read(dev, sector++, pager->bounce, 1));
        const uint32_t part = left < dev->sector_bytes ? left : dev->sector_bytes;
        check = poet_check(check, pager->bounce, part);
        left -= part;
        const int is_last = part < dev->sector_bytes;
        if (is_last && !page->streamed) {
            if (check != get(pager->bounce, dev->sector_bytes - 4)) return POET_ECHECK;
        }
        if (part > 0) POET_TRY(sink(context, pager->bounce, part));
        if (is_last) return POET_OK;
    }
}

int poet_slot_write(struct poet_pager *pager, enum poet_part part, const struct poet_page *page,
                    poet_source source, void *context)
{
    const struct poet_blockdev *dev = pager->dev;
    if (dev == NULL) return POET_ESTATE;
    uint32_t sector = coming(pager, part, page);
    uint32_t left = page->bytes;
    uint32_t check = POET_CHECK_START;
    POET_TRY(erase_page(dev, sector, left));
    for (; left >= dev->sector_bytes; left -= dev->sector_bytes) {
        POET_TRY(source(context, pager->bounce, dev->sector_bytes));
        check = poet_check(check, pager->bounce, dev->sector_bytes);
        POET_TRY(dev->prog(dev, sector++, pager->bounce, 1));
    }
    if (left > 0) POET_TRY(source(context, pager->bounce, left));
    return write_last(pager, sector, left, poet_check(check, pager->bounce, left));
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
    pager->slots = get(sector, AT_SLOTS);
    pager->saved = get(sector, AT_SAVED);
    pager->seed = get(sector, AT_SEED);
    pager->id = id;
    pager->bounce = sector;
    pager->dev = dev;
    return POET_OK;
}

int poet_commit(struct poet_pager *pager, uint32_t step, unsigned parts)
{
    const struct poet_blockdev *dev = pager->dev;
    const struct poet_store_id *id = pager->id;
    unsigned char *sector = pager->bounce;
    if (dev == NULL) return POET_ESTATE;

    const uint32_t sequence = pager->sequence + 1;
    const uint32_t slots = pager->slots ^ parts;
    const uint32_t saved = (parts & POET_PART_RAM) != 0 ? step + 1 : pager->saved;
    const uint32_t geometry[4] = { id->sector_bytes, id->erase_sectors, id->slot_sectors, id->sectors };
    memset(sector, 0, dev->sector_bytes);
    memcpy(sector + AT_MAGIC, magic, sizeof magic);
    put(sector, AT_VERSION, VERSION);
    put(sector, AT_SEQUENCE, sequence);
    put(sector, AT_STEP, step);
    memcpy(sector + AT_GEOMETRY, geometry, sizeof geometry);
    put(sector, AT_SLOTS, slots);
    put(sector, AT_SAVED, saved);
    put(sector, AT_SEED, pager->seed);
    memcpy(sector + AT_MODEL, id->model, sizeof id->model);
    memcpy(sector + AT_LAYOUT, id->layout, sizeof id->layout);
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
    pager->step = step;
    pager->slots = slots;
    pager->saved = saved;
    return POET_OK;
}
