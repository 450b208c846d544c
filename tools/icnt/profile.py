"""Where a program on an emulated Cortex-M spends its instructions, function by function.

    python tools/icnt/profile.py ELF COUNTS [--top N] [--json]

ELF was run with `-plugin icnt.so,out=COUNTS` (see icnt.c). Instructions are counted; cycles are an
*estimate* by the Cortex-M4 technical reference manual (tables of instruction timing, without flash
wait states and without the pipelining of neighbouring loads).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Counts:
    """What icnt wrote: `Counts(total=3, at={0x80: 2, 0x82: 1}, marks=((7, 2),))`."""

    total: int
    at: Mapping[int, int]  # executions of the instruction at an address
    marks: tuple[tuple[int, int], ...]  # (id, instructions before it), in order

    def between(self, first: int, last: int) -> int:
        """Return the instructions from the first mark `first` to the next mark `last`."""
        ids = [mark for mark, _ in self.marks]
        start = ids.index(first)
        end = ids.index(last, start + 1)
        return self.marks[end][1] - self.marks[start][1]


@dataclass(frozen=True)
class Function:
    """The share of one function, without the functions it calls."""

    name: str
    instructions: int
    m4_cycles: int  # an estimate
    float_multiplies: int
    float_adds: int
    loads: int
    stores: int


def build_plugin(folder: Path) -> Path:
    """Compile icnt.so into `folder`."""
    plugin = folder / "icnt.so"
    flags = "-std=c11 -O2 -shared -fPIC -fvisibility=hidden".split()
    subprocess.run(["gcc", *flags, HERE / "icnt.c", "-o", plugin], check=True)
    return plugin


def plugin_arguments(plugin: Path, counts: Path, kill_after: int = 0) -> tuple[str, ...]:
    """Return what to add to QEMU's command line; `kill_after` instructions end it, if above 0."""
    kill = f",kill={kill_after}" if kill_after else ""
    return ("-plugin", f"{plugin.resolve()},out={counts.resolve()}{kill}")


def read_counts(path: Path) -> Counts:
    """Read what icnt wrote."""
    total = 0
    at: dict[int, int] = {}
    marks: list[tuple[int, int]] = []
    for line in path.read_text().splitlines():
        kind, *fields = line.split()
        if kind in "TK":
            total = int(fields[0])
        elif kind == "A":
            at[int(fields[0], 16)] = int(fields[2])
        elif kind == "M":
            marks.append((int(fields[0]), int(fields[1])))
    return Counts(total, at, tuple(marks))


# Cycles of an instruction by its mnemonic: the first pattern that matches. "n" is one a register.
_M4_CYCLES: tuple[tuple[str, str], ...] = (
    (r"vfn?m[as]|vn?ml[as]", "3"),
    (r"vdiv|vsqrt", "14"),
    (r"vldr|vstr", "2"),
    (r"vldm|vstm|vpush|vpop", "1+n"),
    (r"v", "1"),
    (r"push|pop|ldm|stm", "1+n"),
    (r"ldrd|strd", "3"),
    (r"ldr|str", "2"),
    (r"[su]div", "7"),  # 2 to 12
    (r"ml[as]", "2"),
    (r"blx?$|bx$|b$|tb[bh]", "3"),  # 1 + a refill of 1 to 3
    (r"cbn?z|b(eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)$", "2"),  # 1, or 3 if taken
    (r"", "1"),
)
_M4_PATTERNS = tuple((re.compile(pattern), cycles) for pattern, cycles in _M4_CYCLES)
_CODE = re.compile(r"^\s*([0-9a-f]+):\s+([a-z][a-z0-9.]*)\s*([^;@]*)")
_SYMBOL = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_RANGE = re.compile(r"([rsd])(\d+)-[rsd](\d+)")


def registers(operands: str) -> int:
    """Return how many words the braces of `operands` name."""
    inside = operands[operands.find("{") + 1 : operands.find("}")]
    words = 0
    for item in filter(None, (part.strip() for part in inside.split(","))):
        span = _RANGE.fullmatch(item)
        each = 2 if item.startswith("d") else 1
        words += each * (int(span[3]) - int(span[2]) + 1 if span else 1)
    return words


def m4_cycles(mnemonic: str, operands: str) -> int:
    """Estimate the cycles of one instruction on a Cortex-M4."""
    name = mnemonic.removesuffix(".n").removesuffix(".w").split(".")[0]
    cycles = next(cycles for pattern, cycles in _M4_PATTERNS if pattern.match(name))
    if cycles == "1+n":
        refill = 3 if "pc" in operands else 0
        return 1 + registers(operands) + refill
    return int(cycles)


def profile(elf: Path, counts: Counts, objdump: str = "arm-none-eabi-objdump") -> list[Function]:
    """Return the functions that were executed, the busiest first."""
    dump = [objdump, "-d", "--no-show-raw-insn", str(elf)]
    text = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    functions = _functions(text.splitlines(), counts.at)
    return sorted(functions, key=lambda f: (-f.instructions, f.name))


def _functions(lines: Iterable[str], at: Mapping[int, int]) -> list[Function]:
    sums: dict[str, list[int]] = {}
    name = ""
    for line in lines:
        symbol = _SYMBOL.match(line)
        if symbol:
            name = symbol[1]
            continue
        code = _CODE.match(line)
        if not code or int(code[1], 16) not in at:
            continue
        count, mnemonic, operands = at[int(code[1], 16)], code[2], code[3]
        row = (
            1,
            m4_cycles(mnemonic, operands),
            mnemonic.startswith(("vmul.f32", "vnmul.f32", "vfma", "vfms", "vmla", "vmls")),
            mnemonic.startswith(("vadd.f32", "vsub.f32", "vfma", "vfms", "vmla", "vmls")),
            mnemonic.startswith(("ldr", "ldm", "pop", "vldr", "vldm", "vpop")),
            mnemonic.startswith(("str", "stm", "push", "vstr", "vstm", "vpush")),
        )
        sums[name] = [s + count * r for s, r in zip(sums.get(name, [0] * 6), row, strict=True)]
    return [Function(name, *values) for name, values in sums.items()]


def _table(functions: Sequence[Function], total: int, top: int) -> str:
    head = ("function", "instructions", "M4 cycles", "cyc/insn", "fmul", "fadd", "loads", "stores")
    rows = [f"{head[0]:40}" + "".join(f"{title:>14}" for title in head[1:])]
    for f in functions[:top]:
        numbers = (f.float_multiplies, f.float_adds, f.loads, f.stores)
        rows.append(
            f"{f.name[:39]:40}{f.instructions:14}{f.m4_cycles:14}"
            f"{f.m4_cycles / f.instructions:14.2f}" + "".join(f"{n:14}" for n in numbers)
        )
    cycles = sum(f.m4_cycles for f in functions)
    return "\n".join([*rows, f"{'in all':40}{total:14}{cycles:14}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the profile of a run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("elf", type=Path)
    parser.add_argument("counts", type=Path)
    parser.add_argument("--top", type=int, default=25, help="functions to list (25)")
    parser.add_argument("--json", action="store_true", help="for a machine: totals, functions, marks")
    options = parser.parse_args(arguments)
    counts = read_counts(options.counts)
    functions = profile(options.elf, counts)
    if options.json:
        table = [asdict(function) for function in functions]
        print(json.dumps({"total": counts.total, "functions": table, "marks": counts.marks}))
    else:
        print(_table(functions, counts.total, options.top))
    return 0


if __name__ == "__main__":
    sys.exit(main())
