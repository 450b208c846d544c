"""Kernels as source: no warning on host and cores, nothing of libc but memcpy and memset, no state."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.ops.kernels import INCLUDE, KERNELS

WARNINGS = (
    "-std=c11 -O2 -Wall -Wextra -Werror -Wshadow -Wconversion -Wdouble-promotion -Wfloat-conversion -Wundef "
    "-Wstrict-prototypes -Wmissing-prototypes -Wcast-align=strict -Wcast-qual -Wvla -Wnull-dereference "
    "-Wlogical-op -fno-common -ffp-contract=off"
).split()
COMPILERS = {
    "host": ("gcc",),
    "m0": ("arm-none-eabi-gcc", "-mcpu=cortex-m0", "-mthumb"),
    "m4f": ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"),
}
SOURCES = sorted(KERNELS.glob("*.c"))
ALLOWED = re.compile(r"memcpy|memset|poet_\w+|__aeabi_\w+|_GLOBAL_OFFSET_TABLE_")


def _compile(source: Path, compiler: str, out: Path) -> Path:
    command = [*COMPILERS[compiler], *WARNINGS, f"-I{INCLUDE}", "-c", str(source), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.stem)
def test_kernels_compile_without_a_warning(source: Path, compiler: str, tmp_path: Path) -> None:
    _compile(source, compiler, tmp_path / "kernel.o")


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.stem)
def test_kernels_need_nothing_but_memcpy_memset_and_each_other(source: Path, tmp_path: Path) -> None:
    kernel = _compile(source, "m4f", tmp_path / "kernel.o")
    listed = subprocess.run(
        ["arm-none-eabi-nm", "-u", str(kernel)], check=True, capture_output=True, text=True
    ).stdout
    needed = re.findall(r"\bU (\S+)", listed)
    assert [n for n in needed if not ALLOWED.fullmatch(n)] == []
    assert not [n for n in needed if n.startswith("__aeabi_d") or n == "__aeabi_f2d"], "double arithmetic"


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.stem)
def test_kernels_have_no_state(source: Path, tmp_path: Path) -> None:
    kernel = _compile(source, "m4f", tmp_path / "kernel.o")
    sizes = subprocess.run(
        ["arm-none-eabi-size", str(kernel)], check=True, capture_output=True, text=True
    ).stdout.splitlines()[1]
    data, bss = sizes.split()[1:3]
    assert (data, bss) == ("0", "0")
