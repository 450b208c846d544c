"""The C runtime alone: pager x device x geometry on the host, and a smoke run on emulated boards."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from poetgen import boards, resources

HERE = Path(__file__).parent
RUNTIME = resources.runtime()
WARNINGS = (
    "-std=c11 -Wall -Wextra -Werror -Wshadow -Wconversion -Wdouble-promotion -Wfloat-conversion "
    "-Wundef -Wstrict-prototypes -Wmissing-prototypes -Wcast-align=strict -Wcast-qual -Wvla "
    "-Wnull-dereference -Wlogical-op -fno-common -ffp-contract=off"
).split()
SANITIZERS = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all".split()
PAGER = RUNTIME / "pager" / "pager.c"
FILE, RAM, EMULATED = (RUNTIME / "blockdev" / f"{name}.c" for name in ("file", "ram", "emulated"))
POSIX, SEMIHOST = (RUNTIME / "platform" / f"{name}.c" for name in ("posix", "semihost"))

CLAIMS = """
    what_goes_out_comes_in a_step_reads_one_slot_and_writes_the_other
    a_save_moves_its_own_part_of_the_state a_persistent_tensor_streams_out_as_it_is_committed
    a_persistent_tensor_streams_in_and_is_as_if_paged_out
    every_failing_call_is_reported_and_harms_nothing a_commit_is_atomic_at_every_power_cut
    damage_is_seen what_is_not_ours_is_refused_and_never_written
    one_damaged_superblock_leaves_the_other the_sequence_number_may_wrap
    a_failed_commit_closes_the_pager the_ram_device_keeps_its_bounds
    the_emulated_device_keeps_the_rules_of_its_kind
