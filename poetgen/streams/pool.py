"""Pooling by blocks of channels and bands of rows: runtime_c/streams/stream_pool.c.

What is made is y, or dx; its source is x, or dy. A source row that two bands need stays in the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from poetgen.graph import Node
from poetgen.op import Arg, Call, In, Kernel, Out, Pager, Raw, Spec, StreamIn, StreamOut, Struct, Workspace
from poetgen.ops.pool import AveragePool, AveragePoolDx, MaxPool, MaxPoolDx, MaxPoolValues
from poetgen.streams.conv import resident_bytes, undominated
from poetgen.streams.traffic import FLOAT_BYTES, BlockReader, Traffic, block_traffic
from poetgen.streams.variant import Prices, StreamVariant

KNOWN = (MaxPool, MaxPoolValues, MaxPoolDx, AveragePool, AveragePoolDx)
"""Ops that this module can stream."""


@dataclass(frozen=True)
class Images:
    """A tensor [batch][rows][channels][width]; strides in floats."""

    batch_step: int
    row_step: int
    rows: int
    width: int


@dataclass(frozen=True)
class Nest:
    """What the loops go over; the rest is a window along the rows."""

    is_dx: bool
    batch: int
    channels: int
    source: Images
    made: Images
    kernel: int
    stride: int
    pad: int
    dilation: int

    def needs(self, first: int, rows: int) -> tuple[int, int]:
        """First source row and rows for rows of what is made: ``source_of``."""
        extent = (self.kernel - 1) * self.dilation + 1
        last = first + rows - 1
        if self.is_dx:
            start = max(first + self.pad - extent + self.stride, 0) // self.stride
            end = min((last + self.pad) // self.stride + 1, self.source.rows)
        else:
            start = max(first * self.stride - self.pad, 0)
            end = min(last * self.stride - self.pad + extent, self.source.rows)
        return (start, end - start) if end > start else (0, 0)

    def bands(self, rows: int) -> Iterator[tuple[int, int]]:
        """First row and rows of each band."""
        for first in range(0, self.made.rows, rows):
            yield first, min(rows, self.made.rows - first)


@dataclass(frozen=True)
class Streamed:
    """Which of the two are in the store."""

    source: bool
    made: bool


@dataclass(frozen=True)
class Tile:
    """``struct poet_bands`` without the place of what is made."""

    chans: int
    rows: int


def buffers(nest: Nest, mode: Streamed, tile: Tile) -> tuple[int, int]:
    """Floats of the two buffers: source, made."""
    needed = max(nest.needs(*band)[1] for band in nest.bands(tile.rows))
    return (
        needed * tile.chans * nest.source.width if mode.source else 0,
        tile.rows * tile.chans * nest.made.width if mode.made else 0,
    )


@lru_cache(maxsize=4096)
def traffic(nest: Nest, mode: Streamed, tile: Tile, sector_bytes: int) -> Traffic:
    """The nest's loops, counted."""
    source, made = nest.source, nest.made
    reader = BlockReader(source.batch_step, source.row_step, source.width, sector_bytes)
    total = Traffic()
    for image in range(nest.batch):
        for chan in range(0, nest.channels, tile.chans):
            chans = min(tile.chans, nest.channels - chan)
            for first, rows in nest.bands(tile.rows):
                needed_first, needed = nest.needs(first, rows)
                if mode.source and needed:
                    total += reader.read((image, 1, needed_first, needed, chan, chans))
                if mode.made:
                    block = (image, 1, first, rows, chan, chans)
                    steps = made.batch_step, made.row_step, made.width
                    total += block_traffic(block, *steps, sector_bytes, is_write=True)
    return total


