/* pager_test.c: the pager on emulated devices of every geometry. Usage: pager_test CLAIM.
 *
 * A small model trains: one frozen tensor, three persistent ones whose home is the store, one whose home is
 * RAM, two scratch pages. After step n every element of a persistent tensor is known, so whatever the device
 * went through, a store can be asked whether it is whole. */
#include "check.h"

#include "../../runtime_c/blockdev/emulated.h"
#include "../../runtime_c/blockdev/ram.h"
#include "poet/pager.h"

#include <string.h>

enum { PERSISTENT = 3, SCRATCH = 2, PAGES = 1 + PERSISTENT + 1 + SCRATCH };
enum { MEMBER = 1 + PERSISTENT, SCRATCH_0, SCRATCH_1 };
enum { MAX_WORDS = 3 * 1024 + 2, MAX_BYTES = 1 << 22 };

struct geometry {
    uint32_t sector_bytes;
    uint32_t erase_sectors; /* 0: a device that overwrites */
};

static const struct geometry geometries[] = {
    { 256, 0 }, { 512, 0 }, { 4096, 0 }, { 256, 1 },  { 512, 1 },  { 4096, 1 },
    { 256, 8 }, { 512, 8 }, { 4096, 8 }, { 256, 16 }, { 512, 16 }, { 4096, 16 },
};

/* The store under test: one at a time. */
static _Alignas(8) unsigned char bytes[MAX_BYTES], durable[MAX_BYTES], before[MAX_BYTES];
static _Alignas(8) unsigned char bounce[4096];
static uint32_t tensor[MAX_WORDS];
static struct poet_store_id id;
static struct poet_page pages[PAGES]; /* frozen, persistent ..., member, scratch ... */
static struct poet_page *const persistent = pages + 1;
static struct poet_page *const scratch = pages + SCRATCH_0;
static struct poet_emulated_dev emulated;
static struct poet_pager pager;

static uint32_t element(uint32_t step, uint32_t page, uint32_t i)
{
    return (step * 31u + page) * 2654435761u + i * 40503u;
}

static void fill(uint32_t step, uint32_t page)
{
    for (uint32_t i = 0; i < pages[page].bytes / 4; i++) tensor[i] = element(step, page, i);
}

static int holds(uint32_t step, uint32_t page)
{
    for (uint32_t i = 0; i < pages[page].bytes / 4; i++) {
        if (tensor[i] != element(step, page, i)) return 0;
    }
    return 1;
}

/* Format and layout by docs/store-format.md, written here a second time: pager.c is the one that is tested.
 * */
static void put_word(unsigned char *at, uint32_t word)
{
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(word >> (8 * i));
}

static uint32_t check_word(const unsigned char *at, size_t count)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < count; i += 4) {
        uint32_t word = 0;
        for (int byte = 3; byte >= 0; byte--) word = word << 8 | at[i + (size_t)byte];
        h = (h ^ word) * 16777619u;
    }
    return h;
}

static unsigned char *superblock(uint32_t copy)
{
    return bytes + (size_t)copy * id.erase_sectors * id.sector_bytes;
}

static void seal(uint32_t copy)
{
    put_word(superblock(copy) + 252, check_word(superblock(copy), 252));
}

/* The slot of the store's part changes with every step here, which only the test knows. */
static void write_superblock(uint32_t copy, uint32_t sequence, uint32_t step, uint32_t seed)
{
    unsigned char *at = superblock(copy);
    memset(at, 0, id.sector_bytes);
    memcpy(at, "poetgen", 8);
    put_word(at + 8, 1);
    put_word(at + 12, sequence);
    put_word(at + 16, step);
    put_word(at + 20, id.sector_bytes);
    put_word(at + 24, id.erase_sectors);
    put_word(at + 28, id.slot_sectors);
    put_word(at + 32, id.sectors);
    put_word(at + 40, step & 1);
    put_word(at + 48, seed);
    memcpy(at + 64, id.model, 32);
    memcpy(at + 96, id.layout, 32);
    seal(copy);
}

