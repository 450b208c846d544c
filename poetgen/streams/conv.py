"""Convolution, the gradient of its input, and dense layers: runtime_c/streams/stream_conv2d.c.

``Nest`` is one of them in the roles of that file: outputs are channels of what is made (y or dx),
reductions those of its source (x or dy). ``Tile`` is how the loops are cut. ``traffic`` walks the same
loops and counts; ``tiles`` estimates a grid of tiles in closed form, and the best few are counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from poetgen.graph import Node
from poetgen.op import Arg, Call, In, Kernel, Pager, Raw, Spec, StreamIn, StreamOut, Struct, Workspace
from poetgen.ops.conv import Conv, ConvDx
from poetgen.ops.gemm import Gemm
from poetgen.streams.traffic import FLOAT_BYTES, BlockReader, Box, Traffic, box
from poetgen.streams.variant import Prices, StreamVariant

Numbers = npt.NDArray[Any]
_FAMILY = "stream_conv2d"
CANDIDATES = 10
"""Tiles that are counted for each point, the best ones by estimate."""


@dataclass(frozen=True)
class Sizes:
    """``struct poet_conv2d``."""

    batch: int
    in_c: int
    in_h: int
    in_w: int
    out_c: int
    out_h: int
    out_w: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    dilation_h: int
    dilation_w: int
    pad_top: int
    pad_left: int
    groups: int
    x_batch: int
    x_chan: int
    x_row: int
    y_batch: int
    y_chan: int
    y_row: int
    w_out: int
    w_in: int

    @classmethod
    def dense(cls, batch: int, ins: int, outs: int) -> Sizes:
        """A dense layer: images of 1 x 1."""
        return cls(
            *(batch, ins, 1, 1, outs, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1),
            *(ins, 1, 1, outs, 1, 1, ins, 1),
        )

    @property
    def taps(self) -> int:
        """Of one pair of channels."""
        return self.kernel_h * self.kernel_w

    def without_idle_rows(self) -> Sizes:
        """For y and dw: rows of x that a 1-high kernel strides over are no rows."""
        if self.kernel_h > 1 or self.stride_h == 1 or self.pad_top:
            return self
        if (self.out_h - 1) * self.stride_h >= self.in_h:
            return self
        return replace(self, in_h=self.out_h, x_row=self.x_row * self.stride_h, stride_h=1)

    def reach(self, row: int, rows: int) -> tuple[int, int]:
        """First row and end of what rows of y take from x."""
        top = row * self.stride_h - self.pad_top
        end = top + (rows - 1) * self.stride_h + (self.kernel_h - 1) * self.dilation_h + 1
        first = min(max(0, top), self.in_h)
        return first, max(first, min(end, self.in_h))

    def reached_from(self, row: int, rows: int) -> tuple[int, int]:
        """First row and end of what rows of dx take from dy."""
        top = row + self.pad_top - (self.kernel_h - 1) * self.dilation_h
        end = min((row + rows - 1 + self.pad_top) // self.stride_h + 1, self.out_h)
        return min(over(max(0, top), self.stride_h), end), end

    def struct_fields(self) -> tuple[tuple[str, int], ...]:
        """As member ``c`` of a nest's struct."""
        return tuple((f"c.{f.name}", getattr(self, f.name)) for f in fields(self))


