"""A board's numbers come with units and sources, and are SI floats afterwards."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from poetgen import boards, resources
from poetgen.boards import CYCLES, Board, board, names, parse_bytes, parse_time
from poetgen.errors import UsageError

MINIMAL = """
name  = "mine"
about = "a board of the test"

[cpu]
core    = "cortex-m4"
flags   = ["-mcpu=cortex-m4"]
clock   = "64 MHz"
current = "3.328 mA"
supply  = "3.3 V"
source  = "measured, bench 3"

[cycles]
conv        = 3.1
gemm        = 3.1
elementwise = 12
pool        = 12
norm        = 14
loss        = 120
update      = 20
move        = 1.5
source      = "counted"

[code]
origin = 0x00000000
size   = "1 MiB"
source = "datasheet"

[ram.main]
origin   = 0x20000000
size     = "64 KiB"
reserved = "4 KiB"
source   = { origin = "datasheet", size = "datasheet", reserved = "link.ld" }

[store]
driver        = "sd_spi"
sector_bytes  = 512
erase_sectors = 8
size          = "16 MiB"
endurance     = 100000
source        = "datasheet"

[store.out]
latency = "0.113 ms"
rate    = "4440 kB/s"
power   = "330 mW"
source  = "POET"

[store.in]
latency = "0.109 ms"
rate    = "4616.51 kB/s"
current = "100 mA"
supply  = "3.3 V"
source  = "POET"