static void write_page(uint32_t page, uint32_t step)
{
    unsigned char *at = bytes + (size_t)pages[page].sector * id.sector_bytes;
    const size_t size = (size_t)(pages[page].bytes / id.sector_bytes + 1) * id.sector_bytes;
    memset(at, 0, size);
    for (uint32_t i = 0; i < pages[page].bytes / 4; i++) put_word(at + 4 * (size_t)i, element(step, page, i));
    put_word(at + size - 4, check_word(at, pages[page].bytes));
}

/* Give page `page` a size and return the sector behind it. */
static uint32_t lay(uint32_t page, uint32_t sector, uint32_t size)
{
    pages[page] = (struct poet_page){ .sector = sector, .bytes = size };
    const uint32_t unit = id.erase_sectors;
    return sector + (size / id.sector_bytes + 1 + unit - 1) / unit * unit;
}

static void format(const struct geometry *geometry)
{
    const uint32_t unit = geometry->erase_sectors > 0 ? geometry->erase_sectors : 1;
    const uint32_t size = geometry->sector_bytes;
    memset(&id, 0, sizeof id);
    memset(id.model, 0xA5, sizeof id.model);
    memset(id.layout, 0x5A, sizeof id.layout);
    id.sector_bytes = size;
    id.erase_sectors = unit;
    uint32_t sector = lay(0, 2 * unit, 2 * size);
    const uint32_t slot_0 = sector;
    sector = lay(1, sector, 4);           /* shorter than a sector */
    sector = lay(2, sector, size - 4);    /* one whole sector with its check word */
    sector = lay(3, sector, 2 * size);    /* the check word is alone in its sector */
    sector = lay(MEMBER, sector, size + 8);
    id.slot_sectors = sector - slot_0;
    sector += id.slot_sectors;
    sector = lay(SCRATCH_0, sector, 3 * size + 4);
    sector = lay(SCRATCH_1, sector, 40);
    id.sectors = sector;
    CHECK((size_t)id.sectors * size <= MAX_BYTES);

    memset(bytes, 0xFF, sizeof bytes);
    write_superblock(0, 0, 0, 7);
    write_superblock(1, 1, 0, 7);
    for (uint32_t page = 0; page <= PERSISTENT; page++) write_page(page, 0);
    poet_emulated_dev_init(&emulated, bytes, durable, id.sectors, size, geometry->erase_sectors);
}

static int open_store(void)
{
    return poet_pager_open(&pager, &emulated.dev, &id, bounce);
}

/* One training step: reads everything, pages activations out and in, writes and commits. Content is checked.
 * */
static int train_step(void)
{
    const uint32_t step = pager.step;
    POET_TRY(poet_page_in(&pager, &pages[0], tensor));
    CHECK(holds(0, 0));
    for (uint32_t i = 0; i < SCRATCH; i++) {
        fill(step, SCRATCH_0 + i);
        POET_TRY(poet_page_out(&pager, &scratch[i], tensor));
    }
    for (uint32_t i = 0; i < PERSISTENT; i++) {
        POET_TRY(poet_slot_in(&pager, &persistent[i], tensor));
        CHECK(holds(step, 1 + i));
        fill(step + 1, 1 + i);
        POET_TRY(poet_slot_out(&pager, &persistent[i], tensor));
    }
    for (uint32_t i = 0; i < SCRATCH; i++) {
        POET_TRY(poet_page_in(&pager, &scratch[i], tensor));
        CHECK(holds(step, SCRATCH_0 + i));
    }
    pager.seed = 7 * (step + 2);
    return poet_commit(&pager, step + 1, POET_PART_STORE);
}

/* The store opens as it is after `pager.step` steps, whole. */
static void check_whole(void)
{
    CHECK(open_store() == POET_OK);
    CHECK(pager.seed == 7 * (pager.step + 1));
    for (uint32_t i = 0; i < PERSISTENT; i++) {
        CHECK(poet_slot_in(&pager, &persistent[i], tensor) == POET_OK);
        CHECK(holds(pager.step, 1 + i));
    }
}

