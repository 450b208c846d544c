/* stream.c: see stream.h. */
#include "poet/streams/stream.h"

#include <string.h>

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

int poet_span_read(struct poet_pager *pager, uint32_t sector, uint32_t byte, void *to, uint32_t bytes)
{
    const struct poet_blockdev *dev = pager->dev;
    unsigned char *p = to;
    if (dev == NULL) return POET_ESTATE;

    sector += byte / dev->sector_bytes;
    byte %= dev->sector_bytes;
    while (bytes > 0) {
        uint32_t sectors = bytes / dev->sector_bytes, part = sectors * dev->sector_bytes;
        if (byte == 0 && sectors > 0) {
            POET_TRY(dev->read(dev, sector, p, sectors));
        } else {
            sectors = 1;
            part = least(dev->sector_bytes - byte, bytes);
            POET_TRY(dev->read(dev, sector, pager->bounce, 1));
            memcpy(p, pager->bounce + byte, part);
            byte = 0;
        }
        sector += sectors;
        p += part;
        bytes -= part;
    }
    return POET_OK;
}

int poet_span_write(struct poet_pager *pager, uint32_t sector, uint32_t byte, const void *from,
                    uint32_t bytes)
{
    const struct poet_blockdev *dev = pager->dev;
    const unsigned char *p = from;
    if (dev == NULL) return POET_ESTATE;

    sector += byte / dev->sector_bytes;
    byte %= dev->sector_bytes;
    while (bytes > 0) {
        uint32_t sectors = bytes / dev->sector_bytes, part = sectors * dev->sector_bytes;
        if (byte == 0 && sectors > 0) {
            POET_TRY(dev->prog(dev, sector, p, sectors));
        } else {
            sectors = 1;
            part = least(dev->sector_bytes - byte, bytes);
            POET_TRY(dev->read(dev, sector, pager->bounce, 1));
            memcpy(pager->bounce + byte, p, part);
            POET_TRY(dev->prog(dev, sector, pager->bounce, 1));
            byte = 0;
        }
        sector += sectors;
        p += part;
        bytes -= part;
    }
    return POET_OK;
}

int poet_span_begin(struct poet_pager *pager, uint32_t sector, uint32_t bytes)
{
    const struct poet_blockdev *dev = pager->dev;
    if (dev == NULL) return POET_ESTATE;
    if (dev->erase == NULL || bytes == 0) return POET_OK;
    const uint32_t unit = dev->erase_sectors;
    return dev->erase(dev, sector, ((bytes - 1) / dev->sector_bytes + unit) / unit * unit);
}

/* The same box in fewer, longer runs where they follow each other. */
static struct poet_box join(const struct poet_box *box)
{
    struct poet_box b = *box;
    if (b.inner == 1 || b.inner_step == b.run) {
        b.run *= b.inner;
        b.inner = 1;
        if (b.outer == 1 || b.outer_step == b.run) {
            b.run *= b.outer;
            b.outer = 1;
        }
    }
    return b;
}

int poet_box_read(struct poet_pager *pager, uint32_t sector, int32_t at, const struct poet_box *box,
                  float *to)
{
    const struct poet_box b = join(box);
    const uint32_t bytes = 4u * (uint32_t)b.run;
    for (int32_t i = 0; i < b.outer; i++) {
        for (int32_t j = 0; j < b.inner; j++, to += b.run) {
            const uint32_t byte = 4u * (uint32_t)(at + i * b.outer_step + j * b.inner_step);
            POET_TRY(poet_span_read(pager, sector, byte, to, bytes));
        }
    }
    return POET_OK;
}

int poet_box_write(struct poet_pager *pager, uint32_t sector, int32_t at, const struct poet_box *box,
                   const float *from)
{
    const struct poet_box b = join(box);
    const uint32_t bytes = 4u * (uint32_t)b.run;
    for (int32_t i = 0; i < b.outer; i++) {
        for (int32_t j = 0; j < b.inner; j++, from += b.run) {
            const uint32_t byte = 4u * (uint32_t)(at + i * b.outer_step + j * b.inner_step);
            POET_TRY(poet_span_write(pager, sector, byte, from, bytes));
        }
    }
    return POET_OK;
}

/* Where a block begins. */
static int32_t start(const struct poet_images *t, const struct poet_block *b)
{
    return b->image * t->batch + b->row * t->row + b->chan * t->chan;
}

static struct poet_box box_of(const struct poet_images *t, const struct poet_block *b)
{
    return (struct poet_box){ b->images, t->batch, b->rows, t->row, b->chans * t->width };
}

int poet_block_read(struct poet_pager *pager, const struct poet_images *tensor,
                    const struct poet_block *block, struct poet_buffer *buffer, struct poet_view *view)
{
    struct poet_block *const has = &buffer->has;
    if (tensor->home.from != NULL) {
        *view = (struct poet_view){ tensor->home.from + start(tensor, block), tensor->batch, tensor->chan,
                                    tensor->row };
        return POET_OK;
    }
    const int32_t row = block->chans * tensor->width; /* floats of a row in the buffer */
    *view = (struct poet_view){ buffer->at, block->rows * row, tensor->width, row };

    int32_t kept = 0; /* rows that need not be read */
    if (has->images == block->images && has->image == block->image && has->chans == block->chans &&
        has->chan == block->chan) {
        const int32_t end = has->row + has->rows, new_end = block->row + block->rows;
        const int32_t up = block->row - has->row;
        if (up == 0 && end == new_end) return POET_OK;
        if (block->images == 1 && up >= 0 && block->row < end) {
            kept = (end < new_end ? end : new_end) - block->row;
            if (up > 0) memmove(buffer->at, buffer->at + up * row, 4u * (size_t)(kept * row));
        }
    }
    *has = *block;
    struct poet_block rest = *block;
    rest.row += kept;
    rest.rows -= kept;
    if (rest.rows <= 0) return POET_OK;
    const struct poet_box box = box_of(tensor, &rest);
    return poet_box_read(pager, tensor->home.sector, start(tensor, &rest), &box, buffer->at + kept * row);
}

int poet_block_write(struct poet_pager *pager, const struct poet_images *tensor,
                     const struct poet_block *block, const float *from)
{
    const struct poet_box box = box_of(tensor, block);
    return poet_box_write(pager, tensor->home.sector, start(tensor, block), &box, from);
}
