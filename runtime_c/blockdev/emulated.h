/* emulated.h: a block device for tests. It counts, keeps the rules of NOR flash, fails on request, and loses
 * power.
 *
 * Between two calls of sync a real device may keep what it was given in a cache and write it in any order.
 * So a power cut here takes the sectors written since the last sync one by one: some arrive, some do not,
 * one is torn. */
#ifndef POET_EMULATED_H
#define POET_EMULATED_H

#include "poet/blockdev.h"

#ifdef __cplusplus
extern "C" {
#endif

struct poet_emulated_counts {
    uint32_t calls; /* of every kind */
    uint32_t reads, progs, erases, syncs;
    uint32_t sectors_read, sectors_programmed, sectors_erased;
    uint32_t transactions; /* runs of reads, or of progs, each beginning where the one before ended */
};

struct poet_emulated_dev {
    struct poet_blockdev dev; /* hand this to the pager */
    struct poet_emulated_counts counts;
    uint32_t fail_at;    /* the call that returns POET_EIO and does nothing, from 1; 0: none */
    uint32_t cut_after;  /* power goes when so many sectors were programmed or erased; UINT32_MAX: never */
    uint32_t violations; /* calls that broke a rule of the device: range, alignment, a bit from 0 to 1 */
    int is_dead;         /* power is gone */

    unsigned char *bytes;   /* what a read sees */
    unsigned char *durable; /* what is there after a power cut; NULL: the same */
    uint32_t next_sector;   /* where the run of transfers goes on */
    int last_was_prog;
};

/* Each buffer holds sectors x sector_bytes. erase_sectors 0: prog overwrites, as on an SD card; else NOR
 * rules, and freshly erased bytes are 0xFF. `durable` may be NULL. */
void poet_emulated_dev_init(struct poet_emulated_dev *emulated, void *bytes, void *durable, uint32_t sectors,
                            uint32_t sector_bytes, uint32_t erase_sectors);

/* Power comes back: what was not synced has arrived or not, as `seed` decides sector by sector; counts start
 * again. */
void poet_emulated_dev_restart(struct poet_emulated_dev *emulated, uint32_t seed);

#ifdef __cplusplus
}
#endif

#endif