static int run_to(uint32_t steps)
{
    POET_TRY(open_store());
    while (pager.step < steps) POET_TRY(train_step());
    return POET_OK;
}

static void what_goes_out_comes_in(void)
{
    const uint32_t size = id.sector_bytes;
    const uint32_t sizes[] = { 4,        8,            size / 2, size - 8,     size - 4, size,
                               size + 4, 2 * size - 4, 2 * size, 3 * size - 4, 3 * size, 3 * size + 4 };
    CHECK(open_store() == POET_OK);
    fill(9, SCRATCH_1);
    CHECK(poet_page_out(&pager, &scratch[1], tensor) == POET_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        scratch[0].bytes = sizes[i];
        fill((uint32_t)i, SCRATCH_0);
        emulated.counts = (struct poet_emulated_counts){ 0 };
        CHECK(poet_page_out(&pager, &scratch[0], tensor) == POET_OK);
        CHECK(emulated.counts.sectors_programmed == sizes[i] / size + 1);
        CHECK(emulated.counts.transactions == 1);
        memset(tensor, 0xEE, sizeof tensor);
        CHECK(poet_page_in(&pager, &scratch[0], tensor) == POET_OK);
        CHECK(emulated.counts.sectors_read == sizes[i] / size + 1);
        CHECK(emulated.counts.transactions == 2);
        CHECK(holds((uint32_t)i, SCRATCH_0));
        CHECK(tensor[sizes[i] / 4] == 0xEEEEEEEEu); /* nothing beyond the tensor */

        memcpy(before, bytes, sizeof before);
        write_page(SCRATCH_0, (uint32_t)i); /* the document's page is the pager's */
        CHECK(memcmp(before, bytes, sizeof before) == 0);
    }
    CHECK(poet_page_in(&pager, &scratch[1], tensor) == POET_OK);
    CHECK(holds(9, SCRATCH_1)); /* its neighbour was not touched */
}

static void a_step_reads_one_slot_and_writes_the_other(void)
{
    CHECK(run_to(0) == POET_OK);
    CHECK(pager.sequence == 1 && pager.step == 0 && pager.slots == 0 && pager.saved == 0);
    for (uint32_t step = 0; step < 5; step++) {
        fill(step + 1, 1);
        CHECK(poet_slot_out(&pager, &persistent[0], tensor) == POET_OK);
        CHECK(poet_slot_in(&pager, &persistent[0], tensor) == POET_OK);
        CHECK(holds(step, 1)); /* still the committed one */
        CHECK(train_step() == POET_OK);
        CHECK(pager.step == step + 1);
        check_whole();
        CHECK(pager.step == step + 1);
    }
    memcpy(before, bytes, sizeof before);
    write_superblock(0, 6, 5, 42); /* the document's superblocks are the pager's */
    write_superblock(1, 5, 4, 35);
    CHECK(memcmp(before, bytes, sizeof before) == 0);
}

static void save_out(uint32_t step)
{
    fill(step, MEMBER);
    CHECK(poet_save_out(&pager, &pages[MEMBER], tensor) == POET_OK);
}

static int saved_is(uint32_t step)
{
    memset(tensor, 0xEE, sizeof tensor);
    return poet_save_in(&pager, &pages[MEMBER], tensor) == POET_OK && holds(step, MEMBER);
}