[qemu]
machine = "mps2-an386"
"""


def load(tmp_path: Path, text: str) -> Board:
    folder = tmp_path / "mine"
    folder.mkdir(exist_ok=True)
    (folder / "board.toml").write_text(text, encoding="utf-8")
    return board(folder)


def refusal(tmp_path: Path, old: str, new: str) -> UsageError:
    assert MINIMAL.count(old) >= 1
    with pytest.raises(UsageError) as caught:
        load(tmp_path, MINIMAL.replace(old, new, 1))
    assert caught.value.exit_code == 2
    assert "board.toml" in caught.value.message
    return caught.value


def test_quantities_become_si_floats(tmp_path: Path) -> None:
    b = load(tmp_path, MINIMAL)
    assert (b.clock_hz, b.power_w) == (64e6, 0.0109824)
    assert (b.ram_bytes, b.reserved_bytes, b.code_bytes) == (65536, 4096, 1048576)
    assert b.ram.origin == 0x20000000
    assert b.cycles["conv"] == 3.1
    assert b.store is not None
    assert (b.store.latency_out_s, b.store.latency_in_s) == (0.113e-3, 0.109e-3)
    assert (b.store.rate_out_bytes_per_s, b.store.rate_in_bytes_per_s) == (4.44e6, 4616510.0)
    assert (b.store.power_out_w, b.store.power_in_w) == (0.33, 0.33)
    assert (b.store.sectors, b.store.erase_sectors, b.store.endurance_erases) == (32768, 8, 1e5)


def test_a_board_is_a_value(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL) == load(tmp_path, MINIMAL)
    assert hash(load(tmp_path, MINIMAL)) == hash(load(tmp_path, MINIMAL))


def test_a_board_may_be_named_by_its_folder_or_its_file(tmp_path: Path) -> None:
    b = load(tmp_path, MINIMAL)
    assert board(str(tmp_path / "mine" / "board.toml")) == b


def test_every_number_has_a_source(tmp_path: Path) -> None:
    sources = dict(load(tmp_path, MINIMAL).sources)
    assert sources["cpu.clock"] == "measured, bench 3"
    assert sources["ram.main.reserved"] == "link.ld"
    assert sources["cycles.update"] == "counted"
    assert sources["store.in.rate"] == "POET"
    assert len(sources) == 3 + len(CYCLES) + 2 + 3 + 4 + 3 + 4


@pytest.mark.parametrize("line", re.findall(r"^source .*$", MINIMAL, re.MULTILINE))
def test_a_table_of_numbers_without_a_source_does_not_load(line: str, tmp_path: Path) -> None:
    assert "needs a source" in refusal(tmp_path, line, "").message


def test_one_number_without_a_source_does_not_load(tmp_path: Path) -> None:
    error = refusal(tmp_path, ', reserved = "link.ld"', "")
    assert "ram.main.reserved has no source" in error.message
    assert "cpu.clock has no source" in refusal(tmp_path, '"measured, bench 3"', '" "').message


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ('"64 MHz"', '"64"', "the unit is missing", "MHz"),
        ('"64 MHz"', '"64 mhz"', "'mhz' is not known", "64MHz"),
        ('"64 MHz"', "64", "cpu.clock must be text with a unit", ""),
        ('"64 MHz"', '"0 MHz"', "cpu.clock must be above 0", ""),
        ('"3.3 V"', '"3.3 A"', "cpu.supply '3.3 A' is no voltage", "V, mV"),
        ('"64 KiB"', '"64 KB"', "ram.main.size", "64KiB"),
        ("conv        = 3.1", "conv = 0", "cycles.conv", ""),
        ("conv        = 3.1", "", "cycles.conv is missing", ""),
        ("conv        = 3.1", "convs = 3.1\nconv = 3.1", "cycles.convs", "conv?"),
        ("sector_bytes  = 512", "sector_bytes = 500", "power of two", ""),
        ("erase_sectors = 8", "erase_sectors = 7", "whole erase units", ""),
        ('"16 MiB"', '"16 MiB"\nsizes = "1 B"', "store.sizes is not known", "size"),
        ('reserved = "4 KiB"', 'reserved = "64 KiB"', "leaves nothing", ""),
        ('current = "3.328 mA"', "", "needs either power, or current", ""),
        ('name  = "mine"', 'name = "other"', "says 'other' in the folder 'mine'", ""),
        ('name  = "mine"', "name = ", "is not TOML", ""),
        ('flags   = ["-mcpu=cortex-m4"]', "flags = [1]", "cpu.flags must be a list", ""),
        ('core    = "cortex-m4"', "", "cpu.core is missing", ""),
        ("origin   = 0x20000000", "origin = -1", "ram.main.origin must be an address", ""),
    ],
)
def test_what_is_wrong_is_said_with_file_and_key(
    old: str, new: str, message: str, hint: str, tmp_path: Path
) -> None:
    error = refusal(tmp_path, old, new)
    assert message in error.message
    assert hint in error.hint


def test_an_unknown_board_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="no board is called 'qemu_netduino2'") as caught:
        board("qemu_netduino2")
    assert "did you mean qemu_netduinoplus2" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        board("microbit")
    assert "qemu_microbit" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("12000", 12000),
        ("64KiB", 65536),
        (" 64 KiB ", 65536),
        ("1.5MiB", 1572864),
        ("64kB", 64000),
        ("1e3B", 1000),
        ("0", 0),
    ],
)
def test_parse_bytes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("64KB", "64KiB"),
        ("64K", "64KiB (1024 bytes each) or 64kB (1000 bytes each)"),
        ("2M", "2MiB"),
        ("64kib", "64KiB"),
        ("lots", "64KiB"),
        ("", "64KiB"),
        ("-1", "64KiB"),
        ("0.5", "0"),
        ("64 parsecs", "KiB"),
    ],
)
def test_parse_bytes_says_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_bytes(text)
    assert hint in caught.value.hint
    assert repr(text) in caught.value.message


def test_parse_time() -> None:
    assert [parse_time(t) for t in ("2", "2 s", "250ms", "30us", "1min", "0.5h")] == [
        *(2.0, 2.0, 0.25, 30e-6, 60.0, 1800.0),
    ]
    with pytest.raises(UsageError, match="'2 sec' is no time"):
        parse_time("2 sec")


SHELF = names()


def test_the_shelf() -> None:
    assert {"host", "nrf52840dk", "qemu_mps2_an385", "qemu_mps2_an386"} <= set(SHELF)
    assert {"qemu_netduinoplus2", "qemu_mps2_an500", "qemu_mps2_an505"} <= set(SHELF)
    assert {"qemu_mps3_an547", "qemu_microbit"} <= set(SHELF)


@pytest.mark.parametrize("name", SHELF)
def test_a_board_of_the_shelf_is_whole(name: str) -> None:
    b = board(name)
    assert b.store is not None
    assert b.files == (b.emulator is not None or b.is_host)
    if b.emulator is not None and name != "qemu_netduinoplus2":
        assert b.nominal, "an emulated core has no energy"
        assert all(s.startswith("nominal") for key, s in b.sources if key.startswith("cpu."))


def test_the_netduino_is_a_real_chip_with_its_own_figures() -> None:
    b = board("qemu_netduinoplus2")
    assert not b.nominal
    assert (b.ram_bytes, b.clock_hz) == (128 * 1024, 168e6)


def test_the_nrf52840dk_has_the_constants_of_the_paper() -> None:
    b = board("nrf52840dk")
    assert b.store is not None
    assert (b.clock_hz, b.power_w) == (64e6, pytest.approx(3.328e-3 * 3.3))
    assert (b.store.latency_in_s, b.store.latency_out_s) == (0.109e-3, 0.113e-3)
    assert (b.store.rate_in_bytes_per_s, b.store.rate_out_bytes_per_s) == (4616510, 4440000)
    assert (b.store.power_in_w, b.store.power_out_w) == (0.33, 0.33)


@pytest.mark.parametrize("name", [n for n in SHELF if not board(n).is_host])
def test_the_linker_script_has_the_memories_of_the_board_file(name: str) -> None:
    b = board(name)
    text = (b.folder / "link.ld").read_text()
    regions = dict(re.findall(r"(FLASH|RAM)\s.*(ORIGIN = \w+, LENGTH = \w+)", text))
    for region, memory in (("FLASH", b.code), ("RAM", b.ram)):
        origin, length = re.findall(r"= (\w+)", regions[region])
        assert int(origin, 16) == memory.origin
        scale = {"K": 1024, "M": 1024**2}[length[-1]]
        assert int(length[:-1]) * scale == memory.size_bytes
    stack = re.search(r"__stack_bytes = (\d+)K", text)
    assert stack is not None
    assert int(stack[1]) * 1024 <= b.reserved_bytes


@pytest.mark.parametrize("name", [n for n in SHELF if not board(n).is_host])
def test_the_compiler_knows_the_flags(name: str) -> None:
    b = board(name)
    check = [b.compiler, *b.flags, "-x", "c", "-fsyntax-only", "-"]
    subprocess.run(check, input="int x;", text=True, check=True)


def test_resources_are_found_in_a_checkout_and_beside_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (resources.runtime() / "include" / "poet" / "poet.h").is_file()
    assert (resources.boards() / "host" / "board.toml").is_file()
    assert resources.templates().is_dir()

    package = tmp_path / "site-packages" / "poetgen"
    for folder in ("templates", "runtime_c", "boards"):
        (package / "_data" / folder).mkdir(parents=True)
    monkeypatch.setattr(resources, "files", lambda _: package)
    assert resources.root() == package / "_data"
    (package / "_data" / "boards").rmdir()
    with pytest.raises(resources.ToolError, match="has lost its folders"):
        resources.root()


def test_a_word_for_each_class_of_work() -> None:
    assert set(boards.board("host").cycles) == set(CYCLES)
