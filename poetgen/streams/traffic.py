"""What runtime_c/streams/stream.c asks of the device, counted: every call and every sector.

Offsets and lengths are floats; a tensor starts at a sector. Transfer functions give a Traffic, and
traffic adds up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from poetgen.streams.variant import Prices

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Traffic:
    """Driver calls and the bytes of whole sectors that they move."""

    reads: int = 0
    bytes_in: int = 0
    writes: int = 0
    bytes_out: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.reads + other.reads,
            self.bytes_in + other.bytes_in,
            self.writes + other.writes,
            self.bytes_out + other.bytes_out,
        )

    def __mul__(self, times: int) -> Traffic:
        return Traffic(self.reads * times, self.bytes_in * times, self.writes * times, self.bytes_out * times)

    def time_s(self, prices: Prices) -> float:
        """Seconds of transfers."""
        read = self.reads * prices.in_latency_s + self.bytes_in * prices.in_s_per_byte
        return read + self.writes * prices.out_latency_s + self.bytes_out * prices.out_s_per_byte


@dataclass(frozen=True)
class Box:
    """``struct poet_box``: outer x inner runs, ``*_step`` apart."""

    outer: int
    outer_step: int
    inner: int
    inner_step: int
    run: int

    def joined(self) -> Box:
        """The same in fewer, longer runs where they follow each other."""
        outer, inner, run = self.outer, self.inner, self.run
        if inner == 1 or self.inner_step == run:
            run *= inner
            inner = 1
            if outer == 1 or self.outer_step == run:
                run *= outer
                outer = 1
        return Box(outer, self.outer_step, inner, self.inner_step, run)


def span(at: int, size: int, sector_bytes: int, is_write: bool = False) -> Traffic:
    """``poet_span_read`` and ``poet_span_write``."""
    return _span(at * FLOAT_BYTES % sector_bytes, size * FLOAT_BYTES, sector_bytes, is_write)


@lru_cache(maxsize=65536)
def _span(byte: int, size: int, sector_bytes: int, is_write: bool) -> Traffic:
    ragged = whole = sectors = 0
    if byte and size:
        ragged += 1
        size -= min(sector_bytes - byte, size)
    if size >= sector_bytes:
        whole = 1
        sectors = size // sector_bytes
        size %= sector_bytes
    if size:
        ragged += 1
    moved = (sectors + ragged) * sector_bytes
    if is_write:
        return Traffic(ragged, ragged * sector_bytes, whole + ragged, moved)
    return Traffic(whole + ragged, moved)


def box(at: int, b: Box, sector_bytes: int, is_write: bool = False) -> Traffic:
    """``poet_box_read`` and ``poet_box_write`` of a box that begins at ``at``."""
    return _box(at % (sector_bytes // FLOAT_BYTES), b, sector_bytes, is_write)


@lru_cache(maxsize=65536)
def _box(at: int, b: Box, sector_bytes: int, is_write: bool) -> Traffic:
    b = b.joined()
    total = Traffic()
    for i in range(b.outer):
        for j in range(b.inner):
            total += span(at + i * b.outer_step + j * b.inner_step, b.run, sector_bytes, is_write)
    return total


class BlockReader:
    """``poet_block_read`` with one buffer: what it holds is not read again.

    A block is (image, images, row, rows, chan, chans); ``batch`` and ``row`` are strides at home.
    """

    def __init__(self, batch: int, row: int, width: int, sector_bytes: int) -> None:
        self.batch, self.row, self.width, self.sector_bytes = batch, row, width, sector_bytes
        self.has: tuple[int, ...] | None = None

    def read(self, block: tuple[int, int, int, int, int, int]) -> Traffic:
        """What it takes to hold ``block``."""
        has, self.has = self.has, block
        image, images, row, rows, chan, chans = block
        kept = 0
        if has is not None and (has[0], has[1], has[4], has[5]) == (image, images, chan, chans):
            end, new_end = has[2] + has[3], row + rows
            if row == has[2] and end == new_end:
                return Traffic()
            if images == 1 and has[2] <= row < end:
                kept = min(end, new_end) - row
        row, rows = row + kept, rows - kept
        if rows <= 0:
            return Traffic()
        return block_traffic(
            (image, images, row, rows, chan, chans), self.batch, self.row, self.width, self.sector_bytes
        )


def block_traffic(
    block: tuple[int, int, int, int, int, int],
    batch: int,
    row_step: int,
    width: int,
    sector_bytes: int,
    is_write: bool = False,
) -> Traffic:
    """A block of a tensor [image][row][channel][x], read or written as a whole."""
    image, images, row, rows, chan, chans = block
    at = image * batch + row * row_step + chan * width
    b = Box(images, batch, rows, row_step, chans * width)
    return box(at, b, sector_bytes, is_write)