/* Training moves one part and saving the other; each superblock tells where both are. */
static void a_save_moves_its_own_part_of_the_state(void)
{
    CHECK(run_to(3) == POET_OK && pager.saved == 0 && pager.slots == POET_PART_STORE);
    save_out(3);
    check_whole();
    CHECK(pager.saved == 0); /* no save before its commit */
    CHECK(poet_commit(&pager, 3, POET_PART_RAM) == POET_OK);
    check_whole();
    CHECK(pager.step == 3 && pager.saved == 4 && pager.slots == (POET_PART_STORE | POET_PART_RAM));
    CHECK(saved_is(3));

    save_out(4); /* cut short: the save before it stands */
    check_whole();
    CHECK(saved_is(3));
    CHECK(run_to(4) == POET_OK); /* a step leaves the save where it is, and it is of another step now */
    check_whole();
    CHECK(pager.step == 4 && pager.saved == 4 && pager.slots == POET_PART_RAM && saved_is(3));

    save_out(4);
    CHECK(poet_commit(&pager, 4, POET_PART_RAM) == POET_OK);
    CHECK(saved_is(4));
    check_whole();
    CHECK(pager.saved == 5 && pager.slots == 0 && saved_is(4));

    save_out(5); /* both at once */
    for (uint32_t i = 0; i < PERSISTENT; i++) {
        fill(5, 1 + i);
        CHECK(poet_slot_out(&pager, &persistent[i], tensor) == POET_OK);
    }
    pager.seed = 42;
    CHECK(poet_commit(&pager, 5, POET_PART_STORE | POET_PART_RAM) == POET_OK);
    check_whole();
    CHECK(pager.step == 5 && pager.saved == 6 && saved_is(5));
}

/* A sink that compares with tensor[], and fails when `budget` bytes have come. */
struct reader {
    size_t at, budget;
};

static int compare(void *context, const void *piece, size_t size)
{
    struct reader *reader = context;
    if (reader->at + size > reader->budget) return POET_EIO;
    CHECK(memcmp((const unsigned char *)tensor + reader->at, piece, size) == 0);
    reader->at += size;
    return POET_OK;
}

static void a_persistent_tensor_streams_out_as_it_is_committed(void)
{
    CHECK(run_to(1) == POET_OK);
    for (uint32_t page = 1; page <= PERSISTENT; page++) {
        struct reader reader = { .budget = SIZE_MAX };
        fill(1, page);
        CHECK(poet_slot_read(&pager, &pages[page], compare, &reader) == POET_OK);
        CHECK(reader.at == pages[page].bytes);

        reader = (struct reader){ .budget = pages[page].bytes - 1 };
        CHECK(poet_slot_read(&pager, &pages[page], compare, &reader) == POET_EIO); /* the sink's error */

        const uint32_t last = pages[page].sector + id.slot_sectors + pages[page].bytes / id.sector_bytes;
        bytes[(size_t)(last + 1) * id.sector_bytes - 1] ^= 1; /* of the check word */
        reader = (struct reader){ .budget = SIZE_MAX };
        CHECK(poet_slot_read(&pager, &pages[page], compare, &reader) == POET_ECHECK);
        emulated.fail_at = emulated.counts.calls + 1;
        CHECK(poet_slot_read(&pager, &pages[page], compare, &reader) == POET_EIO);
    }
    pager.dev = NULL;
    CHECK(poet_slot_read(&pager, &pages[1], compare, &(struct reader){ .budget = 0 }) == POET_ESTATE);
}

/* A source that gives tensor[], and fails when `budget` bytes have gone. */
static int give(void *context, void *piece, size_t size)
{
    struct reader *reader = context;
    if (reader->at + size > reader->budget) return POET_ERANGE;
    memcpy(piece, (const unsigned char *)tensor + reader->at, size);
    reader->at += size;
    return POET_OK;
}

