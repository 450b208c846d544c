"""The reducing kernels: against the definition on random cases, the same bits on every core, mutants caught.

kernels_random.c holds the definition as plain loops; it exits with 1 at the first different bit and prints a
digest of all results. Here it is built for the host under sanitizers, for emulated cores, and with mutants.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from poetgen import boards, resources

HERE = Path(__file__).parent
RUNTIME = resources.runtime()
KERNELS = RUNTIME / "kernels"
FAMILIES = ("conv2d", "gemm", "channel_sum")
WARNINGS = (
    "-std=c11 -Wall -Wextra -Werror -Wshadow -Wconversion -Wdouble-promotion -Wfloat-conversion "
    "-Wundef -Wstrict-prototypes -Wmissing-prototypes -Wcast-align=strict -Wcast-qual -Wvla "
    "-Wnull-dereference -Wlogical-op -Wstack-usage=512 -fno-common -ffp-contract=off"
).split()
SANITIZERS = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all".split()
CASES = 240

Sources = dict[str, str]


def kernels(folder: Path, mutated: Sources) -> list[Path]:
    """Kernel sources; those in `mutated` as files of their own."""
    sources = [KERNELS / f"{family}.c" for family in FAMILIES if family not in mutated]
    for family, text in mutated.items():
        sources.append(folder / f"{family}.c")
        sources[-1].write_text(text)
    return sources


def on_host(
    folder: Path, flags: list[str], cases: int = CASES, mutated: Sources | None = None
) -> tuple[int, str]:
    """Build and run on the host: exit code and output."""
    program = folder / "kernels_random"
    sources = [HERE / "kernels_random.c", *kernels(folder, mutated or {}), RUNTIME / "platform" / "posix.c"]
    command = ["gcc", "-std=c11", "-ffp-contract=off", *flags, f"-DCASES={cases}"]
    subprocess.run([*command, f"-I{RUNTIME / 'include'}", *sources, "-o", program], check=True)
    run = subprocess.run([program], capture_output=True, text=True, timeout=300)
    return run.returncode, run.stdout + run.stderr


def link(board: boards.Board, flags: list[str], sources: list[Path], elf: Path) -> Path:
    """Link for an emulated board."""
    common = board.folder.parent / "common"
    command = [board.compiler, *board.flags, "-std=c11", *flags, "-ffunction-sections"]
    command += [f"-I{RUNTIME / 'include'}", *map(str, sources), str(common / "startup.c")]
    command += [str(RUNTIME / "platform" / "semihost.c"), "-nostdlib", f"-T{board.folder / 'link.ld'}"]
    command += [f"-L{common}", "-Wl,--gc-sections", "-lc", "-lgcc", f"-o{elf}"]
    subprocess.run(command, check=True)
    return elf


def emulate(board: boards.Board, elf: Path) -> tuple[int, str]:
    """Run under QEMU: exit code and output."""
    assert board.emulator is not None
    if shutil.which(board.emulator.program) is None:
        pytest.fail(f"{board.emulator.program} is not installed")
    run = subprocess.run(
        board.emulator.command(elf), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    return run.returncode, run.stdout + run.stderr


def on_board(
    name: str, folder: Path, flags: list[str], cases: int = CASES, mutated: Sources | None = None
) -> tuple[int, str]:
    """Build for an emulated board and run."""
    board = boards.board(name)
    sources = [HERE / "kernels_random.c", *kernels(folder, mutated or {})]
    elf = link(board, [*flags, "-ffp-contract=off", f"-DCASES={cases}"], sources, folder / "random.elf")
    return emulate(board, elf)


def digest(output: str) -> str:
    """The digest a run printed."""
    found = re.search(r"^digest (\d+)$", output, re.MULTILINE)
    assert found, output
    return found[1]


@pytest.fixture(scope="module")
def host_digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    code, output = on_host(tmp_path_factory.mktemp("host"), SANITIZERS)
    assert code == 0, output
    return digest(output)


def test_the_kernels_equal_the_definition_on_the_host(host_digest: str) -> None:
    assert int(host_digest) != 2166136261, "nothing was compared"


@pytest.mark.parametrize("level", ["-O0", "-O3", "-Os"])
def test_optimization_does_not_change_bits(level: str, host_digest: str, tmp_path: Path) -> None:
    code, output = on_host(tmp_path, [level])
    assert (code, digest(output)) == (0, host_digest)


@pytest.mark.qemu
@pytest.mark.parametrize("name", ["qemu_mps2_an385", "qemu_mps2_an386"])
def test_the_kernels_give_the_same_bits_on_emulated_cores(
    name: str, host_digest: str, tmp_path: Path
) -> None:
    code, output = on_board(name, tmp_path, ["-O2"])
    assert (code, digest(output)) == (0, host_digest)


@pytest.mark.slow
def test_the_kernels_equal_the_definition_on_many_cases(tmp_path: Path) -> None:
    code, output = on_host(tmp_path, SANITIZERS, cases=8000)
    assert code == 0, output


@pytest.mark.slow
@pytest.mark.qemu
@pytest.mark.parametrize("name", ["qemu_mps2_an500", "qemu_mps2_an505", "qemu_mps3_an547"])
def test_more_emulated_cores_give_the_same_bits(name: str, host_digest: str, tmp_path: Path) -> None:
    code, output = on_board(name, tmp_path, ["-O3"])
    assert (code, digest(output)) == (0, host_digest)


# Mutants: each takes the same terms in another order, so only the order of a sum can give it away.


def exchange(text: str, one: str, other: str) -> str:
    """Exchange two pieces of text that occur once each."""
    assert text.count(one) == text.count(other) == 1, (text.count(one), text.count(other))
    return other.join(part.replace(other, one) for part in text.split(one))


def body(source: str, head: str) -> tuple[str, str, str]:
    """What is before, in and after the function that starts with `head`."""
    start = source.index(head)
    end = source.index("\n}\n", start)
    return source[:start], source[start:end], source[end:]


def rows_before_images(source: str) -> str:
    """dw of 4 x 4 channels with its two outer loops swapped: rows, then images."""
    before, text, after = body(source, "POET_INLINE void dots16(")
    for one, other in (("p->batch", "p->rows"), ("p->a_batch", "p->a_row"), ("p->b_batch", "p->b_row")):
        text = exchange(text, one, other)
    return before + text + after


def rows_before_images_one(source: str) -> str:
    """The same for one pair of channels."""
    before, text, after = body(source, "POET_NOINLINE void dots1(")
    for one, other in (("p->batch", "p->rows"), ("p->a_batch", "p->a_row"), ("p->b_batch", "p->b_row")):
        text = exchange(text, one, other)
    return before + text + after


def taps_before_channels(source: str) -> str:
    """Forward and dx with rows of taps outside and reduction channels inside."""
    before, text, after = body(source, "POET_NOINLINE void tiles(")
    old = "if (in_y.taps == 1) {"
    assert text.count(old) == 1
    swapped = """{
                    at.reds = in_y.taps;
                    at.taps_y = p->reds;
                    at.w_red = p->w_tap_y - (p->reds - 1) * p->w_red;
                    at.x_red = p->tap_y * p->src_row - (p->reds - 1) * p->src_chan;
                    at.w_row = p->w_red;
                    at.x_row = p->src_chan;
                }
                if (in_y.taps == 1) {"""
    return before + text.replace(old, swapped) + after


def columns_before_rows(source: str) -> str:
    """Leftover channels with their two loops over taps swapped."""
    before, text, after = body(source, "POET_NOINLINE void lines_any(")
    text = text.replace("int32_t i = 0; i < p->taps_y; i++", "OUTER").replace(
        "int32_t j = 0; j < p->taps_x; j++", "INNER"
    )
    rows = "        const int32_t y = p->y0 + i * p->tap_y;\n        const struct reach rows ="
    assert text.count("OUTER") == text.count("INNER") == text.count(rows) == 1
    at = text.index("        const int32_t y =")
    line_end = text.index("p->src_h);\n", at) + len("p->src_h);\n")
    moved = text[at:line_end]
    text = text[:at] + text[line_end:]
    text = text.replace("OUTER", "int32_t j = 0; j < p->taps_x; j++")
    text = text.replace("(INNER) {\n", "(int32_t i = 0; i < p->taps_y; i++) {\n" + moved)
    return before + text + after


def last_term_first(source: str) -> str:
    """The last corner of a product summed from the end."""
    old = "const float *a0 = x + i * s->x_row, *b0 = w + j * s->w_col;"
    assert source.count(old) == source.count("a0 += s->x_col;") == source.count("b0 += s->w_row;") == 1
    new = old.replace("x_row", "x_row + (s->k - 1) * s->x_col").replace(
        "w_col", "w_col + (s->k - 1) * s->w_row"
    )
    source = source.replace("a0 += s->x_col;", "a0 -= s->x_col;").replace(
        "b0 += s->w_row;", "b0 -= s->w_row;"
    )
    return source.replace(old, new)


def two_sums(source: str) -> str:
    """Two partial sums of a product's row instead of one, added in the end."""
    before, text, after = body(source, "POET_INLINE void row1(")
    term, declared, stored = "mac4(&s, across", "u = s;", "y[0] = s.a,"
    assert text.count(term) == 2 and text.count(declared) == text.count(stored) == 1
    text = text.replace(term, "mac4(k & 1 ? &s : &o, across").replace(declared, "u = s, o = s;")
    added = "s.a += o.a, s.b += o.b, s.c += o.c, s.d += o.d;"
    return before + text.replace(stored, f"{added} {stored}") + after


def channel_backwards(source: str) -> str:
    """A bias gradient over images from the last to the first."""
    old = "for (int32_t n = 0; n < batch; n++) {"
    assert source.count(old) == 1
    new = "dy += batch * channels * size;\n    for (int32_t n = 0; n < batch; n++) {\n"
    new += "        dy -= channels * size;"
    return re.sub(r"\n    }\n}\n$", "\n        dy -= channels * size;\n    }\n}\n", source.replace(old, new))


MUTANTS = {
    "rows_before_images": ("conv2d", rows_before_images),
    "rows_before_images_one": ("conv2d", rows_before_images_one),
    "taps_before_channels": ("conv2d", taps_before_channels),
    "columns_before_rows": ("conv2d", columns_before_rows),
    "last_term_first": ("gemm", last_term_first),
    "two_sums": ("gemm", two_sums),
    "channel_backwards": ("channel_sum", channel_backwards),
}


@functools.cache
def mutant(name: str) -> tuple[str, str]:
    family, change = MUTANTS[name]
    source = (KERNELS / f"{family}.c").read_text()
    changed = change(source)
    assert changed != source
    return family, changed


@pytest.mark.parametrize("name", MUTANTS)
def test_a_sum_in_another_order_is_seen(name: str, tmp_path: Path) -> None:
    family, changed = mutant(name)
    code, output = on_host(tmp_path, SANITIZERS, mutated={family: changed})
    assert code == 1 and "differs at element" in output, output


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_wrong_in_rounding_only(name: str, tmp_path: Path) -> None:
    """So the mutants change an order and nothing else: with whole numbers they pass."""
    family, changed = mutant(name)
    code, output = on_host(tmp_path, [*SANITIZERS, "-DWHOLE_NUMBERS"], mutated={family: changed})
    assert code == 0, output


@pytest.mark.qemu
def test_swapping_two_loops_on_one_core_changes_its_digest(host_digest: str, tmp_path: Path) -> None:
    family, changed = mutant("rows_before_images")
    flags = ["-O2", "-DDIGEST_ONLY"]
    code, output = on_board("qemu_mps2_an386", tmp_path, flags, mutated={family: changed})
    assert code == 0 and digest(output) != host_digest
    code, output = on_board("qemu_mps2_an386", tmp_path, flags)
    assert (code, digest(output)) == (0, host_digest)


# What the kernels are made of.


@pytest.mark.parametrize("name", ["host", "qemu_microbit", "qemu_mps2_an385", "qemu_mps2_an386"])
@pytest.mark.parametrize("family", [*FAMILIES, "arith"])
def test_kernels_compile_without_warnings_and_call_nothing(family: str, name: str, tmp_path: Path) -> None:
    board = boards.board(name)
    nm = board.compiler.replace("gcc", "nm")
    out = tmp_path / "kernel.o"
    flags = [board.compiler, *board.flags, *WARNINGS, "-O2", f"-I{RUNTIME / 'include'}"]
    subprocess.run([*flags, "-c", KERNELS / f"{family}.c", "-o", out], check=True)
    listed = subprocess.run([nm, "-u", out], capture_output=True, text=True, check=True).stdout
    calls = {line.split()[-1] for line in listed.splitlines()}
    allowed = r"mem(set|cpy)|__aeabi_(f|cf|mem|u?idiv|ui2f|i2f)\w*|__gnu_thumb1_case_\w+|__stack_chk_fail"
    assert not {c for c in calls if not re.fullmatch(allowed, c)}
    symbols = subprocess.run([nm, out], capture_output=True, text=True, check=True).stdout
    assert not re.findall(r" [dDbBC] ", symbols), "a kernel keeps state"


# The arithmetic self-test refuses what would change bits.

ARITH = "#include <poet/platform.h>\nint main(void) { return -poet_arith_check(); }\n"
FLAGS = (
    ("-O0", 0),
    ("-O2", 0),
    ("-O3 -march=native -ffp-contract=off", 0),
    ("-O2 -fassociative-math -fno-signed-zeros -fno-trapping-math", 5),
    ("-O2 -freciprocal-math", 5),
    ("-O2 -fno-signed-zeros", 5),
    ("-O2 -funsafe-math-optimizations", 5),
    ("-Ofast -DPOET_ALLOW_FAST_MATH", 0),
)


def arith_main(folder: Path) -> list[Path]:
    """Sources of a program whose exit code is the self-test's result."""
    main = folder / "main.c"
    main.write_text(ARITH)
    return [main, KERNELS / "arith.c"]


def has_fma() -> bool:
    """Does this machine fuse?"""
    cpu = Path("/proc/cpuinfo")
    return cpu.exists() and " fma " in cpu.read_text()


@pytest.mark.parametrize(
    ("flags", "result"), [*FLAGS, *([("-O2 -mfma -ffp-contract=fast", 5)] if has_fma() else [])]
)
def test_the_self_test_refuses_flags_that_change_bits(flags: str, result: int, tmp_path: Path) -> None:
    program = tmp_path / "arith"
    command = ["gcc", "-std=c11", *flags.split(), f"-I{RUNTIME / 'include'}", *arith_main(tmp_path)]
    subprocess.run([*command, RUNTIME / "platform" / "posix.c", "-o", program], check=True)
    assert subprocess.run([program]).returncode == result


def test_fast_math_does_not_compile(tmp_path: Path) -> None:
    command = ["gcc", "-std=c11", "-Ofast", f"-I{RUNTIME / 'include'}", "-c", KERNELS / "arith.c"]
    run = subprocess.run([*command, "-o", os.devnull], capture_output=True, text=True)
    assert run.returncode != 0 and "POET_ALLOW_FAST_MATH" in run.stderr


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("name", "flags", "result"),
    [
        ("qemu_microbit", "-O2 -std=gnu11", 0),  # soft float has nothing to fuse
        ("qemu_mps2_an386", "-O2 -ffp-contract=off", 0),
        ("qemu_mps2_an386", "-O2 -std=gnu11", 5),  # VFMA
        ("qemu_mps2_an386", "-O2 -std=gnu11 -DPOET_ALLOW_FAST_MATH", 0),
        ("qemu_mps3_an547", "-O3", 0),
        ("qemu_mps3_an547", "-O3 -mcpu=cortex-m55", 5),  # MVE flushes subnormals
    ],
)
def test_the_self_test_on_cores(name: str, flags: str, result: int, tmp_path: Path) -> None:
    board = boards.board(name)
    elf = link(board, flags.split(), arith_main(tmp_path), tmp_path / "arith.elf")
    assert emulate(board, elf)[0] == result