def choose(
    nest: Nest, mode: Streamed, limit_bytes: int, sector_bytes: int, prices: Prices
) -> tuple[Tile, Traffic] | None:
    """The fastest tile: for some numbers of channels the most rows that fit. None: not one row fits."""
    limit = limit_bytes // FLOAT_BYTES
    best: tuple[float, int, Tile, Traffic] | None = None
    chans = nest.channels
    while True:
        rows = _most_rows(nest, mode, chans, limit)
        if rows:
            count = -(-nest.made.rows // rows)
            tile = Tile(chans, -(-nest.made.rows // count))
            moved = traffic(nest, mode, tile, sector_bytes)
            found = (moved.time_s(prices), sum(buffers(nest, mode, tile)), tile, moved)
            best = found if best is None or found[:2] < best[:2] else best
        if chans == 1:
            return None if best is None else best[2:]
        chans = (chans + 1) // 2


def _most_rows(nest: Nest, mode: Streamed, chans: int, limit: int) -> int:
    low, high = 0, nest.made.rows
    while low < high:
        middle = (low + high + 1) // 2
        if sum(buffers(nest, mode, Tile(chans, middle))) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def variants(node: Node, sector_bytes: int, room_bytes: int, prices: Prices) -> tuple[StreamVariant, ...]:
    """For each of source and made in the store the fastest tile in all, a half and a quarter of the room.

    For both also the smallest.
    """
    nest = describe(node)
    if nest is None:
        return ()
    found: list[StreamVariant] = []
    for mode in modes(node):
        room = room_bytes - resident_bytes(node, (0,) if mode.source else (), (0,) if mode.made else ())
        limits = [room // share for share in (1, 2, 4)]
        if mode == Streamed(True, True):  # the least RAM that the node can do with
            limits.append(min(room, sum(buffers(nest, mode, Tile(1, 1))) * FLOAT_BYTES))
        chosen = (choose(nest, mode, limit, sector_bytes, prices) for limit in limits)
        tiles = dict.fromkeys(c[0] for c in chosen if c is not None)
        found += undominated([variant(node, mode, t, sector_bytes) for t in tiles], prices)
    return tuple(found)


def modes(node: Node) -> tuple[Streamed, ...]:
    """An image in the store is in rows, or has but one row or one channel."""
    source, made = (
        s.layout == "rows" or s.shape[1] == 1 or len(s.shape) == 3 or s.shape[2] == 1
        for s in (node.in_specs[0], node.out_specs[0])
    )
    every = (Streamed(source=True, made=False), Streamed(source=False, made=True), Streamed(True, True))
    return tuple(m for m in every if (source or not m.source) and (made or not m.made))


def describe(node: Node) -> Nest | None:
    """How a node pools; None where it does not."""
    op = node.op
    if not isinstance(op, KNOWN):
        return None
    is_dx = isinstance(op, MaxPoolDx | AveragePoolDx)
    window = op.forward.window if isinstance(op, AveragePoolDx) else op.window
    source, made = node.in_specs[0], node.out_specs[0]
    two = len(window.kernel) == 2
    return Nest(
        is_dx,
        source.shape[0],
        source.shape[1],
        _images(source),
        _images(made),
        window.kernel[0] if two else 1,
        window.strides[0] if two else 1,
        window.pads[0] if two else 0,
        window.dilations[0] if two else 1,
    )


def _images(s: Spec) -> Images:
    _, channels, *rest = s.shape
    rows, width = rest if len(rest) == 2 else (1, *rest)
    step = s.strides[2] if len(rest) == 2 else width
    return Images(channels * rows * width, step, rows, width)


def variant(node: Node, mode: Streamed, tile: Tile, sector_bytes: int) -> StreamVariant:
    """The way to run it with that tile."""
    nest = describe(node)
    assert nest is not None
    moved = traffic(nest, mode, tile, sector_bytes)
    source, made = buffers(nest, mode, tile)
    (resident,) = node.op.calls(node.in_specs, node.out_specs)
    window = resident.args[0]
    bands = Struct("struct poet_bands", (("chans", tile.chans), ("rows", tile.rows), ("made_at", source)))
    index: tuple[Arg, ...] = ()
    if isinstance(node.op, MaxPool | MaxPoolValues):
        index = (Out(1) if isinstance(node.op, MaxPool) else Raw("NULL"),)
    operands: tuple[Arg, ...] = (StreamIn(0), StreamOut(0), *index)
    if isinstance(node.op, MaxPoolDx):
        operands = (StreamIn(0), In(1), StreamOut(0))
    symbol = resident.kernel.symbol.replace("poet_", "poet_stream_")
    args = (Pager(), window, bands, *operands, Workspace())
    return StreamVariant(
        (0,) if mode.source else (),
        (0,) if mode.made else (),
        (source + made) * FLOAT_BYTES,
        moved.bytes_in,
        moved.bytes_out,
        moved.reads,
        moved.writes,
        (Call(Kernel(symbol, "stream_pool"), args),),
    )