static void a_persistent_tensor_streams_in_and_is_as_if_paged_out(void)
{
    const uint32_t size = id.sector_bytes;
    const uint32_t sizes[] = { 4, size - 4, size, size + 4, 2 * size };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (unsigned part = POET_PART_STORE; part <= POET_PART_RAM; part++) {
            struct poet_page *page = part == POET_PART_STORE ? &pages[3] : &pages[MEMBER];
            if (part == POET_PART_RAM && sizes[i] > size + 8) continue;
            CHECK(open_store() == POET_OK);
            page->bytes = sizes[i];
            fill(8, 3);
            if (part == POET_PART_STORE) CHECK(poet_slot_out(&pager, page, tensor) == POET_OK);
            if (part == POET_PART_RAM) CHECK(poet_save_out(&pager, page, tensor) == POET_OK);
            memcpy(before, bytes, sizeof before);

            fill(9, 3);
            struct reader other = { .budget = SIZE_MAX };
            CHECK(poet_slot_write(&pager, (enum poet_part)part, page, give, &other) == POET_OK);
            CHECK(memcmp(before, bytes, sizeof before) != 0);
            fill(8, 3);
            struct reader reader = { .budget = SIZE_MAX };
            emulated.counts = (struct poet_emulated_counts){ 0 };
            CHECK(poet_slot_write(&pager, (enum poet_part)part, page, give, &reader) == POET_OK);
            CHECK(reader.at == sizes[i] && emulated.violations == 0);
            CHECK(emulated.counts.sectors_programmed == sizes[i] / size + 1);
            CHECK(memcmp(before, bytes, sizeof before) == 0);

            reader = (struct reader){ .budget = sizes[i] - 1 };
            CHECK(poet_slot_write(&pager, (enum poet_part)part, page, give, &reader) == POET_ERANGE);
            reader = (struct reader){ .budget = SIZE_MAX };
            emulated.fail_at = emulated.counts.calls + 1;
            CHECK(poet_slot_write(&pager, (enum poet_part)part, page, give, &reader) == POET_EIO);
            emulated.fail_at = 0;
        }
    }
    pager.dev = NULL;
    struct reader none = { .budget = 0 };
    CHECK(poet_slot_write(&pager, POET_PART_RAM, &pages[MEMBER], give, &none) == POET_ESTATE);
}

static void every_failing_call_is_reported_and_harms_nothing(void)
{
    const struct geometry geometry = { id.sector_bytes, emulated.dev.erase != NULL ? id.erase_sectors : 0 };
    CHECK(run_to(2) == POET_OK);
    const uint32_t calls = emulated.counts.calls;
    CHECK(calls > 40);
    for (uint32_t k = 1; k <= calls; k++) {
        format(&geometry);
        emulated.fail_at = k;
        CHECK(run_to(2) == POET_EIO);
        emulated.fail_at = 0;
        check_whole();
        CHECK(run_to(3) == POET_OK);
        check_whole();
        CHECK(pager.step == 3 && emulated.violations == 0);
    }
}

static void a_commit_is_atomic_at_every_power_cut(void)
{
    const struct geometry geometry = { id.sector_bytes, emulated.dev.erase != NULL ? id.erase_sectors : 0 };
    CHECK(run_to(2) == POET_OK);
    const uint32_t sectors = emulated.counts.sectors_programmed + emulated.counts.sectors_erased;
    uint32_t seen[3] = { 0 };
    for (uint32_t k = 0; k < sectors; k++) {
        for (uint32_t seed = 0; seed < 8; seed++) {
            format(&geometry);
            emulated.cut_after = k;
            CHECK(run_to(2) == POET_EIO && emulated.is_dead);
            CHECK(open_store() == POET_EIO); /* there is no power yet */
            poet_emulated_dev_restart(&emulated, seed * 7919u + k);
            check_whole();
            CHECK(pager.step <= 2);
            seen[pager.step]++;
            emulated.cut_after = (k * 5 + seed) % sectors; /* and once more, while it catches up */
            const int rc = run_to(3);
            CHECK(rc == POET_OK || rc == POET_EIO);
            poet_emulated_dev_restart(&emulated, seed);
            check_whole();
            CHECK(run_to(3) == POET_OK);
            check_whole();
            CHECK(emulated.violations == 0);
        }
    }
    CHECK(seen[0] > 0 && seen[1] > 0);
}

