/* store_steps.c: five training steps on the file store.img, which the test wrote; for the host and for
 * emulated boards. Adds 1 to every element of a persistent tensor in each step, passes it through a scratch
 * page, prints what the device did and how much stack it took. Ends with 0, or with the error's number
 * without its sign. */
#include "poet/pager.h"
#include "poet/platform.h"

#include "../../runtime_c/blockdev/file.h"

enum { WORDS = 200, STEPS = 5 };

int main(void);

static const struct poet_store_id id = { .model = { 1, 2, 3 },
                                         .layout = { 4, 5, 6 },
                                         .sector_bytes = 512,
                                         .erase_sectors = 1,
                                         .slot_sectors = 2,
                                         .sectors = 9 };
static const struct poet_page frozen = { .sector = 2, .bytes = 4 };
static const struct poet_page trained = { .sector = 3, .bytes = WORDS * 4 };
static const struct poet_page saved = { .sector = 7, .bytes = WORDS * 4 };

static void print_number(const char *name, uint32_t value)
{
    char digits[10];
    int count = 0;
    for (const char *c = name; *c != '\0'; c++) poet_platform_putc(*c);
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (count > 0) poet_platform_putc(digits[--count]);
    poet_platform_putc('\n');
}

static int train_step(struct poet_pager *pager)
{
    static uint32_t tensor[WORDS];
    uint32_t one;
    POET_TRY(poet_page_in(pager, &frozen, &one));
    POET_TRY(poet_slot_in(pager, &trained, tensor));
    POET_TRY(poet_page_out(pager, &saved, tensor));
    for (uint32_t i = 0; i < WORDS; i++) tensor[i] = 0;
    POET_TRY(poet_page_in(pager, &saved, tensor));
    for (uint32_t i = 0; i < WORDS; i++) tensor[i] += one;
    POET_TRY(poet_slot_out(pager, &trained, tensor));
    pager->seed++;
    return poet_commit(pager, pager->step + 1, POET_PART_STORE);
}

static int run(void)
{
    static _Alignas(8) unsigned char bounce[512];
    static struct poet_file_dev store;
    struct poet_pager pager;
    POET_TRY(poet_file_dev_open(&store, "store.img", sizeof bounce));
    POET_TRY(poet_pager_open(&pager, &store.dev, &id, bounce));
    for (int i = 0; i < STEPS; i++) POET_TRY(train_step(&pager));
    print_number("step ", pager.step);
    print_number("reads ", store.reads);
    print_number("sectors read ", store.sectors_read);
    print_number("progs ", store.progs);
    print_number("sectors programmed ", store.sectors_programmed);
    return poet_file_dev_close(&store);
}

int main(void)
{
    poet_stack_paint();
    const int rc = run();
    print_number("stack ", poet_stack_used());
    return -rc;
}
