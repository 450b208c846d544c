/* pager.h: tensor <-> page. The store's format is docs/store-format.md, version 1. */
#ifndef POET_PAGER_H
#define POET_PAGER_H

#include "blockdev.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where one tensor lives outside the arena. Its last sector ends with a check word over its bytes. */
struct poet_page {
    uint32_t sector;   /* first sector; of slot 0 where there are two */
    uint32_t bytes;    /* of the tensor; a multiple of 4 */
    uint32_t streamed; /* 1: pieces of it are read and written, so it has no check word */
};

/* What a store must be, to be ours. Emitted by the generator, one per model. */
struct poet_store_id {
    uint8_t model[32];      /* SHA-256 of the ONNX file */
    uint8_t layout[32];     /* SHA-256 of the page layout */
    uint32_t sector_bytes;  /* the layout's sector */
    uint32_t erase_sectors; /* superblocks, slots and pages begin at multiples of this; 1 without erasing */
    uint32_t slot_sectors;  /* slot 1 begins this many sectors after slot 0 */
    uint32_t sectors;       /* of the whole store */
};

/* The two parts of the state (trained parameters, optimizer state, statistics): tensors whose home is the
 * store, which training steps write there, and tensors whose home is RAM, which only a save writes. */
enum poet_part {
    POET_PART_STORE = 1,
    POET_PART_RAM = 2
};

struct poet_pager {
    const struct poet_blockdev *dev; /* NULL until the store is recognised, and after a commit that failed */
    const struct poet_store_id *id;
    unsigned char *bounce; /* one sector, aligned to 8: tails and check words pass through it */

    /* As the newest superblock has them; only the seed is written by others than the pager. */
    uint32_t sequence;
    uint32_t step;  /* training steps committed */
    uint32_t slots; /* the slot of each part: the bit that is its enum poet_part */
    uint32_t saved; /* the pages of what has its home in RAM are of step saved - 1; 0: never saved */
    uint32_t seed;  /* of random ops; poet_commit writes what is here */
};

/* Recognise the store; the device is only read.
 * POET_EINVAL    another sector size, a larger erase unit, a null or misaligned argument
 * POET_ENOSPC    the device is smaller than the store
 * POET_EFORMAT   neither superblock is one
 * POET_EVERSION  a superblock of another format version
 * POET_ECHECK    superblocks, but none whose check word matches
 * POET_EMODEL    the store of another model or layout
 * POET_EIO       the device failed */
int poet_pager_open(struct poet_pager *pager, const struct poet_blockdev *dev, const struct poet_store_id *id,
                    void *bounce);

/* The moves need an open pager (else POET_ESTATE) and a tensor aligned to 4. POET_EIO: the device failed.
 * POET_ECHECK: a page's bytes are not those that were written, and so are the tensor's. */

/* Activations and gradients: one home, undefined between training steps. */
int poet_page_out(struct poet_pager *pager, const struct poet_page *page, const void *tensor);
int poet_page_in(struct poet_pager *pager, const struct poet_page *page, void *tensor);

/* Frozen parameters: poet_page_in. What has its home in the store has two slots: a step reads the committed
 * one and writes the other. */
int poet_slot_out(struct poet_pager *pager, const struct poet_page *page, const void *tensor);
int poet_slot_in(struct poet_pager *pager, const struct poet_page *page, void *tensor);

/* First sector of the committed slot, or of the one that the step writes, for what is streamed. */
uint32_t poet_slot_sector(const struct poet_pager *pager, const struct poet_page *page, int next);

/* What has its home in RAM has two slots as well: a save writes the other one, a load reads the committed. */
int poet_save_out(struct poet_pager *pager, const struct poet_page *page, const void *tensor);
int poet_save_in(struct poet_pager *pager, const struct poet_page *page, void *tensor);

/* The same without an arena, a sector at a time through the bounce sector: hand a tensor's committed bytes to
 * `sink` (home: the store), or take its next ones from `source`. An error of either comes back. */
int poet_slot_read(struct poet_pager *pager, const struct poet_page *page, poet_sink sink, void *context);
int poet_slot_write(struct poet_pager *pager, enum poet_part part, const struct poet_page *page,
                    poet_source source, void *context);

/* Make what was written to the other slots of `parts` (1, 2 or 1 + 2) the state after `step` training steps:
 * one superblock, written last. If that fails, only the device knows which state is committed: the pager is
 * closed, and opening it again tells. */
int poet_commit(struct poet_pager *pager, uint32_t step, unsigned parts);

/* The check word: h = (h ^ word) * 16777619 over little-endian words; start from POET_CHECK_START. */
#define POET_CHECK_START 2166136261u
uint32_t poet_check(uint32_t h, const void *words, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
