"""Count the cycles per unit of work of each class, for the [cycles] table of a board.

    python tools/icnt/calibrate.py qemu_mps2_an386 [BOARD ...]

Runs one kernel a class (calibrate.c) under QEMU with icnt and divides by the work. Instructions are
counted; cycles are profile.py's estimate by the Cortex-M4 manual, for every core alike.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import profile  # noqa: E402  (ours, of this folder)

from poetgen import boards, resources  # noqa: E402

CONV_2D, CONV_1D, GEMM = 16 * 8 * 9 * 64, 16 * 16 * 5 * 48, 8 * 16 * 32

CASES: tuple[tuple[str, str, int], ...] = (  # class, kernel, units of work
    ("conv", "2-D forward", CONV_2D),
    ("conv", "2-D dx", CONV_2D),
    ("conv", "2-D dw", CONV_2D),
    ("conv", "1-D forward", CONV_1D),
    ("conv", "1-D dx", CONV_1D),
    ("conv", "1-D dw", CONV_1D),
    ("gemm", "forward", GEMM),
    ("gemm", "dx", GEMM),
    ("gemm", "dw", GEMM),
    ("elementwise", "relu", 512),
    ("elementwise", "relu dx", 512),
    ("elementwise", "channel sum", 512),
    ("pool", "maxpool 2x2", 512),
    ("pool", "maxpool 2x2 dx", 512),
    ("norm", "frozen batch norm", 512),
    ("norm", "frozen batch norm dx", 512),
    ("norm", "frozen batch norm dg", 512),
    ("loss", "cross entropy", 80),
    ("loss", "cross entropy dx", 80),
    ("update", "sgd", 512),
    ("update", "momentum", 1024),
    ("move", "memcpy", 2048),
)


def compile_rest(board: boards.Board, folder: Path) -> list[str]:
    """Compile what every case links: kernels, start-up and platform. Return the objects."""
    runtime, common = resources.runtime(), board.folder.parent / "common"
    sources = [common / "startup.c", runtime / "platform" / "semihost.c"]
    sources += sorted((runtime / "kernels").glob("*.c"))
    objects = [str(folder / f"{source.stem}.o") for source in sources]
    for source, output in zip(sources, objects, strict=True):
        subprocess.run([*_compiler(board), "-c", str(source), "-o", output], check=True)
    return objects


def measure(
    board: boards.Board, case: int, objects: list[str], plugin: Path, folder: Path
) -> tuple[int, int]:
    """Return instructions and estimated cycles of a whole program that runs `case`."""
    assert board.emulator is not None
    elf, counts = folder / "calibrate.elf", folder / "counts"
    script = [f"-T{board.folder / 'link.ld'}", f"-L{board.folder.parent / 'common'}", "-nostdlib"]
    command = [*_compiler(board), *script, f"-DCASE={case}", str(HERE / "calibrate.c"), *objects]
    subprocess.run([*command, "-Wl,--gc-sections", "-lc", "-lgcc", "-o", str(elf)], check=True)
    run = [*board.emulator.command(elf), *profile.plugin_arguments(plugin, counts)]
    subprocess.run(run, check=True, stdin=subprocess.DEVNULL, timeout=60)
    found = profile.read_counts(counts)
    return found.total, sum(f.m4_cycles for f in profile.profile(elf, found))


def _compiler(board: boards.Board) -> list[str]:
    flags = ["-std=c11", "-O2", "-ffp-contract=off", "-ffunction-sections", "-fdata-sections"]
    return [board.compiler, *board.flags, *flags, f"-I{resources.runtime() / 'include'}"]


def main(names: list[str]) -> int:
    """Print a table for each board."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        plugin = profile.build_plugin(folder)
        for name in names:
            board = boards.board(name)
            print(f"{name}: per unit of work    instructions  cycles")
            sums: dict[str, list[float]] = {}
            objects = compile_rest(board, folder)
            rest = measure(board, 0, objects, plugin, folder)
            for number, (kind, kernel, work) in enumerate(CASES, start=1):
                whole = measure(board, number, objects, plugin, folder)
                insns, cycles = ((a - b) / work for a, b in zip(whole, rest, strict=True))
                sums.setdefault(kind, []).append(cycles)
                print(f"  {kind:12} {kernel:22} {insns:12.2f} {cycles:8.2f}")
            for kind, cycles in sums.items():
                print(f"  {kind:12} {'mean':22} {'':12} {sum(cycles) / len(cycles):8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["qemu_mps2_an386"]))