static void damage_is_seen(void)
{
    CHECK(run_to(1) == POET_OK);
    const uint32_t size = id.sector_bytes;
    for (uint32_t page = 0; page <= PERSISTENT; page++) {
        const uint32_t sector = pages[page].sector + (page > 0 ? id.slot_sectors : 0);
        const uint32_t all = (pages[page].bytes / size + 1) * size;
        unsigned char *at = bytes + (size_t)sector * size;
        for (uint32_t i = 0; i < all; i++) {
            at[i] ^= (unsigned char)(1u << (i % 8));
            const int is_padding = i >= pages[page].bytes && i < all - 4;
            const int rc = page == 0 ? poet_page_in(&pager, &pages[page], tensor)
                                     : poet_slot_in(&pager, &pages[page], tensor);
            CHECK(rc == (is_padding ? POET_OK : POET_ECHECK));
            at[i] ^= (unsigned char)(1u << (i % 8));
        }
    }
    check_whole();
}

/* The device is refused with `rc`, was not written, and nothing can be done with the pager. */
static void check_refused(int rc, const struct poet_blockdev *dev, const struct poet_store_id *wanted,
                          void *buffer)
{
    memcpy(before, bytes, sizeof before);
    emulated.counts = (struct poet_emulated_counts){ 0 };
    memset(&pager, 0xEE, sizeof pager);
    CHECK(poet_pager_open(&pager, dev, wanted, buffer) == rc);
    CHECK(poet_page_out(&pager, &scratch[0], tensor) == POET_ESTATE);
    CHECK(poet_page_in(&pager, &pages[0], tensor) == POET_ESTATE);
    CHECK(poet_slot_out(&pager, &pages[1], tensor) == POET_ESTATE);
    CHECK(poet_slot_in(&pager, &pages[1], tensor) == POET_ESTATE);
    CHECK(poet_save_out(&pager, &pages[MEMBER], tensor) == POET_ESTATE);
    CHECK(poet_save_in(&pager, &pages[MEMBER], tensor) == POET_ESTATE);
    CHECK(poet_commit(&pager, 0, POET_PART_STORE) == POET_ESTATE);
    CHECK(memcmp(before, bytes, sizeof before) == 0);
    CHECK(emulated.counts.progs == 0 && emulated.counts.erases == 0 && emulated.counts.syncs == 0);
}

static void what_is_not_ours_is_refused_and_never_written(void)
{
    struct poet_store_id other;
    struct poet_blockdev dev = emulated.dev;
    const uint32_t unit = id.erase_sectors;

    CHECK(open_store() == POET_OK);
    CHECK(emulated.counts.progs == 0 && emulated.counts.erases == 0); /* ours, but opening only reads */

    check_refused(POET_EINVAL, NULL, &id, bounce);
    check_refused(POET_EINVAL, &emulated.dev, NULL, bounce);
    check_refused(POET_EINVAL, &emulated.dev, &id, NULL);
    check_refused(POET_EINVAL, &emulated.dev, &id, bounce + 4);
    dev.sector_bytes = id.sector_bytes == 512 ? 1024 : 512;
    check_refused(POET_EINVAL, &dev, &id, bounce);
    if (emulated.dev.erase != NULL) {
        dev = emulated.dev;
        dev.erase_sectors = 2 * unit;
        check_refused(POET_EINVAL, &dev, &id, bounce);
    }
    dev = emulated.dev;
    dev.sectors = id.sectors - 1;
    check_refused(POET_ENOSPC, &dev, &id, bounce);
    dev.sectors = 0;
    check_refused(POET_ENOSPC, &dev, &id, bounce);

    for (size_t byte = 0; byte < 32; byte++) {
        other = id;
        other.model[byte] ^= 1;
        check_refused(POET_EMODEL, &emulated.dev, &other, bounce);
        other = id;
        other.layout[byte] ^= 1;
        check_refused(POET_EMODEL, &emulated.dev, &other, bounce);
    }
    other = id;
    other.slot_sectors += unit;
    check_refused(POET_EMODEL, &emulated.dev, &other, bounce);
    other = id;
    other.sectors -= unit;
    check_refused(POET_EMODEL, &emulated.dev, &other, bounce);

    for (uint32_t copy = 0; copy < 2; copy++) put_word(superblock(copy) + 36, 1); /* a flag of the future */
    seal(0);
    seal(1);
    check_refused(POET_EVERSION, &emulated.dev, &id, bounce);
    for (uint32_t copy = 0; copy < 2; copy++) put_word(superblock(copy) + 8, 2);
    check_refused(POET_EVERSION, &emulated.dev, &id, bounce);

    memset(bytes, 0, sizeof bytes);
    check_refused(POET_EFORMAT, &emulated.dev, &id, bounce);
    memset(bytes, 0xFF, sizeof bytes);
    check_refused(POET_EFORMAT, &emulated.dev, &id, bounce);
    memcpy(bytes, "\xEB\x3C\x90MSDOS5.0", 11); /* a card with a file system */
    memcpy(bytes + 510, "\x55\xAA", 2);
    check_refused(POET_EFORMAT, &emulated.dev, &id, bounce);
}