def over(n: int, d: int) -> int:
    """n / d, rounded up."""
    return -(-n // d)


@dataclass(frozen=True)
class Nest:
    """A convolution (or dense layer), or the gradient of its input."""

    sizes: Sizes
    is_dx: bool

    @property
    def outs(self) -> int:
        """Channels of what is made."""
        return self.sizes.in_c if self.is_dx else self.sizes.out_c

    @property
    def reds(self) -> int:
        """Channels of the source."""
        return self.sizes.out_c if self.is_dx else self.sizes.in_c

    @property
    def rows(self) -> int:
        """Of what is made."""
        return self.sizes.in_h if self.is_dx else self.sizes.out_h

    @property
    def group_outs(self) -> int:
        """Of one group."""
        return self.outs // self.sizes.groups

    @property
    def group_reds(self) -> int:
        """Of one group."""
        return self.reds // self.sizes.groups

    @property
    def made(self) -> tuple[int, int, int]:
        """Strides of an image and of a row, and a row's width."""
        s = self.sizes
        return (s.x_batch, s.x_row, s.in_w) if self.is_dx else (s.y_batch, s.y_row, s.out_w)

    @property
    def source(self) -> tuple[int, int, int]:
        """Strides of an image and of a row, and a row's width."""
        s = self.sizes
        return (s.y_batch, s.y_row, s.out_w) if self.is_dx else (s.x_batch, s.x_row, s.in_w)

    def source_rows(self, row: int, rows: int) -> tuple[int, int]:
        """First row and end of what ``rows`` rows from ``row`` on are made from."""
        return self.sizes.reached_from(row, rows) if self.is_dx else self.sizes.reach(row, rows)

    def bands(self, rows: int) -> tuple[tuple[int, int], ...]:
        """Source rows of each band."""
        return _bands(self, rows)


@lru_cache(maxsize=4096)
def _bands(nest: Nest, rows: int) -> tuple[tuple[int, int], ...]:
    return tuple(nest.source_rows(row, min(rows, nest.rows - row)) for row in range(0, nest.rows, rows))


@dataclass(frozen=True)
class Streamed:
    """Which operands are in the store."""

    source: bool
    weights: bool
    made: bool


@dataclass(frozen=True)
class Tile:
    """How the loops are cut; the fields of ``struct poet_stream_conv2d`` of the same names."""

    outs: int
    part: int
    reds: int
    held: int
    images: int
    rows: int
    tiles_first: int = 0
    keep_weights: int = 0
    keep_sums: int = 0


def buffers(nest: Nest, streamed: Streamed, tile: Tile) -> tuple[int, int, int]:
    """Floats for source rows, weights and sums; even, so that each begins at a multiple of 8 bytes."""
    s = nest.sizes
    grouped = s.groups > 1
    block_reds = tile.outs // nest.group_outs * nest.group_reds if grouped else nest.reds
    rows = max(end - first for first, end in nest.bands(tile.rows))
    source = tile.images * rows * min(tile.held, block_reds) * nest.source[2]
    if grouped:
        weights = (block_reds if nest.is_dx else tile.outs) * (s.in_c // s.groups) * s.taps
    elif tile.keep_weights:
        weights = tile.outs * nest.reds * s.taps
    else:
        weights = tile.part * tile.reds * s.taps
    chans = tile.part if tile.reds >= block_reds and not tile.keep_sums else tile.outs
    sums = tile.images * tile.rows * chans * nest.made[2]
    return (
        even(source if streamed.source else 0),
        even(weights if streamed.weights else 0),
        even(sums if streamed.made else 0),
    )


def even(n: int) -> int:
    """n or n + 1."""
    return n + n % 2


def traffic(nest: Nest, streamed: Streamed, tile: Tile, sector_bytes: int) -> Traffic:
    """What a run moves: every call of stream_conv2d.c, pieces that cost the same counted together."""
    total = Traffic()
    if streamed.source:
        total += _source_traffic(nest, tile, sector_bytes)
    if streamed.weights:
        total += _weight_traffic(nest, tile, sector_bytes)
    if streamed.made:
        batch, row, width = nest.made
        by_part = not tile.keep_sums and (nest.sizes.groups > 1 or tile.reds >= nest.reds)
        sector = sector_bytes // FLOAT_BYTES
        chans: Axis = Counter()
        for chan, outs in pieces(nest.outs, tile.outs):
            for out, part in pieces(outs, tile.part if by_part else outs):
                chans[part, (chan + out) * width % sector] += 1
        for (n, at_n), (rows, at_row), (c, at_c), times in together(
            axis(nest.sizes.batch, tile.images, batch, sector), axis(nest.rows, tile.rows, row, sector), chans
        ):
            total += (
                box(at_n + at_row + at_c, Box(n, batch, rows, row, c * width), sector_bytes, True) * times
            )
    return total


Axis = Counter[tuple[int, int]]
"""How often there is a piece of some length at some offset, modulo a sector."""


def pieces(n: int, size: int) -> Iterator[tuple[int, int]]:
    """Start and length of each piece of n."""
    for start in range(0, n, size):
        yield start, min(size, n - start)


def axis(n: int, size: int, step: int, sector: int) -> Axis:
    """The pieces of n whose elements are ``step`` floats apart."""
    return Counter((length, start * step % sector) for start, length in pieces(n, size))


def together(*axes: Axis) -> Iterator[Any]:
    """One piece of each axis, and how often there are these."""
    for chosen in product(*(a.items() for a in axes)):
        yield *(piece for piece, _ in chosen), math.prod(times for _, times in chosen)


def _source_traffic(nest: Nest, tile: Tile, sector_bytes: int) -> Traffic:
    s = nest.sizes
    batch, row, width = nest.source
    images, bands = tuple(pieces(s.batch, tile.images)), nest.bands(tile.rows)
    blocks = over(nest.outs, tile.outs)
    total = Traffic()
    if s.groups == 1 and tile.held < nest.reds:  # nothing stays from one tile to the next
        sector = sector_bytes // FLOAT_BYTES
        rows: Axis = Counter((end - first, first * row % sector) for first, end in bands)
        for (n, at_n), (r, at_row), (c, at_c), times in together(
            axis(s.batch, tile.images, batch, sector), rows, axis(nest.reds, tile.held, width, sector)
        ):
            total += box(at_n + at_row + at_c, Box(n, batch, r, row, c * width), sector_bytes) * times
        return total * blocks

    def one_pass(reader: BlockReader, chan: int, chans: int) -> Traffic:
        """All tiles in order."""
        moved = Traffic()
        for image, n in images:
            for first, end in bands:
                moved += reader.read((image, n, first, end - first, chan, chans))
        return moved

    if s.groups > 1:
        for chan, outs in pieces(nest.outs, tile.outs):
            channels = chan // nest.group_outs * nest.group_reds, outs // nest.group_outs * nest.group_reds
            if tile.tiles_first and blocks > 1:  # another block comes in between
                for image, n in images:
                    for first, end in bands:
                        block = (image, n, first, end - first, *channels)
                        total += BlockReader(*nest.source, sector_bytes).read(block)
            else:
                total += one_pass(BlockReader(*nest.source, sector_bytes), *channels)
        return total
    reader = BlockReader(*nest.source, sector_bytes)
    total = one_pass(reader, 0, nest.reds)
    if blocks > 1 and not tile.tiles_first:
        total += one_pass(reader, 0, nest.reds) * (blocks - 1)
    return total


def _weight_traffic(nest: Nest, tile: Tile, sector_bytes: int) -> Traffic:
    s = nest.sizes
    sector = sector_bytes // FLOAT_BYTES
    tiles = over(s.batch, tile.images) * over(nest.rows, tile.rows)
    blocks = tuple(pieces(nest.outs, tile.outs))
    out_step, red_step = (s.w_in, s.w_out) if nest.is_dx else (s.w_out, s.w_in)
    visits = tiles if tile.tiles_first and len(blocks) > 1 else 1  # of a block that one load serves
    total = Traffic()
    if s.groups > 1:
        minors = s.in_c // s.groups
        for chan, outs in blocks:
            major, majors = chan, outs
            if nest.is_dx:
                major, majors = (n // nest.group_outs * nest.group_reds for n in (chan, outs))
            total += box(major * s.w_out, Box(1, 0, majors, s.w_out, minors * s.taps), sector_bytes) * visits
        return total
    reds = axis(nest.reds, nest.reds if tile.keep_weights else tile.reds, red_step, sector)
    outs_axis: Axis = Counter()
    for chan, outs in blocks:
        part = outs if tile.keep_weights else tile.part
        is_one_load = part >= outs and reds.total() == 1
        for out, length in pieces(outs, part):
            outs_axis[length, (chan + out) * out_step % sector] += visits if is_one_load else tiles
    for (o, at_out), (r, at_red), times in together(outs_axis, reds):
        major, minor = (r, o) if nest.is_dx else (o, r)
        total += box(at_out + at_red, Box(1, 0, major, s.w_out, minor * s.taps), sector_bytes) * times
    return total


# Tiles to choose from

_NOTHING, _ALL_ROWS, _SECTORS_OF_ROWS, _WEIGHTS, _SUMS = range(5)  # what stays in RAM for longer


def sizes_of(n: int, most: int = 14) -> tuple[int, ...]:
    """Sizes of a tile along an axis of n: divisors, powers of two and n/1 .. n/6, thinned."""
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    if len(divisors) > most:
        divisors = [d for d in divisors if d & (d - 1) == 0 or d == n]
    powers = [1 << k for k in range(n.bit_length()) if 1 << k <= n]
    return tuple(sorted({*divisors, *powers, *(over(n, k) for k in range(1, 7))}))


@dataclass(frozen=True, eq=False)
class Grid:
    """Tiles as columns, with their workspace and an estimate of their time."""

    columns: tuple[Numbers, ...]
    words: Numbers
    time_s: Numbers

    def best(self, limit_words: int) -> Iterator[tuple[int, ...]]:
        """The best few within a limit, by estimate."""
        fits = np.flatnonzero(self.words <= limit_words)
        for i in fits[np.lexsort((self.words[fits], self.time_s[fits]))][:CANDIDATES]:
            yield tuple(int(c[i]) for c in self.columns)


class Estimate:
    """Seconds of transfers of many tiles at once; runs that are ragged at sectors cost an average."""

    def __init__(self, prices: Prices, sector_bytes: int) -> None:
        self.prices, self.sector_bytes = prices, sector_bytes
        self.time_s: Any = 0.0

    def move(self, times: Any, run: Any, *aligned: Any, is_write: bool = False) -> None:
        """Add ``times`` runs of ``run`` floats that begin and end at multiples of ``aligned``."""
        p, sector = self.prices, self.sector_bytes
        size = np.asarray(run) * FLOAT_BYTES
        ragged = np.zeros(np.shape(times), np.bool_)
        for unit in aligned:
            ragged = ragged | (np.asarray(unit) * FLOAT_BYTES % sector != 0)
        ends = np.where(size < sector, 1 + size / sector, 1.75)
        calls = np.where(ragged, ends + (size >= 2 * sector), 1.0)
        moved = np.where(ragged, size + sector, size)
        if is_write:
            seconds = calls * p.out_latency_s + moved * p.out_s_per_byte
            seconds += np.where(ragged, ends * (p.in_latency_s + sector * p.in_s_per_byte), 0.0)
        else:
            seconds = calls * p.in_latency_s + moved * p.in_s_per_byte
        self.time_s = self.time_s + times * seconds


def grid(axes: Sequence[Iterable[int]]) -> tuple[Numbers, ...]:
    """All combinations, a column an axis."""
    return tuple(a.ravel() for a in np.meshgrid(*(np.array(tuple(a), np.int64) for a in axes), indexing="ij"))


def image_tiles(batch: int, rows: int, step: int) -> tuple[tuple[int, int], ...]:
    """(images, rows) of a tile: bands of one image, or whole images."""
    one = {step * r for r in sizes_of(over(rows, step)) if step * r < rows} | {1, rows}
    return (*((1, r) for r in sorted(one)), *((n, rows) for n in sizes_of(batch) if n > 1))


BYTE_WEIGHT = 2.0
"""A tile's bytes count as twice their time: of tiles that are about as fast, the one that moves less."""


def weighed(prices: Prices) -> Prices:
    """The prices by which tiles are chosen."""
    return replace(
        prices,
        in_s_per_byte=BYTE_WEIGHT * prices.in_s_per_byte,
        out_s_per_byte=BYTE_WEIGHT * prices.out_s_per_byte,
    )


@lru_cache(maxsize=1024)
def tiles(nest: Nest, streamed: Streamed, sector_bytes: int, prices: Prices) -> Grid:
    """A grid of tiles."""
    s = nest.sizes
    shapes = image_tiles(s.batch, nest.rows, s.stride_h if nest.is_dx else 1)
    if s.groups > 1:
        return _grouped(nest, streamed, shapes, sector_bytes, prices)
    outs_sizes = sizes_of(nest.outs)
    cut_reds = streamed.source or streamed.weights
    columns = grid(
        (
            outs_sizes,
            outs_sizes if streamed.weights else (0,),
            sizes_of(nest.reds) if cut_reds else (nest.reds,),
            range(len(shapes)),
            (0, 1),
            (
                _NOTHING,
                *((_ALL_ROWS, _SECTORS_OF_ROWS) if streamed.source else ()),
                *((_WEIGHTS,) if streamed.weights else ()),
                *((_SUMS,) if streamed.made else ()),
            ),
        )
    )
    outs, part, reds, shape, order, keep = columns
    made_batch, made_row, made_width = nest.made
    _, source_row, source_width = nest.source
    part = np.where(part == 0, outs, part)
    sector_chans = sector_bytes // math.gcd(sector_bytes, FLOAT_BYTES * source_width)
    held = np.select(
        [keep == _ALL_ROWS, keep == _SECTORS_OF_ROWS], [nest.reds, np.lcm(reds, sector_chans)], reds
    )
    fine = (
        (part <= outs) & (held <= nest.reds) & ((keep == _NOTHING) | ((reds == nest.reds) == (keep == _SUMS)))
    )
    fine &= ((keep != _WEIGHTS) | (part == outs)) & ((keep != _SECTORS_OF_ROWS) | (held > reds))
    outs, part, reds, held, shape, order, keep = (
        c[fine] for c in (outs, part, reds, held, shape, order, keep)
    )
    images, rows = (np.array([t[i] for t in shapes])[shape] for i in range(2))
    whole = reds == nest.reds
    halo, most = (np.array([f(nest.bands(r)) for _, r in shapes])[shape] for f in (_sum_of_rows, _most_rows))
    touched = _touched(nest)

    source_words = images * most * held * source_width
    weight_words = np.where(keep == _WEIGHTS, outs * nest.reds, part * reds) * s.taps
    by_part = whole & (keep != _SUMS)
    sum_words = images * rows * np.where(by_part, part, outs) * made_width
    words = sum(
        (w + w % 2) * used
        for w, used in (
            (source_words, streamed.source),
            (weight_words, streamed.weights),
            (sum_words, streamed.made),
        )
    )

    blocks, parts, chunks = -(-nest.outs // outs), -(-outs // part), -(-nest.reds // reds)
    n_tiles = -(-s.batch // images) * -(-nest.rows // rows)
    cost = Estimate(prices, sector_bytes)
    if streamed.source:
        passes = np.where((order == 1) | (n_tiles == 1), 1, blocks)
        all_reds = nest.reds * source_width
        rows_read = passes * touched * s.batch
        in_one = source_row == all_reds or _most_rows(nest.bands(nest.rows)) == 1
        loads = passes * n_tiles if in_one else rows_read
        stays = held == nest.reds
        cost.move(
            np.where(stays, loads, blocks * -(-nest.reds // held) * halo * s.batch),
            np.where(stays, rows_read * all_reds / np.maximum(loads, 1), held * source_width),
            *(held * source_width, source_row),
        )
    if streamed.weights:
        kept = (keep == _WEIGHTS) | (chunks * parts == 1)
        loads = np.where(
            kept,
            np.where((order == 1) & (blocks > 1), blocks * n_tiles, blocks),
            blocks * parts * chunks * n_tiles,
        )
        o, r = np.where(kept, outs, part), np.where(kept, nest.reds, reds)
        major, minor, minors = (r, o, nest.outs) if nest.is_dx else (o, r, nest.reds)
        one_run = minor == minors
        cost.move(
            loads * np.where(one_run, 1, major),
            np.where(one_run, major, 1) * minor * s.taps,
            *(np.where(one_run, major, 1) * minor * s.taps, np.where(one_run, 0, s.w_out)),
        )
    if streamed.made:
        o = np.where(by_part, part, outs)
        count = blocks * n_tiles * np.where(by_part, parts, 1)
        one_run = (o == nest.outs) & (made_row == nest.outs * made_width) | (nest.rows * s.batch == 1)
        one_run &= (images == 1) | (made_batch == nest.rows * made_row)
        per = images * rows
        cost.move(
            count * np.where(one_run, 1, per),
            np.where(one_run, per, 1) * o * made_width,
            *(np.where(one_run, per, 1) * o * made_width, np.where(one_run, 0, made_row)),
            is_write=True,
        )
    kept_ones = tuple((keep == k) * 1 for k in (_WEIGHTS, _SUMS))
    return Grid(
        (outs, part, reds, held, images, rows, order, *kept_ones),
        np.asarray(words),
        cost.time_s + cycles(nest, outs, part, reds, images, rows) * prices.s_per_cycle,
    )


def _grouped(
    nest: Nest,
    streamed: Streamed,
    shapes: Sequence[tuple[int, int]],
    sector_bytes: int,
    prices: Prices,
) -> Grid:
    """Blocks of whole groups; their tiles are few, so they are counted at once."""
    found = []
    for groups in sizes_of(nest.sizes.groups):
        for images, rows in shapes:
            outs, reds = groups * nest.group_outs, groups * nest.group_reds
            tile = Tile(outs, outs, reds, reds, images, rows)
            words = sum(buffers(nest, streamed, tile))
            found.append((astuple(tile), words, traffic(nest, streamed, tile, sector_bytes).time_s(prices)))
    columns = tuple(np.array(c) for c in zip(*(f[0] for f in found), strict=True))
    return Grid(columns, np.array([f[1] for f in found]), np.array([f[2] for f in found]))


def _sum_of_rows(bands: Sequence[tuple[int, int]]) -> int:
    return sum(end - first for first, end in bands)


def _most_rows(bands: Sequence[tuple[int, int]]) -> int:
    return max(end - first for first, end in bands)


def _touched(nest: Nest) -> int:
    return len({r for first, end in nest.bands(1) for r in range(first, end)})


@lru_cache(maxsize=8192)
def choose(
    nest: Nest, streamed: Streamed, limit_words: int, sector_bytes: int, prices: Prices
) -> tuple[Tile, Traffic] | None:
    """The best tile in a workspace, and what it moves; None where not even the smallest fits."""
    prices = weighed(prices)
    best: tuple[float, Tile, Traffic] | None = None
    for column in tiles(nest, streamed, sector_bytes, prices).best(limit_words):
        tile = Tile(*column)
        moved = traffic(nest, streamed, tile, sector_bytes)
        time_s = moved.time_s(prices) + extra_cycles(nest, tile) * prices.s_per_cycle
        if best is None or time_s < best[0]:
            best = time_s, tile, moved
    return best and best[1:]


def cycles(nest: Nest, outs: Any, part: Any, reds: Any, images: Any, rows: Any) -> Any:
    """What the kernels' calls and their tiles of 4 channels x 4 positions take to begin and end, estimated.

    Fitted to instruction counts; an odd channel goes line by line, which is slower than fours.
    """
    s = nest.sizes
    if s.groups > 1:
        return np.zeros(np.shape(outs))
    step_y, step_x = (s.stride_h, s.stride_w) if nest.is_dx else (1, 1)
    tiles = -(-s.batch // images) * -(-nest.rows // rows)
    calls = -(-nest.outs // outs) * -(-outs // part) * -(-nest.reds // reds) * tiles
    lines = part % 4 == 1
    fours = -(-part // 4) - lines
    sites = (
        calls * images * step_y * step_x * -(-rows // step_y) * -(-(-(-nest.made[2] // step_x)) // 4) * fours
    )
    is_easy = s.kernel_w == s.kernel_h == 3 and s.stride_w == s.dilation_w == 1
    line = s.taps * (22 if is_easy else 55)
    macs = s.batch * s.out_h * s.out_w * nest.outs * nest.reds * s.taps
    idle = macs * (4 * fours + lines - part) / part  # of four channels, where there are fewer
    return 300 * calls + 120 * sites + line * calls * images * rows * reds * lines + 3 * idle


def extra_cycles(nest: Nest, tile: Tile) -> int:
    """What a tile takes more of them than the whole."""
    s = nest.sizes
    least = cycles(nest, nest.outs, nest.outs, nest.reds, s.batch, nest.rows)
    return max(0, int(cycles(nest, tile.outs, tile.part, tile.reds, tile.images, tile.rows) - least))


# Variants of a node


@dataclass(frozen=True)
class Operation:
    """A node as a nest: which operand is what, and how it is called."""

    nest: Nest
    source: int
    weights: int
    bias: int | None
    streamable: Streamed

    def call(self, streamed: Streamed, tile: Tile) -> Call:
        """The nest's C function with one tile."""
        source, weights, _ = buffers(self.nest, streamed, tile)
        struct = Struct(
            "struct poet_stream_conv2d",
            (
                *self.nest.sizes.struct_fields(),
                *((f.name, getattr(tile, f.name)) for f in fields(tile)),
                ("weights_at", source),
                ("sums_at", source + weights),
            ),
        )
        bias: Arg = Raw("NULL") if self.bias is None else In(self.bias)
        symbol = "poet_stream_conv2d_dx_f32" if self.nest.is_dx else "poet_stream_conv2d_f32"
        operands: tuple[Arg, ...] = (StreamIn(self.source), StreamIn(self.weights))
        if self.nest.is_dx:
            operands = operands[::-1]
        return Call(Kernel(symbol, _FAMILY), (Pager(), struct, *operands, bias, StreamOut(0), Workspace()))


def in_rows(spec: Spec) -> bool:
    """Do an image's bytes lie as [image][row][channel][x]?"""
    return spec.layout == "rows" or len(spec.shape) < 4 or spec.shape[1] == 1 or spec.shape[2] == 1


def operation(node: Node) -> Operation | None:
    """A node as a nest; None for another op."""
    op, specs = node.op, node.in_specs
    if isinstance(op, Conv):
        (y,) = node.out_specs
        sizes = Sizes(**op.geometry.fields(specs[0], specs[1].shape, y)).without_idle_rows()
        can = Streamed(in_rows(specs[0]), True, in_rows(y))
        return Operation(Nest(sizes, False), 0, 1, 2 if len(specs) > 2 else None, can)
    if isinstance(op, ConvDx):
        (dx,) = node.out_specs
        sizes = Sizes(**op.geometry.fields(dx, specs[0].shape, specs[1]))
        return Operation(Nest(sizes, True), 1, 0, None, Streamed(in_rows(specs[1]), True, in_rows(dx)))
    if isinstance(op, Gemm) and not op.trans_a and op.alpha == op.beta == 1:
        (m, k), n = specs[0].shape, node.out_specs[0].shape[1]
        bias = None
        if len(specs) > 2:
            if specs[2].size != n or specs[2].shape[-1] != n:
                return None
            bias = 2
        if op.trans_b:
            return Operation(Nest(Sizes.dense(m, k, n), False), 0, 1, bias, Streamed(True, True, True))
        return Operation(Nest(Sizes.dense(m, n, k), True), 0, 1, bias, Streamed(True, True, True))
    return None


MODES = tuple(Streamed(*(m >> k & 1 > 0 for k in range(3))) for m in range(1, 8))


def variants(node: Node, sector_bytes: int, room_bytes: int, prices: Prices) -> tuple[StreamVariant, ...]:
    """For each set of streamed operands the best tiles in all, a half and a quarter of the workspace.

    With all of them streamed, also the smallest.
    """
    what = operation(node)
    if what is None:
        return ()
    out = []
    for mode in MODES:
        if any(want and not can for want, can in zip(astuple(mode), astuple(what.streamable), strict=True)):
            continue
        streamed_in = tuple(
            sorted(i for i, s in ((what.source, mode.source), (what.weights, mode.weights)) if s)
        )
        room = room_bytes - resident_bytes(node, streamed_in, (0,) if mode.made else ())
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
                    streamed_in,
                    (0,) if mode.made else (),
                    sum(buffers(what.nest, mode, tile)) * FLOAT_BYTES,
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


def resident_bytes(node: Node, streamed_in: Iterable[int], streamed_out: Iterable[int]) -> int:
    """What the operands that are not streamed take, each at a multiple of 8 bytes."""
    ins = {node.inputs[i]: s.nbytes for i, s in enumerate(node.in_specs) if i not in set(streamed_in)}
    outs = [s.nbytes for i, s in enumerate(node.out_specs) if i not in set(streamed_out)]
    return sum(over(n, 8) * 8 for n in (*ins.values(), *outs))


def undominated(found: Sequence[StreamVariant], prices: Prices) -> list[StreamVariant]:
    """Those for which no other takes less time in no more workspace."""
    kept: list[StreamVariant] = []
    for v in sorted(found, key=lambda v: (v.time_s(prices), v.workspace_bytes)):
        if all(v.workspace_bytes < k.workspace_bytes for k in kept):
            kept.append(v)
    return kept
