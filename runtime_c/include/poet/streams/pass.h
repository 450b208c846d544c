/* pass.h: a pass over tensors of one size, a piece at a time; each of them is in the arena or in the
 * store.
 *
 * Each tensor has a lane. A result is made in the buffer of an operand from the store. If it belongs in
 * the arena and no operand is there, that operand is even read straight into the result's place. */
#ifndef POET_STREAMS_PASS_H
#define POET_STREAMS_PASS_H

#include "poet/streams/stream.h"

enum { POET_LANES = 6 };

struct poet_lane {
    float *at;          /* the tensor in the arena, or a buffer */
    uint32_t from, to;  /* first sectors, where it is read and where it is written */
    int is_buffer, is_read, is_written;
};

struct poet_pass {
    struct poet_pager *pager;
    int32_t size, most;  /* floats of a tensor, and at most of a piece: whole sectors */
    int32_t from, count; /* the piece at hand */
    float *workspace;    /* a piece for each buffer */
    int32_t lanes, residents;
    struct poet_lane lane[POET_LANES];
};

/* First the lanes, each given as its number. A result is made in the place of an operand before it, so an
 * element of it may need the same elements of the operands only. What an update changes is read in one
 * place of the store and written in another. */
struct poet_pass poet_pass(struct poet_pager *pager, int32_t size, int32_t piece, void *workspace);
int32_t poet_pass_operand(struct poet_pass *p, struct poet_stream x);
int32_t poet_pass_result(struct poet_pass *p, struct poet_stream y);
int32_t poet_pass_update(struct poet_pass *p, struct poet_stream old, struct poet_stream next);

/* Then: begin; while count > 0: read, work on each lane's piece, and write, which goes on to the next
 * piece. */
int poet_pass_begin(struct poet_pass *p);
int poet_pass_read(struct poet_pass *p);
int poet_pass_write(struct poet_pass *p);
float *poet_piece(const struct poet_pass *p, int32_t lane);

/* For several passes over the same lanes: `skip` instead of `write` in all but the last one, and `again`
 * after each. What a buffer or the arena holds already is not read again. */
void poet_pass_skip(struct poet_pass *p);
void poet_pass_again(struct poet_pass *p);

/* A run of elements at `at` of the piece at hand that is [batch][channels][size] from channel `chan` on. */
struct poet_planes {
    int32_t at, end;
    int32_t chan, batch, channels, size; /* batch 0: the piece is at its end */
};

/* The longest that begins at `at`, of tensors of `channels` planes of `size` elements an image. A piece
 * has up to five: the ends of a plane and of an image, whole images, and where the last of them begin. */
struct poet_planes poet_pass_planes(const struct poet_pass *p, int32_t channels, int32_t size, int32_t at);

/* Elementwise kernels of one and of two operands. */
int poet_pass_unary(struct poet_pager *pager, int32_t size, int32_t piece,
                    void (*kernel)(size_t n, const float *x, float *y), struct poet_stream x,
                    struct poet_stream y, void *workspace);
int poet_pass_binary(struct poet_pager *pager, int32_t size, int32_t piece,
                     void (*kernel)(size_t n, const float *a, const float *b, float *y), struct poet_stream a,
                     struct poet_stream b, struct poet_stream y, void *workspace);

#endif