static void one_damaged_superblock_leaves_the_other(void)
{
    CHECK(run_to(3) == POET_OK); /* sequences 3 in copy 1 and 4 in copy 0 */
    for (uint32_t i = 0; i < 256; i++) {
        superblock(0)[i] ^= 0x10;
        CHECK(open_store() == POET_OK && pager.step == 2);
        superblock(0)[i] ^= 0x10;
        superblock(1)[i] ^= 0x10;
        CHECK(open_store() == POET_OK && pager.step == 3);
        superblock(0)[i] ^= 0x10;
        const int rc = i < 8 ? POET_EFORMAT : i < 12 ? POET_EVERSION : POET_ECHECK;
        check_refused(rc, &emulated.dev, &id, bounce);
        superblock(0)[i] ^= 0x10;
        superblock(1)[i] ^= 0x10;
    }
    memcpy(superblock(1), superblock(0), 256); /* a copy in the other's place is none */
    CHECK(open_store() == POET_OK && pager.step == 3);
    memset(superblock(0), 0, 256);
    check_refused(POET_ECHECK, &emulated.dev, &id, bounce);
}

static void the_sequence_number_may_wrap(void)
{
    write_superblock(1, UINT32_MAX, 0, 7);
    write_superblock(0, UINT32_MAX - 1, 7, 7);
    CHECK(open_store() == POET_OK && pager.step == 0);
    CHECK(train_step() == POET_OK && pager.sequence == 0);
    check_whole();
    CHECK(pager.step == 1);
    CHECK(train_step() == POET_OK && pager.sequence == 1);
    check_whole();
    CHECK(pager.step == 2);
}

static void a_failed_commit_closes_the_pager(void)
{
    CHECK(open_store() == POET_OK);
    for (uint32_t i = 0; i < PERSISTENT; i++) {
        fill(1, 1 + i);
        CHECK(poet_slot_out(&pager, &persistent[i], tensor) == POET_OK);
    }
    emulated.fail_at = emulated.counts.calls + (emulated.dev.erase != NULL ? 4 : 3); /* the last sync */
    pager.seed = 14;
    CHECK(poet_commit(&pager, 1, POET_PART_STORE) == POET_EIO);
    CHECK(poet_slot_out(&pager, &persistent[0], tensor) == POET_ESTATE);
    CHECK(poet_commit(&pager, 1, POET_PART_STORE) == POET_ESTATE);
    check_whole(); /* the superblock had arrived */
    CHECK(pager.step == 1);
}

static void the_ram_device_keeps_its_bounds(void)
{
    struct poet_blockdev dev;
    poet_ram_dev_init(&dev, bytes, id.sectors, id.sector_bytes);
    CHECK(poet_pager_open(&pager, &dev, &id, bounce) == POET_OK);
    while (pager.step < 2) CHECK(train_step() == POET_OK);
    CHECK(dev.read(&dev, id.sectors - 1, bounce, 1) == POET_OK);
    CHECK(dev.prog(&dev, id.sectors - 1, bounce, 1) == POET_OK);
    CHECK(dev.read(&dev, id.sectors, bounce, 1) == POET_EINVAL);
    CHECK(dev.prog(&dev, id.sectors - 1, bounce, 2) == POET_EINVAL);
    CHECK(dev.read(&dev, 1, bounce, UINT32_MAX) == POET_EINVAL);
}

