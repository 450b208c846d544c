"""The gradient of a convolution's or a dense layer's weights and its update: stream_conv2d_dw.c.

``Dw`` is the nest, ``DwTile`` how its loops are cut, ``traffic`` walks them and counts, ``tiles``
estimates a grid of tiles in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from poetgen.graph import Node
from poetgen.op import (
    Arg,
    Call,
    In,
    Kernel,
    Op,
    Pager,
    Spec,
    StreamIn,
    StreamNew,
    StreamOut,
    Struct,
    Workspace,
)
from poetgen.ops.adam import AdamUpdate
from poetgen.ops.conv import ConvDw
from poetgen.ops.fused_update import GradientAdam, GradientMomentum, GradientSgd
from poetgen.ops.gemm import Gemm
from poetgen.ops.sgd import MomentumUpdate, SgdUpdate
from poetgen.streams.conv import (
    Estimate,
    Grid,
    Nest,
    Sizes,
    axis,
    even,
    grid,
    image_tiles,
    in_rows,
    over,
    pieces,
    resident_bytes,
    sizes_of,
    together,
    undominated,
    weighed,
)
from poetgen.streams.traffic import FLOAT_BYTES, BlockReader, Box, Traffic, box, span
from poetgen.streams.variant import Prices, StreamVariant


@dataclass(frozen=True)
class Dw:
    """``states`` of the optimizer are updated with w; None: dw is what the node makes."""

    sizes: Sizes
    states: int | None

    @property
    def group_ins(self) -> int:
        """Input channels of a group, which are those of w."""
        return self.sizes.in_c // self.sizes.groups

    @property
    def group_outs(self) -> int:
        """Output channels of a group."""
        return self.sizes.out_c // self.sizes.groups

    @property
    def forward(self) -> Nest:
        """Whose rows of x a band of dy needs."""
        return Nest(self.sizes, False)

    @property
    def words(self) -> int:
        """Of w."""
        return self.sizes.out_c * self.group_ins * self.sizes.taps


@dataclass(frozen=True)
class DwStreamed:
    """Which operands are in the store; ``w`` stands for dw, or for w and the optimizer's states."""

    x: bool
    dy: bool
    w: bool


@dataclass(frozen=True)
class DwTile:
    """How the loops are cut; the fields of ``struct poet_stream_conv2d_dw`` of the same names."""

    outs: int
    ins: int
    held_outs: int
    held_ins: int
    images: int
    rows: int
    ins_first: int = 0
    piece: int = 0


@dataclass(frozen=True)
class Places:
    """Where the buffers are, in floats, and how many there are."""

    dy_at: int
    dw_at: int
    piece_at: int
    words: int


def places(nest: Dw, streamed: DwStreamed, tile: DwTile) -> Places:
    """x, dy, dw, pieces; where x and dy are read anew for each block, pieces lie over them."""
    s = nest.sizes
    rows = max(end - first for first, end in nest.forward.bands(tile.rows))
    x = even(tile.images * rows * tile.held_ins * s.in_w) if streamed.x else 0
    dy = even(tile.images * tile.rows * tile.held_outs * s.out_w) if streamed.dy else 0
    in_workspace = streamed.w or nest.states is not None
    dw = even(tile.outs * tile.ins * s.taps) if in_workspace else 0
    updated = (1 + nest.states) * tile.piece if streamed.w and nest.states is not None else 0
    if updated and over(s.batch, tile.images) * over(s.out_h, tile.rows) > 1:
        shared = max(x + dy, updated)
        return Places(x, shared, 0, shared + dw)
    return Places(x, x + dy, x + dy + dw, x + dy + dw + updated)


@dataclass(frozen=True)
class _Side:
    """x or dy: strides, a row's width, channels; their blocks, a block's channels, those held; rows."""

    batch: int
    row: int
    width: int
    chans: int
    blocks: int
    size: int
    held: int
    bands: tuple[tuple[int, int], ...]

    def one_pass(self, reader: BlockReader, batch: int, images: int, chan: int, chans: int) -> Traffic:
        """All tiles in order, of some channels."""
        moved = Traffic()
        for image, n in pieces(batch, images):
            for first, end in self.bands:
                moved += reader.read((image, n, first, end - first, chan, chans))
        return moved


