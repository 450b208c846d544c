"""What ResNet-18's convolutions move when their operands are in the store, by tile budget.

    python benchmarks/streams.py [KIB ...]

Prints tables and writes them to benchmarks/results/streams.md. ResNet-18 for 32 x 32 images, one SGD step,
batch 1 where nothing else is said; every operand streamed; the tiles that are fastest on an SD card. Bytes
and calls are what the C nests make, exactly (tests/c/test_streams.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from poetgen.boards import board  # noqa: E402
from poetgen.op import Spec  # noqa: E402
from poetgen.ops.conv import Geometry  # noqa: E402
from poetgen.streams import Prices, conv, conv_dw  # noqa: E402
from poetgen.streams.traffic import Traffic  # noqa: E402

KIB = 1024
SECTOR_BYTES = 512
BUDGETS = (192, 32, 16)


@dataclass(frozen=True)
class Layer:
    """Convolutions of one shape: ``Layer(64, 128, 3, 2, 32)`` is 64 -> 128, 3x3/2 over 32 x 32."""

    ins: int
    outs: int
    kernel: int
    stride: int
    size: int
    count: int = 1

    @property
    def name(self) -> str:
        """As the table has it."""
        stride = f"/{self.stride}" if self.stride > 1 else ""
        times = f" x{self.count}" if self.count > 1 else ""
        return f"{self.ins}-{self.outs} {self.kernel}x{self.kernel}{stride} {self.size}x{self.size}{times}"

    def sizes(self, batch: int) -> conv.Sizes:
        """Images in rows."""
        pad = self.kernel // 2
        g = Geometry.of(2, (self.stride,) * 2, (pad,) * 4)
        x, w = (batch, self.ins, self.size, self.size), (self.outs, self.ins, self.kernel, self.kernel)
        y = Spec(g.out_shape(x, w), layout="rows")
        return conv.Sizes(**g.fields(Spec(x, layout="rows"), w, y))


def layers() -> Iterator[Layer]:
    """All convolutions of ResNet-18."""
    yield Layer(3, 64, 3, 1, 32)
    yield Layer(64, 64, 3, 1, 32, 4)
    for ins, size in ((64, 32), (128, 16), (256, 8)):
        yield Layer(ins, 2 * ins, 3, 2, size)
        yield Layer(2 * ins, 2 * ins, 3, 1, size // 2, 3)
        yield Layer(ins, 2 * ins, 1, 2, size)


def sd_card() -> Prices:
    """The store of the nRF52840's board, and its core."""
    nrf = board("nrf52840dk")
    store = nrf.store
    assert store is not None
    return Prices(
        *(store.latency_in_s, 1 / store.rate_in_bytes_per_s),
        *(store.latency_out_s, 1 / store.rate_out_bytes_per_s, 1 / nrf.clock_hz),
    )


def traffic(layer: Layer, words: int, batch: int, states: int) -> tuple[Traffic | None, ...]:
    """Forward, dx (not of the first layer), dw with its update."""
    prices, sizes = sd_card(), layer.sizes(batch)
    found: list[Traffic | None] = []
    for is_dx in (False, True):
        if is_dx and layer.ins == 3:
            found.append(None)
            continue
        nest = conv.Nest(sizes if is_dx else sizes.without_idle_rows(), is_dx)
        chosen = conv.choose(nest, conv.Streamed(True, True, True), words, SECTOR_BYTES, prices)
        assert chosen is not None
        found.append(chosen[1])
    dw = conv_dw.Dw(sizes.without_idle_rows(), states)
    chosen_dw = conv_dw.choose(dw, conv_dw.DwStreamed(True, True, True), words, SECTOR_BYTES, prices)
    assert chosen_dw is not None
    return (*found, chosen_dw[1])


def total(words: int, batch: int = 1, states: int = 0) -> Traffic:
    """Of all convolutions of a step."""
    out = Traffic()
    for layer in layers():
        for t in traffic(layer, words, batch, states):
            out += (t or Traffic()) * layer.count
    return out


def cell(t: Traffic | None) -> str:
    """KB, calls and seconds."""
    if t is None:
        return "-"
    moved = (t.bytes_in + t.bytes_out) / KIB
    return f"{moved:.0f} {t.reads + t.writes} {t.time_s(sd_card()):.2f}"


def line(name: str, t: Traffic) -> str:
    """A row of the table of totals."""
    calls, moved = t.reads + t.writes, (t.bytes_in + t.bytes_out) / 1e6
    return f"| {name} | {moved:.1f} | {calls} | {t.time_s(sd_card()):.1f} |"


def tables(budgets: tuple[int, ...]) -> list[str]:
    """Per shape, then in all."""
    out = []
    for kib in budgets:
        words = kib * KIB // 4
        out += [f"| {kib} KiB of tiles | forward | dx | dw + SGD |", "|---|---|---|---|"]
        for layer in layers():
            cells = " | ".join(cell(t) for t in traffic(layer, words, 1, 0))
            out.append(f"| {layer.name} | {cells} |")
        out.append("")
    out += ["| all convolutions of a step | MB | calls | I/O s |", "|---|---|---|---|"]
    for kib in budgets:
        words = kib * KIB // 4
        out.append(line(f"{kib} KiB, SGD", total(words)))
        out.append(line(f"{kib} KiB, momentum", total(words, states=1)))
        out.append(line(f"{kib} KiB, Adam", total(words, states=2)))
        out.append(line(f"{kib} KiB, SGD, batch 2", total(words, batch=2)))
    return out


def main(arguments: list[str]) -> int:
    """Print and write the tables."""
    budgets = tuple(int(a) for a in arguments) or BUDGETS
    lines = [
        "# Streamed convolutions of ResNet-18",
        "",
        "KB moved, calls of the driver, seconds on an SD card at the nRF52840's rates; the forward pass, the",
        "gradient of the input, the gradient of the weights with its update. Every operand is in the store.",
        "",
        *tables(budgets),
    ]
    print("\n".join(lines))
    if not arguments:
        (HERE / "results").mkdir(exist_ok=True)
        (HERE / "results" / "streams.md").write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