static void the_emulated_device_keeps_the_rules_of_its_kind(void)
{
    struct poet_blockdev *dev = &emulated.dev;
    memset(bounce, 0x0F, sizeof bounce);
    const int from_0_to_1 = dev->erase != NULL ? POET_EINVAL : POET_OK;
    CHECK(dev->prog(dev, 0, bounce, 1) == from_0_to_1);
    CHECK(dev->read(dev, dev->sectors, bounce, 1) == POET_EINVAL);
    uint32_t violations = dev->erase != NULL ? 2 : 1;
    CHECK(emulated.violations == violations);
    if (dev->erase != NULL && dev->erase_sectors > 1) {
        CHECK(dev->erase(dev, 1, dev->erase_sectors) == POET_EINVAL);
        CHECK(dev->erase(dev, 0, 1) == POET_EINVAL);
        violations += 2;
    }
    if (dev->erase != NULL) {
        CHECK(dev->erase(dev, 0, dev->erase_sectors) == POET_OK);
        memset(bounce, 0x0F, sizeof bounce);
        CHECK(dev->prog(dev, 0, bounce, 1) == POET_OK);
    }
    CHECK(emulated.violations == violations);
    CHECK(bytes[0] == 0x0F && durable[0] != 0x0F); /* in the cache until a sync */
    CHECK(dev->sync(dev) == POET_OK && durable[0] == 0x0F);
}

static const struct {
    const char *name;
    void (*run)(void);
} claims[] = {
    { "what_goes_out_comes_in", what_goes_out_comes_in },
    { "a_step_reads_one_slot_and_writes_the_other", a_step_reads_one_slot_and_writes_the_other },
    { "a_save_moves_its_own_part_of_the_state", a_save_moves_its_own_part_of_the_state },
    { "a_persistent_tensor_streams_out_as_it_is_committed",
      a_persistent_tensor_streams_out_as_it_is_committed },
    { "a_persistent_tensor_streams_in_and_is_as_if_paged_out",
      a_persistent_tensor_streams_in_and_is_as_if_paged_out },
    { "every_failing_call_is_reported_and_harms_nothing", every_failing_call_is_reported_and_harms_nothing },
    { "a_commit_is_atomic_at_every_power_cut", a_commit_is_atomic_at_every_power_cut },
    { "damage_is_seen", damage_is_seen },
    { "what_is_not_ours_is_refused_and_never_written", what_is_not_ours_is_refused_and_never_written },
    { "one_damaged_superblock_leaves_the_other", one_damaged_superblock_leaves_the_other },
    { "the_sequence_number_may_wrap", the_sequence_number_may_wrap },
    { "a_failed_commit_closes_the_pager", a_failed_commit_closes_the_pager },
    { "the_ram_device_keeps_its_bounds", the_ram_device_keeps_its_bounds },
    { "the_emulated_device_keeps_the_rules_of_its_kind", the_emulated_device_keeps_the_rules_of_its_kind },
};

int main(int argc, char **argv)
{
    for (size_t claim = 0; claim < sizeof claims / sizeof claims[0]; claim++) {
        if (argc < 2) (void)puts(claims[claim].name);
        if (argc < 2 || strcmp(argv[1], claims[claim].name) != 0) continue;
        for (size_t i = 0; i < sizeof geometries / sizeof geometries[0]; i++) {
            format(&geometries[i]);
            claims[claim].run();
        }
        (void)printf("%zu geometries\n", sizeof geometries / sizeof geometries[0]);
        return 0;
    }
    return argc < 2 ? 0 : 2;
}