""".split()

EMULATED_BOARDS = tuple(name for name in boards.names() if boards.board(name).emulator)


def compile_host(output: Path, *sources: Path) -> Path:
    include = f"-I{RUNTIME / 'include'}"
    subprocess.run(["gcc", *WARNINGS, *SANITIZERS, include, *sources, "-o", output], check=True)
    return output


def compile_target(board: boards.Board, output: Path, *sources: Path) -> Path:
    common = board.folder.parent / "common"
    subprocess.run(
        [
            *(board.compiler, *board.flags, *WARNINGS, "-O2", "-ffunction-sections"),
            *(f"-I{RUNTIME / 'include'}", *sources, common / "startup.c", SEMIHOST),
            *("-nostdlib", "-T", board.folder / "link.ld", "-L", common),
            *("-Wl,--gc-sections,--fatal-warnings", "-lc", "-lgcc", "-o", output),
        ],
        check=True,
    )
    return output


def emulate(board: boards.Board, elf: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    assert board.emulator is not None
    if shutil.which(board.emulator.program) is None:
        pytest.fail(f"{board.emulator.program} is not installed")
    return subprocess.run(
        board.emulator.command(elf),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture(scope="module")
def pager_test(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("pager") / "pager_test"
    return compile_host(output, HERE / "pager_test.c", PAGER, EMULATED, RAM)


@pytest.mark.parametrize("claim", CLAIMS)
def test_pager(claim: str, pager_test: Path) -> None:
    result = subprocess.run([pager_test, claim], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "12 geometries\n"


def test_every_claim_of_the_c_test_is_run(pager_test: Path) -> None:
    listed = subprocess.run([pager_test], capture_output=True, text=True, check=True).stdout
    assert listed.split() == CLAIMS


# The store by docs/store-format.md, once more in Python.


def check_word(data: bytes) -> int:
    h = 2166136261
    for (word,) in struct.iter_unpack("<I", data):
        h = ((h ^ word) * 16777619) % 2**32
    return h


def page(words: tuple[int, ...]) -> bytes:
    data = struct.pack(f"<{len(words)}I", *words)
    padded = data.ljust((len(data) // 512 + 1) * 512 - 4, b"\0")
    return padded + struct.pack("<I", check_word(data))


def superblock(sequence: int, step: int, slots: int, seed: int) -> bytes:
    words = (1, sequence, step, 512, 1, 2, 9, 0, slots, 0, seed)
    head = struct.pack("<8s11I", b"poetgen\0", *words).ljust(64, b"\0")
    hashes = bytes([1, 2, 3]).ljust(32, b"\0") + bytes([4, 5, 6]).ljust(32, b"\0")
    body = (head + hashes).ljust(252, b"\0")
    return (body + struct.pack("<I", check_word(body))).ljust(512, b"\0")


def write_store(path: Path) -> None:
    slot_0 = page(tuple(range(200)))
    image = superblock(0, 0, 0, 40) + superblock(1, 0, 0, 40) + page((1,)) + slot_0
    path.write_bytes(image.ljust(9 * 512, b"\0"))


def check_store_after_five_steps(path: Path) -> None:
    image = path.read_bytes()
    assert len(image) == 9 * 512
    assert image[:512] == superblock(6, 5, 1, 45)
    assert image[512:1024] == superblock(5, 4, 0, 44)
    assert image[5 * 512 : 7 * 512] == page(tuple(range(5, 205)))  # slot 1
    assert image[3 * 512 : 5 * 512] == page(tuple(range(4, 204)))  # slot 0, a step older
    assert image[7 * 512 : 9 * 512] == page(tuple(range(4, 204)))  # scratch


COUNTS = "step 5\nreads 28\nsectors read 28\nprogs 25\nsectors programmed 25\n"


def test_five_steps_on_a_file(tmp_path: Path) -> None:
    program = compile_host(tmp_path / "steps", HERE / "store_steps.c", PAGER, FILE, POSIX)
    write_store(tmp_path / "store.img")
    result = subprocess.run([program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == COUNTS + "stack 0\n"
    check_store_after_five_steps(tmp_path / "store.img")


@pytest.mark.qemu
@pytest.mark.parametrize("name", EMULATED_BOARDS)
def test_five_steps_on_an_emulated_board(name: str, tmp_path: Path) -> None:
    board = boards.board(name)
    elf = compile_target(board, tmp_path / "steps.elf", HERE / "store_steps.c", PAGER, FILE)
    write_store(tmp_path / "store.img")
    result = emulate(board, elf, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(COUNTS)
    assert 64 < int(result.stdout.removeprefix(COUNTS + "stack ")) < 1024
    check_store_after_five_steps(tmp_path / "store.img")


@pytest.mark.qemu
def test_a_damaged_page_ends_the_emulated_program_with_its_code(tmp_path: Path) -> None:
    board = boards.board("qemu_mps2_an386")
    elf = compile_target(board, tmp_path / "steps.elf", HERE / "store_steps.c", PAGER, FILE)
    write_store(tmp_path / "store.img")
    image = bytearray((tmp_path / "store.img").read_bytes())
    image[3 * 512 + 99] ^= 1
    (tmp_path / "store.img").write_bytes(image)
    assert emulate(board, elf, tmp_path).returncode == 15  # POET_ECHECK
    assert (tmp_path / "store.img").read_bytes() == image
    (tmp_path / "store.img").unlink()
    assert emulate(board, elf, tmp_path).returncode == 10  # POET_EIO


@pytest.mark.qemu
def test_a_fault_is_printed_and_not_taken_for_success(tmp_path: Path) -> None:
    board = boards.board("qemu_mps2_an386")
    source = tmp_path / "fault.c"
    source.write_text('int main(void);\nint main(void) { __asm volatile("udf #0"); return 0; }\n')
    result = emulate(board, compile_target(board, tmp_path / "fault.elf", source), tmp_path)
    assert result.returncode == 70
    assert "CFSR 0x00010000" in result.stdout  # undefined instruction


def test_runtime_without_kernels_is_below_4_kb_on_the_m4(tmp_path: Path) -> None:
    board = boards.board("qemu_mps2_an386")
    text_bytes = 0
    for source in (PAGER, FILE, RAM, SEMIHOST, board.folder.parent / "common" / "startup.c"):
        output = tmp_path / f"{source.stem}.o"
        flags = [*board.flags, *WARNINGS, "-Wstack-usage=512", "-O2"]
        compile_ = [board.compiler, *flags, f"-I{RUNTIME / 'include'}", "-c", source, "-o", output]
        subprocess.run(compile_, check=True)
        size = subprocess.run(["arm-none-eabi-size", output], capture_output=True, text=True)
        text_bytes += int(size.stdout.splitlines()[1].split()[0])
    assert 1024 < text_bytes < 4096


def test_runtime_calls_only_memcpy_and_memset_of_the_c_library(tmp_path: Path) -> None:
    board = boards.board("qemu_mps2_an386")
    for source in (PAGER, FILE, RAM):
        output = tmp_path / f"{source.stem}.o"
        flags = [*board.flags, "-std=c11", "-O2", f"-I{RUNTIME / 'include'}"]
        subprocess.run([board.compiler, *flags, "-c", source, "-o", output], check=True)
        names = subprocess.run(
            ["arm-none-eabi-nm", "-u", output], capture_output=True, text=True, check=True
        ).stdout.split()[1::2]
        foreign = {name for name in names if not name.startswith("poet_")}
        assert foreign <= {"memcpy", "memset"}, source.name