def _ends(n: int, size: int) -> Iterator[tuple[int, int]]:
    return ((start, start + length) for start, length in pieces(n, size))


def traffic(nest: Dw, streamed: DwStreamed, tile: DwTile, sector_bytes: int) -> Traffic:
    """What a run moves: every call of stream_conv2d_dw.c, pieces that cost the same counted together."""
    s = nest.sizes
    total = Traffic()
    place = places(nest, streamed, tile)
    is_dropped = nest.states is not None and place.piece_at < place.dw_at  # x and dy, after each block
    by_out, by_in = over(s.out_c, tile.outs), over(nest.group_ins, tile.ins)
    x_bands, dy_bands = nest.forward.bands(tile.rows), tuple(_ends(s.out_h, tile.rows))
    x_side = _Side(s.x_batch, s.x_row, s.in_w, nest.group_ins, by_in, tile.ins, tile.held_ins, x_bands)
    dy_side = _Side(s.y_batch, s.y_row, s.out_w, s.out_c, by_out, tile.outs, tile.held_outs, dy_bands)
    if s.groups > 1:  # a block has its own inputs
        x_side = replace(x_side, chans=s.in_c, blocks=by_out, size=tile.held_ins)
    sides = (
        (streamed.x, x_side, by_out if s.groups == 1 else 1, tile.ins_first or s.groups > 1),
        (streamed.dy, dy_side, by_in, not tile.ins_first),
    )
    for used, side, others, is_outer in sides:
        for chan, chans in pieces(side.chans, side.held) if used else ():
            passes = min(side.held // side.size, side.blocks - chan // side.size) * others
            if side.held >= side.chans:
                passes = side.blocks * others
            anew = 1 if is_outer or side.held >= side.chans else others  # it held other channels before
            if is_dropped:
                anew = passes
            reader = BlockReader(side.batch, side.row, side.width, sector_bytes)
            total += side.one_pass(reader, s.batch, tile.images, chan, chans) * anew
            if passes > anew:
                total += side.one_pass(reader, s.batch, tile.images, chan, chans) * (passes - anew)
    if streamed.w:
        total += _w_traffic(nest, tile, sector_bytes)
    return total


def _w_traffic(nest: Dw, tile: DwTile, sector_bytes: int) -> Traffic:
    """Update w and the states, or write dw."""
    s = nest.sizes
    total = Traffic()
    if nest.states is None:
        sector = sector_bytes // FLOAT_BYTES
        for (outs, at_out), (ins, at_in), times in together(
            axis(s.out_c, tile.outs, s.w_out, sector), axis(nest.group_ins, tile.ins, s.w_in, sector)
        ):
            block = Box(1, 0, outs, s.w_out, ins * s.w_in)
            total += box(at_out + at_in, block, sector_bytes, True) * times
        return total
    rows = tile.outs if tile.ins >= nest.group_ins else 1  # outputs in one run
    for (outs, at_out), (ins, at_in), times in together(
        axis(s.out_c, rows, s.w_out, tile.piece), axis(nest.group_ins, tile.ins, s.w_in, tile.piece)
    ):
        total += _run((at_out + at_in) % tile.piece, outs * ins * s.w_in, tile.piece, sector_bytes) * times
    return total * (1 + nest.states)


def _run(at: int, size: int, piece: int, sector_bytes: int) -> Traffic:
    """Read and write a run in pieces that end at multiples of ``piece``."""
    first = min(size, piece - at)
    full, last = divmod(size - first, piece)
    total = Traffic()
    for begin, length, times in ((at, first, 1), (0, piece, full), (0, last, 1)):
        if length:
            both = span(begin, length, sector_bytes) + span(begin, length, sector_bytes, True)
            total += both * times
    return total


@lru_cache(maxsize=1024)
def tiles(nest: Dw, streamed: DwStreamed, sector_bytes: int, prices: Prices) -> Grid:
    """A grid of tiles."""
    s = nest.sizes
    unit = sector_bytes // FLOAT_BYTES
    shapes = image_tiles(s.batch, s.out_h, 1)
    has_pieces = streamed.w and nest.states is not None
    if s.groups > 1:
        ins_sizes: tuple[int, ...] = (nest.group_ins,)
        outs_sizes = tuple(nest.group_outs * g for g in sizes_of(s.groups))
    else:
        ins_sizes, outs_sizes = sizes_of(nest.group_ins), sizes_of(s.out_c)
    outs, ins, shape, order, cut, sectors = grid(
        (outs_sizes, ins_sizes, range(len(shapes)), (0, 1), range(10 if has_pieces else 1), (0, 1))
    )
    x_chans = outs // nest.group_outs * ins if s.groups > 1 else ins
    one_tile = np.array([t == (s.batch, s.out_h) for t in shapes])[shape]
    held_outs, held_ins = (
        np.where(
            sectors == 1, np.lcm(chans, sector_bytes // math.gcd(sector_bytes, FLOAT_BYTES * width)), chans
        )
        for chans, width in ((outs, s.out_w), (x_chans, s.in_w))
    )
    held_outs, held_ins = np.minimum(held_outs, s.out_c), np.minimum(held_ins, s.in_c)
    fine = (sectors == 0) | (one_tile & (s.groups == 1))
    outs, ins, held_outs, held_ins, x_chans, shape, order, cut = (
        a[fine] for a in (outs, ins, held_outs, held_ins, x_chans, shape, order, cut)
    )
    images, rows = (np.array([t[i] for t in shapes])[shape] for i in range(2))
    bands = [nest.forward.bands(r) for _, r in shapes]
    most = np.array([max(end - first for first, end in b) for b in bands])[shape]
    touched = len({r for first, end in nest.forward.bands(1) for r in range(first, end)})
    all_ins = ins == nest.group_ins
    run = np.where(all_ins, outs * ins, ins) * s.taps
    share = np.array((1, 2, 3, 4, 6, 8, 16, 32, 64, 1 << 30))[cut]
    piece = -(-(-(-run // share)) // unit) * unit if has_pieces else np.full(outs.shape, nest.words)

    x_words = images * most * held_ins * s.in_w * streamed.x
    dy_words = images * rows * held_outs * s.out_w * streamed.dy
    dw_words = outs * ins * s.taps * (streamed.w or nest.states is not None)
    piece_words = piece * (1 + (nest.states or 0)) * has_pieces
    n_tiles = -(-s.batch // images) * -(-s.out_h // rows)
    x_dy = x_words + x_words % 2 + dy_words + dy_words % 2
    words = dw_words + dw_words % 2 + np.where(n_tiles > 1, np.maximum(x_dy, piece_words), x_dy + piece_words)

    by_out, by_in = -(-s.out_c // outs), -(-nest.group_ins // ins)
    cost = Estimate(prices, sector_bytes)
    sides = (
        (streamed.x, by_out, order == 1, held_ins, s.in_c, s.in_w, s.x_row, touched),
        (streamed.dy, by_in, order == 0, held_outs, s.out_c, s.out_w, s.y_row, s.out_h),
    )  # fmt: skip
    for used, others, own_first, chans, all_chans, width, row, height in sides:
        if not used:
            continue
        parts = -(-all_chans // chans)
        stays = (n_tiles == 1) & (own_first | (parts == 1))
        passes = parts * np.where(stays, 1, others if s.groups == 1 else 1)
        in_one = (chans == all_chans) & ((row == all_chans * width) | (height == 1))
        loads = np.where(in_one, passes * n_tiles, passes * height * s.batch)
        cost.move(
            loads,
            passes * height * s.batch * chans * width / np.maximum(loads, 1),
            *(chans * width, np.where(in_one, 0, row)),
        )
    if streamed.w:
        runs = np.where(all_ins, by_out, s.out_c * by_in)
        aligned = (run, np.where(all_ins, 0, s.w_out))
        if nest.states is None:
            cost.move(runs, run, *aligned, is_write=True)
        else:
            times = (1 + nest.states) * runs * -(-run // piece)
            cost.move(times, run / -(-run // piece), *aligned)
            cost.move(times, run / -(-run // piece), *aligned, is_write=True)
    return Grid(
        (outs, ins, held_outs, held_ins, images, rows, order, piece),
        np.broadcast_to(words, outs.shape),
        cost.time_s + cycles(nest, outs, ins, images, rows) * prices.s_per_cycle,
    )


@lru_cache(maxsize=8192)
def choose(
    nest: Dw, streamed: DwStreamed, limit_words: int, sector_bytes: int, prices: Prices
) -> tuple[DwTile, Traffic] | None:
    """The best tile in a workspace, and what it moves; None where not even the smallest fits."""
    prices = weighed(prices)
    best: tuple[float, DwTile, Traffic] | None = None
    for column in tiles(nest, streamed, sector_bytes, prices).best(limit_words):
        tile = DwTile(*column)
        moved = traffic(nest, streamed, tile, sector_bytes)
        time_s = moved.time_s(prices) + extra_cycles(nest, tile) * prices.s_per_cycle
        if best is None or time_s < best[0]:
            best = time_s, tile, moved
    return best and best[1:]


def cycles(nest: Dw, outs: Any, ins: Any, images: Any, rows: Any) -> Any:
    """What the kernels' calls, tiles of 4 x 4 channels and rows take to begin and end, estimated.

    Fitted to instruction counts; channels that are no four take more loads for each product.
    """
    s = nest.sizes
    if s.groups > 1:
        return np.zeros(np.shape(outs))
    tiles = -(-s.batch // images) * -(-s.out_h // rows)
    calls = -(-s.out_c // outs) * -(-s.in_c // ins) * tiles
    sites = calls * s.taps * (outs // 4 + outs % 4) * (ins // 4 + ins % 4)
    macs = s.batch * s.out_h * s.out_w * nest.words
    singles = 1 - (outs // 4 * 4) * (ins // 4 * 4) / (outs * ins)
    return 300 * calls + 60 * sites + 25 * sites * images * rows + 2 * macs * singles


def extra_cycles(nest: Dw, tile: DwTile) -> int:
    """What a tile takes more of them than the whole."""
    s = nest.sizes
    least = cycles(nest, s.out_c, nest.group_ins, s.batch, s.out_h)
    return max(0, int(cycles(nest, tile.outs, tile.ins, tile.images, tile.rows) - least))


# Variants of a node


@dataclass(frozen=True)
class Operation:
    """A node as a nest: where its operands are, and the update that follows."""

    nest: Dw
    x: int
    dy: int
    mutated: tuple[int, ...]
    update: Op | None
    lr: int
    streamable: DwStreamed

    def call(self, streamed: DwStreamed, tile: DwTile) -> Call:
        """The nest's C function with one tile."""
        place = places(self.nest, streamed, tile)
        struct = Struct(
            "struct poet_stream_conv2d_dw",
            (
                *self.nest.sizes.struct_fields(),
                *((f.name, getattr(tile, f.name)) for f in fields(tile)),
                *((name, getattr(place, name)) for name in ("dy_at", "dw_at", "piece_at")),
            ),
        )
        x_dy: tuple[Arg, ...] = (StreamIn(self.x), StreamIn(self.dy))
        olds_and_news: tuple[Arg, ...] = tuple(a for i in self.mutated for a in (StreamIn(i), StreamNew(i)))
        lr, rule = In(self.lr), self.update
        if isinstance(rule, SgdUpdate):
            args: tuple[Arg, ...] = (struct, *x_dy, lr, float(rule.weight_decay))
            kernel = Kernel("poet_stream_conv2d_sgd_f32", "stream_conv2d_sgd")
        elif isinstance(rule, MomentumUpdate):
            args = (struct, *x_dy, lr, float(rule.momentum), float(rule.weight_decay))
            kernel = Kernel("poet_stream_conv2d_momentum_f32", "stream_conv2d_sgd")
        elif isinstance(rule, AdamUpdate):
            args = (struct, rule.struct(0), *x_dy, lr, In(self.lr + 1))
            kernel = Kernel("poet_stream_conv2d_adam_f32", "stream_conv2d_adam")
        else:
            args, olds_and_news = (struct, *x_dy), (StreamOut(0),)
            kernel = Kernel("poet_stream_conv2d_dw_f32", "stream_conv2d_dw")
        return Call(kernel, (Pager(), *args, *olds_and_news, Workspace()))


def operation(node: Node) -> Operation | None:
    """A node as a nest; None for another op."""
    if isinstance(node.op, GradientSgd | GradientMomentum | GradientAdam):
        states = len(node.op.mutates) - 1
        update, operands = node.op.split(range(len(node.in_specs)))
        found = _gradient(node.op.gradient_op, operands, [node.in_specs[i] for i in operands])
        if found is None:
            return None
        sizes, x, dy, can = found
        return Operation(
            Dw(sizes, states), x, dy, node.op.mutates, node.op.update_op, update[1 + states], can
        )
    found = _gradient(node.op, range(len(node.in_specs)), node.in_specs)
    if found is None:
        return None
    sizes, x, dy, can = found
    return Operation(Dw(sizes, None), x, dy, (), None, 0, can)


def _gradient(
    op: Op, operands: Sequence[int], specs: Sequence[Spec]
) -> tuple[Sizes, int, int, DwStreamed] | None:
    """Sizes, x, dy and what may be streamed, of an op that makes the gradient of weights."""
    if isinstance(op, ConvDw):
        x, dy = specs
        sizes = Sizes(**op.geometry.fields(x, op.w_shape, dy)).without_idle_rows()
        return sizes, operands[0], operands[1], DwStreamed(in_rows(x), in_rows(dy), True)
    if isinstance(op, Gemm) and op.trans_a and not op.trans_b and op.alpha == 1 and len(specs) == 2:
        (m, rows), (_, columns) = specs[0].shape, specs[1].shape
        return Sizes.dense(m, columns, rows), operands[1], operands[0], DwStreamed(True, True, True)
    return None


MODES = tuple(DwStreamed(*(m >> k & 1 > 0 for k in range(3))) for m in range(1, 8))


def variants(node: Node, sector_bytes: int, room_bytes: int, prices: Prices) -> tuple[StreamVariant, ...]:
    """For each set of streamed operands the best tiles in all, a half and a quarter of the workspace.

    With all of them streamed, also the smallest. w and the optimizer's states are streamed together.
    """
    what = operation(node)
    if what is None:
        return ()
    out = []
    for mode in MODES:
        if any(want and not can for want, can in zip(astuple(mode), astuple(what.streamable), strict=True)):
            continue
        inputs = [i for i, streams in ((what.x, mode.x), (what.dy, mode.dy)) if streams]
        inputs += what.mutated if mode.w else ()
        outputs = (0,) if mode.w and what.update is None else ()
        room = room_bytes - resident_bytes(node, inputs, outputs)
        taken: list[StreamVariant] = []
        limits = [room // share // FLOAT_BYTES for share in (1, 2, 4)]
        if mode == what.streamable:  # the least RAM that the node can do with
            grid = tiles(what.nest, mode, sector_bytes, weighed(prices))
            limits.append(min(limits[0], int(grid.words.min())))
        for limit in limits:
            chosen = choose(what.nest, mode, limit, sector_bytes, prices)
            if chosen is None:
                continue
            tile, moved = chosen
            taken.append(
                StreamVariant(
                    tuple(sorted(inputs)),
                    outputs,
                    places(what.nest, mode, tile).words * FLOAT_BYTES,
                    moved.bytes_in,
                    moved.bytes_out,
                    moved.reads,
                    moved.writes,
                    (what.call(mode, tile),),
                    extra_cycles(what.nest, tile),
                )
            )
        out += undominated(taken, prices)
    return tuple(out)
