/* operand.h: where an operand of a streamed node is, as generated code says it. */
#ifndef POET_STREAMS_OPERAND_H
#define POET_STREAMS_OPERAND_H

#include "poet/streams/stream.h"

/* In the arena, or in the model's struct. */
static inline struct poet_stream poet_resident(const float *at)
{
    struct poet_stream s = { .from = at, .sector = 0 };
    return s;
}

/* In its one page. */
static inline struct poet_stream poet_paged(const struct poet_page *page)
{
    struct poet_stream s = { .from = NULL, .sector = page->sector };
    return s;
}

/* In the slot that this step reads. */
static inline struct poet_stream poet_current_slot(const struct poet_pager *pager, const struct poet_page *page)
{
    struct poet_stream s = { .from = NULL, .sector = poet_slot_sector(pager, page, 0) };
    return s;
}

/* In the slot that this step writes. */
static inline struct poet_stream poet_next_slot(const struct poet_pager *pager, const struct poet_page *page)
{
    struct poet_stream s = { .from = NULL, .sector = poet_slot_sector(pager, page, 1) };
    return s;
}

#endif
