"""Count the kernels' instructions per multiply-accumulate on an emulated Cortex-M4F.

    python benchmarks/kernels.py [-O2]

Prints a table and writes it to benchmarks/results/kernels.md. Counts are exact and the same on every run
(tools/icnt); a multiply-accumulate counts where its tap is inside the image.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ICNT = HERE.parent / "tools" / "icnt"
sys.path[:0] = [str(ICNT), str(HERE.parent)]

import profile  # noqa: E402  (ours, of tools/icnt)

from poetgen import boards, resources  # noqa: E402

BOARD = "qemu_mps2_an386"
FAMILIES = ("conv2d", "gemm")


@dataclass(frozen=True)
class Row:
    """One kernel on one shape: ``Row("conv2d", "3x3,8->16,16x16", 270848, 870000)``."""

    kernel: str
    shape: str
    macs: int
    instructions: int

    @property
    def per_mac(self) -> float:
        """Instructions per multiply-accumulate."""
        return self.instructions / self.macs


def compile_and_count(optimize: str, folder: Path) -> tuple[Row, ...]:
    """Build count.c for the board, run it under the counter and read both outputs."""
    board = boards.board(BOARD)
    assert board.emulator is not None
    runtime, common = resources.runtime(), board.folder.parent / "common"
    elf, counts = folder / "count.elf", folder / "counts"
    sources = [HERE / "kernels" / "count.c", common / "startup.c", runtime / "platform" / "semihost.c"]
    sources += [runtime / "kernels" / f"{family}.c" for family in FAMILIES]
    command = [board.compiler, *board.flags, "-std=c11", optimize, "-ffp-contract=off", "-nostdlib"]
    command += [f"-I{runtime / 'include'}", f"-I{ICNT}", f"-T{board.folder / 'link.ld'}", f"-L{common}"]
    command += [*map(str, sources), "-lc", "-lgcc", f"-o{elf}"]
    subprocess.run(command, check=True)
    plugin = profile.plugin_arguments(profile.build_plugin(folder), counts)
    run = subprocess.run(
        [*board.emulator.command(elf), *plugin],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = [line.split() for line in (run.stdout + run.stderr).splitlines()]
    marks = [count for _, count in profile.read_counts(counts).marks]
    begins, ends = marks[::2], marks[1::2]
    return tuple(
        Row(kernel, shape, int(macs), end - begin)
        for (kernel, shape, macs), begin, end in zip(lines, begins, ends, strict=True)
    )


def sizes(optimize: str, folder: Path) -> dict[str, int]:
    """Bytes of text of each family."""
    board = boards.board(BOARD)
    found = {}
    for family in FAMILIES:
        out = folder / f"{family}.o"
        source = resources.runtime() / "kernels" / f"{family}.c"
        flags = [*board.flags, "-std=c11", optimize, "-ffp-contract=off"]
        include = f"-I{resources.runtime() / 'include'}"
        subprocess.run([board.compiler, *flags, include, "-c", source, "-o", out], check=True)
        tool = board.compiler.replace("gcc", "size")
        table = subprocess.run([tool, out], check=True, capture_output=True, text=True).stdout
        found[family] = int(table.splitlines()[1].split()[0])
    return found


def table(rows: tuple[Row, ...]) -> list[str]:
    """A line a shape; forward, dx and dw in columns."""
    shapes: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        family, _, what = row.kernel.partition("_")
        shapes.setdefault((family, row.shape), {})[what] = row
    lines = ["| kernel | shape | forward | dx | dw |", "|---|---|---|---|---|"]
    for (family, shape), by in shapes.items():
        cells = (f"{by[what].per_mac:.2f}" for what in ("", "dx", "dw"))
        lines.append(f"| {family} | {shape.replace(',', ', ')} | {' | '.join(cells)} |")
    return lines


def main(arguments: list[str]) -> int:
    """Print and write the table."""
    optimize = arguments[0] if arguments else "-O2"
    with tempfile.TemporaryDirectory() as temporary:
        rows = compile_and_count(optimize, Path(temporary))
        text = sizes(optimize, Path(temporary))
    lines = [
        "# Kernels: instructions per multiply-accumulate",
        "",
        f"Cortex-M4F (QEMU {BOARD}), gcc {optimize} -ffp-contract=off, counted by tools/icnt.",
        "Batch 1 where nothing else is said; 1d: a sequence; dw3x3: depthwise; /2: stride 2. Calls of a",
        "kernel are whole: filling the output with the bias or zero is in it.",
        "",
        *table(rows),
        "",
        "Text: " + ", ".join(f"{family}.o {size} bytes" for family, size in text.items()) + ".",
    ]
    print("\n".join(lines))
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    if optimize == "-O2":
        (results / "kernels.md").write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
