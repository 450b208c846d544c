"""The instruction counter: exact against code whose length is known, and the same in every run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from poetgen import boards, resources

ICNT = Path(__file__).parents[2] / "tools" / "icnt"
pytestmark = pytest.mark.qemu

# A loop of three instructions between two marks, and a function of ten floats' worth of work.
PROGRAM = """
#include "mark.h"

int main(void);
float work(const float *x, int n);

float work(const float *x, int n)
{
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}

int main(void)
{
    static float x[10];
    POET_MARK(7);
    __asm volatile("mov r0, %0\\n1: nop\\n\\tsubs r0, #1\\n\\tbne 1b" : : "i"(TURNS) : "r0", "cc");
    POET_MARK(4095);
    return (int)work(x, 10);
}
"""


def load_profile() -> ModuleType:
    spec = importlib.util.spec_from_file_location("icnt_profile", ICNT / "profile.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


profile = load_profile()


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(profile.build_plugin(tmp_path_factory.mktemp("icnt")))


def build(folder: Path, turns: int) -> Path:
    board = boards.board("qemu_mps2_an386")
    common, runtime = board.folder.parent / "common", resources.runtime()
    source, elf = folder / "program.c", folder / f"program_{turns}.elf"
    source.write_text(PROGRAM)
    command = [board.compiler, *board.flags, "-std=c11", "-O2", "-fno-inline", f"-DTURNS={turns}"]
    command += [f"-I{ICNT}", f"-I{runtime / 'include'}", "-nostdlib", f"-T{board.folder}/link.ld"]
    command += [f"-L{common}", str(source), str(common / "startup.c")]
    command += [str(runtime / "platform" / "semihost.c"), "-lc", "-lgcc", f"-o{elf}"]
    subprocess.run(command, check=True)
    return elf


def run(elf: Path, plugin: Path, counts: Path, kill_after: int = 0) -> int:
    emulator = boards.board("qemu_mps2_an386").emulator
    assert emulator is not None
    command = [*emulator.command(elf), *profile.plugin_arguments(plugin, counts, kill_after)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, timeout=60).returncode


@pytest.mark.parametrize("turns", [1, 100, 200])
def test_instructions_between_marks_are_exact(turns: int, plugin: Path, tmp_path: Path) -> None:
    elf = build(tmp_path, turns)
    assert run(elf, plugin, tmp_path / "counts") == 0
    counts = profile.read_counts(tmp_path / "counts")
    assert counts.between(7, 4095) == 2 + 3 * turns  # the mark itself, mov, the loop
    assert sum(counts.at.values()) == counts.total


def test_two_runs_count_the_same(plugin: Path, tmp_path: Path) -> None:
    elf = build(tmp_path, 50)
    for name in ("first", "second"):
        assert run(elf, plugin, tmp_path / name) == 0
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_a_power_cut_comes_at_the_same_instruction(plugin: Path, tmp_path: Path) -> None:
    elf = build(tmp_path, 50)
    assert run(elf, plugin, tmp_path / "whole") == 0
    total = profile.read_counts(tmp_path / "whole").total
    for kill_after in (1, total // 2):
        cuts = []
        for _ in range(2):
            assert run(elf, plugin, tmp_path / "cut", kill_after) == 137
            cuts.append((tmp_path / "cut").read_text())
        assert cuts[0] == cuts[1]
        killed_at = profile.read_counts(tmp_path / "cut").total
        assert kill_after <= killed_at < kill_after + 20  # the next block's begin
    assert run(elf, plugin, tmp_path / "cut", total) == 0


def test_the_profile_sums_to_the_total_and_sees_the_floats(plugin: Path, tmp_path: Path) -> None:
    elf = build(tmp_path, 50)
    assert run(elf, plugin, tmp_path / "counts") == 0
    counts = profile.read_counts(tmp_path / "counts")
    functions = {f.name: f for f in profile.profile(elf, counts)}
    assert sum(f.instructions for f in functions.values()) == counts.total
    assert functions["work"].float_multiplies == 10
    assert functions["work"].float_adds == 10
    assert functions["work"].loads >= 10
    assert functions["work"].m4_cycles > functions["work"].instructions


@pytest.mark.parametrize(
    ("code", "cycles"),
    [
        ("vmul.f32 s0, s1, s2", 1),
        ("vadd.f32 s0, s1, s2", 1),
        ("vfma.f32 s0, s1, s2", 3),
        ("vldr s0, [r0]", 2),
        ("vldmia r0!, {s0-s3}", 5),
        ("vpush {d8-d9}", 5),
        ("vdiv.f32 s0, s1, s2", 14),
        ("ldr.w r0, [r1, #4]", 2),
        ("ldrd r0, r1, [r2]", 3),
        ("push {r4, r5, lr}", 4),
        ("pop {r4, pc}", 6),
        ("bl 0x100", 3),
        ("bne.n 0x100", 2),
        ("blt.n 0x100", 2),
        ("bic.w r0, r1, r2", 1),
        ("adds r0, #1", 1),
    ],
)
def test_cycles_of_an_instruction(code: str, cycles: int) -> None:
    mnemonic, operands = code.split(" ", 1)
    assert profile.m4_cycles(mnemonic, operands) == cycles
