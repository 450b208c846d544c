/* device.c: an emulated device and an open pager, for streamed.py to stream from. */
#include "../../runtime_c/blockdev/emulated.h"
#include "poet/pager.h"

#include <stdlib.h>

static struct poet_emulated_dev device;
static struct poet_pager pager;
static unsigned char *bytes;
static uint64_t bounce[512];

/* A new device, and its bytes. The call `fail_at`, from 1, fails; 0: none. */
unsigned char *device_open(uint32_t sectors, uint32_t sector_bytes, uint32_t erase_sectors, uint32_t fail_at);
unsigned char *device_open(uint32_t sectors, uint32_t sector_bytes, uint32_t erase_sectors, uint32_t fail_at)
{
    free(bytes);
    bytes = malloc((size_t)sectors * sector_bytes);
    poet_emulated_dev_init(&device, bytes, NULL, sectors, sector_bytes, erase_sectors);
    device.fail_at = fail_at;
    pager = (struct poet_pager){ .dev = &device.dev, .bounce = (unsigned char *)bounce };
    return bytes;
}

struct poet_pager *device_pager(void);
struct poet_pager *device_pager(void)
{
    return &pager;
}

/* All calls, reads, progs, sectors read, sectors programmed, broken rules. */
void device_counts(uint32_t counts[6]);
void device_counts(uint32_t counts[6])
{
    const struct poet_emulated_counts *const c = &device.counts;
    const uint32_t found[6] = { c->calls,        c->reads, c->progs, c->sectors_read, c->sectors_programmed,
                                device.violations };
    for (int i = 0; i < 6; i++) counts[i] = found[i];
}
