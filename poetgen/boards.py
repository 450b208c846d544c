"""Boards: what a microcontroller has and what its work costs, each number with its source.

In: boards/NAME/board.toml. Out: Board, in SI units. Units are parsed here and nowhere else.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from poetgen import resources
from poetgen.errors import UsageError


@dataclass(frozen=True)
class Memory:
    """One region of the address space.

    >>> Memory(origin=0x20000000, size_bytes=131072, reserved_bytes=16384).size_bytes
    131072
    """

    origin: int
    size_bytes: int
    reserved_bytes: int = 0  # stack, main and drivers: not for the model


@dataclass(frozen=True)
class Store:
    """Where page_out goes, and what a transfer costs: latency + bytes / rate.

    >>> sd = Store(driver="file", sector_bytes=512, erase_sectors=1, size_bytes=1 << 24,
    ...     latency_in_s=109e-6, rate_in_bytes_per_s=4616510.0, power_in_w=0.33,
    ...     latency_out_s=113e-6, rate_out_bytes_per_s=4440000.0, power_out_w=0.33)
    >>> sd.sectors
    32768
    """

    driver: str  # a device of runtime_c/blockdev, or "file" on a board that speaks to files
    sector_bytes: int  # smallest transfer
    erase_sectors: int  # sectors in an erase unit; 1 where a write needs no erase
    size_bytes: int
    latency_in_s: float
    rate_in_bytes_per_s: float
    power_in_w: float
    latency_out_s: float
    rate_out_bytes_per_s: float
    power_out_w: float
    endurance_erases: float | None = None  # of a unit; None: the device levels wear

    @property
    def sectors(self) -> int:
        """Return the size in sectors."""
        return self.size_bytes // self.sector_bytes


@dataclass(frozen=True)
class Emulator:
    """How QEMU runs a program for this board.

    >>> Emulator(machine="mps2-an386", arguments=()).command("a.elf")[:3]
    ('qemu-system-arm', '-M', 'mps2-an386')
    """

    machine: str
    arguments: tuple[str, ...]
    program: str = "qemu-system-arm"

    def command(self, elf: str | Path) -> tuple[str, ...]:
        """Return the command line that runs `elf`; files are relative to the working directory."""
        return (
            *(self.program, "-M", self.machine, *self.arguments),
            *("-nographic", "-monitor", "none", "-serial", "none"),
            *("-chardev", "stdio,id=console"),  # what the program prints, on stdout
            *("-semihosting-config", "enable=on,target=native,chardev=console"),
            *("-kernel", str(elf)),
        )


@dataclass(frozen=True)
class Board:
    """One board of the shelf, in SI units; `board("qemu_netduinoplus2")` is one.

    >>> b = board("qemu_netduinoplus2")
    >>> b.ram_bytes, b.core, b.clock_hz
    (131072, 'cortex-m4', 168000000.0)
    """

    name: str
    about: str
    core: str
    flags: tuple[str, ...]  # for the compiler: core and float ABI
    clock_hz: float
    power_w: float  # of the core while it computes
    nominal: bool  # seconds and joules are for comparison only: there is no such chip
    cycles: Mapping[str, float] = field(hash=False)  # of work: class -> cycles per unit (CYCLES)
    code: Memory  # code flash
    ram: Memory
    store: Store | None
    emulator: Emulator | None
    files: bool  # poet_file_* reach the host's files (host, or semihosting)
    compiler: str  # gcc, or a prefix's gcc
    folder: Path
    sources: tuple[tuple[str, str], ...]  # ("ram.main.size", where the number is from)

    @property
    def ram_bytes(self) -> int:
        """Return the size of the main RAM."""
        return self.ram.size_bytes

    @property
    def reserved_bytes(self) -> int:
        """Return what stack, main and drivers take of the main RAM."""
        return self.ram.reserved_bytes

    @property
    def code_bytes(self) -> int:
        """Return the size of the code flash."""
        return self.code.size_bytes

    @property
    def is_host(self) -> bool:
        """Return whether programs run here, without a linker script of ours."""
        return self.core == "host"


# Classes of work, and the unit that `cycles` counts per. An op names its class; cost.py multiplies.
CYCLES: Mapping[str, str] = MappingProxyType(
    {
        "conv": "multiply-accumulate",
        "gemm": "multiply-accumulate",
        "elementwise": "element",
        "pool": "element of a window",
        "norm": "element",
        "loss": "element of the logits",
        "update": "element of parameter or state",
        "move": "byte",
    }
)

_PREFIXES = {"n": "1e-9", "u": "1e-6", "µ": "1e-6", "m": "1e-3", "": "1"}
_PREFIXES |= {"k": "1e3", "M": "1e6", "G": "1e9"}


def _units(base: str, prefixes: str, **more: int) -> Mapping[str, Decimal]:
    decimal = {p + base: Decimal(_PREFIXES[p]) for p in ("", *prefixes)}
    return decimal | {unit: Decimal(value) for unit, value in more.items()}


_UNITS: Mapping[str, Mapping[str, Decimal]] = {
    "bytes": _units("B", "kMG", KiB=1 << 10, MiB=1 << 20, GiB=1 << 30),
    "time": _units("s", "muµn", min=60, h=3600),
    "frequency": _units("Hz", "kMG"),
    "current": _units("A", "muµ"),
    "voltage": _units("V", "m"),
    "power": _units("W", "muµ"),
    "rate": _units("B/s", "kMG", **{"KiB/s": 1 << 10, "MiB/s": 1 << 20}),
}
_EXAMPLE = {
    "bytes": "64KiB",
    "time": "2s",
    "frequency": "64MHz",
    "current": "3.3mA",
    "voltage": "3.3V",
    "power": "10mW",
    "rate": "4440kB/s",
}
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*(\S*)")


def _quantity(text: str, dimension: str, bare_unit: str | None = None) -> Decimal:
    """Return `text` in the base unit of `dimension`; a number without a unit is in `bare_unit`."""
    units = _UNITS[dimension]
    example = _EXAMPLE[dimension]
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        hint = f"write a number and a unit, as {example}"
        raise UsageError(f"{text!r} is no {_called(dimension)}", hint=hint)
    number, unit = match.groups()
    if not unit and bare_unit is not None:
        unit = bare_unit
    if unit not in units:
        alike = [known for known in units if known.lower() == unit.lower()]
        if dimension == "bytes" and unit.lower() in ("k", "kb"):
            hint = f"write {number}KiB (1024 bytes each) or {number}kB (1000 bytes each)"
        elif dimension == "bytes" and unit.lower() in ("m", "mb", "g", "gb"):
            hint = f"write {number}{unit[0].upper()}iB or {number}{unit[0].upper()}B"
        elif alike:
            hint = f"write {number}{alike[0]}"
        else:
            hint = f"units are {', '.join(units)}; for example {example}"
        what = f"the unit {unit!r} is not known" if unit else "the unit is missing"
        raise UsageError(f"{text!r} is no {_called(dimension)}: {what}", hint=hint)
    return Decimal(number) * units[unit]


def _called(dimension: str) -> str:
    return "size in bytes" if dimension == "bytes" else dimension


def parse_bytes(text: str) -> int:
    """Return a size: bytes, or with a unit.

    >>> parse_bytes("64KiB"), parse_bytes("1.5 MiB"), parse_bytes("12000")
    (65536, 1572864, 12000)
    """
    value = _quantity(text, "bytes", bare_unit="B")
    if value != value.to_integral_value():
        raise UsageError(f"{text!r} is not a whole number of bytes", hint=f"write {round(value)}")
    return int(value)


def parse_time(text: str) -> float:
    """Return seconds; a number without a unit is seconds.

    >>> parse_time("2 s"), parse_time("250ms"), parse_time("60")
    (2.0, 0.25, 60.0)
    """
    return float(_quantity(text, "time", bare_unit="s"))


def names() -> tuple[str, ...]:
    """Return the names of the boards on the shelf, sorted."""
    return tuple(sorted(path.parent.name for path in resources.boards().glob("*/board.toml")))


def board(name: str | Path) -> Board:
    """Return the board called `name`, or the one at that path: a folder or its board.toml."""
    text = str(name)
    path = Path(name)
    if "/" in text or "\\" in text or path.suffix == ".toml":
        file = path / "board.toml" if path.is_dir() else path
    else:
        file = resources.boards() / text / "board.toml"
    if not file.is_file():
        known = names()
        near = difflib.get_close_matches(text, known, n=3, cutoff=0.4)
        near = near or [n for n in known if text and (text.lower() in n or n in text.lower())]
        raise UsageError(
            f"no board is called {text!r}",
            hint=(f"did you mean {' or '.join(near)}? " if near else "")
            + f"Boards: {', '.join(known)}; or the path of a folder with a board.toml",
        )
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not TOML: {error}") from error
    return _Reader(file).board(document)


class _Reader:
    """Reads one board.toml; every complaint names the file and the key."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.sources: list[tuple[str, str]] = []

    def board(self, document: Mapping[str, Any]) -> Board:
        self.keys(document, "", required="name about cpu cycles code ram", optional="qemu store")
        cpu = self.table(document, "cpu")
        optional = "current supply power nominal files compiler"
        self.keys(cpu, "cpu", required="core flags clock source", optional=optional)
        ram_tables = self.table(document, "ram")
        self.keys(ram_tables, "ram", required="main")
        ram = self.memory(self.table(ram_tables, "main", "ram"), "ram.main")
        if ram.reserved_bytes >= ram.size_bytes:
            self.fail("ram.main.reserved", f"leaves nothing of {ram.size_bytes} bytes")
        core = self.word(cpu, "cpu.core")
        name = self.word(document, "name")
        if name != self.file.parent.name:
            self.fail("name", f"says {name!r} in the folder {self.file.parent.name!r}")
        return Board(
            name=name,
            about=self.word(document, "about"),
            core=core,
            flags=self.strings(cpu, "cpu.flags"),
            clock_hz=self.number(cpu, "cpu.clock", "frequency"),
            power_w=self.power(cpu, "cpu"),
            nominal=self.flag(cpu, "cpu.nominal", default=False),
            cycles=self.cycles(self.table(document, "cycles")),
            code=self.memory(self.table(document, "code"), "code"),
            ram=ram,
            store=self.store(self.table(document, "store")) if "store" in document else None,
            emulator=self.emulator(self.table(document, "qemu")) if "qemu" in document else None,
            files=self.flag(cpu, "cpu.files", default="qemu" in document or core == "host"),
            compiler=cpu.get("compiler", "gcc" if core == "host" else "arm-none-eabi-gcc"),
            folder=self.file.parent,
            sources=tuple(sorted(self.sources)),
        )

    def memory(self, table: Mapping[str, Any], where: str) -> Memory:
        optional = "" if where == "code" else "reserved"
        self.keys(table, where, required="origin size source", optional=optional)
        origin = table["origin"]
        if not isinstance(origin, int) or isinstance(origin, bool) or not 0 <= origin < 1 << 32:
            self.fail(f"{where}.origin", "must be an address, as 0x20000000")
        self.cite(table, f"{where}.origin")
        reserved = self.count(table, f"{where}.reserved", "bytes") if "reserved" in table else 0
        return Memory(origin, self.count(table, f"{where}.size", "bytes"), reserved)

    def cycles(self, table: Mapping[str, Any]) -> Mapping[str, float]:
        self.keys(table, "cycles", required=" ".join((*CYCLES, "source")))
        for key in CYCLES:
            value = table[key]
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                self.fail(f"cycles.{key}", f"must be a number of cycles per {CYCLES[key]}, above 0")
            self.cite(table, f"cycles.{key}")
        return MappingProxyType({key: float(table[key]) for key in CYCLES})

    def store(self, table: Mapping[str, Any]) -> Store:
        required = "driver sector_bytes erase_sectors size out in source"
        self.keys(table, "store", required=required, optional="endurance")
        sector_bytes = self.integer(table, "store.sector_bytes")
        if sector_bytes not in (256, 512, 1024, 2048, 4096):
            self.fail("store.sector_bytes", "must be a power of two, 256 to 4096")
        costs: dict[str, float] = {}
        for way in ("in", "out"):
            where = f"store.{way}"
            transfer = self.table(table, way, "store")
            optional = "current supply power"
            self.keys(transfer, where, required="latency rate source", optional=optional)
            costs[f"latency_{way}_s"] = self.number(transfer, f"{where}.latency", "time")
            costs[f"rate_{way}_bytes_per_s"] = self.number(transfer, f"{where}.rate", "rate")
            costs[f"power_{way}_w"] = self.power(transfer, where)
        endurance = float(self.integer(table, "store.endurance")) if "endurance" in table else None
        store = Store(
            driver=self.word(table, "store.driver"),
            sector_bytes=sector_bytes,
            erase_sectors=self.integer(table, "store.erase_sectors"),
            size_bytes=self.count(table, "store.size", "bytes"),
            endurance_erases=endurance,
            **costs,
        )
        if store.size_bytes % (store.sector_bytes * store.erase_sectors):
            self.fail("store.size", "must be whole erase units")
        return store

    def emulator(self, table: Mapping[str, Any]) -> Emulator:
        self.keys(table, "qemu", required="machine", optional="arguments program")
        return Emulator(
            machine=self.word(table, "qemu.machine"),
            arguments=self.strings(table, "qemu.arguments") if "arguments" in table else (),
            program=self.word(table, "qemu.program") if "program" in table else "qemu-system-arm",
        )

    def power(self, table: Mapping[str, Any], where: str) -> float:
        """Return watts, given as power, or as current and supply."""
        if "power" in table and "current" not in table and "supply" not in table:
            return self.number(table, f"{where}.power", "power")
        if "current" in table and "supply" in table and "power" not in table:
            current = self.decimal(table, f"{where}.current", "current")
            return float(current * self.decimal(table, f"{where}.supply", "voltage"))
        self.fail(where, "needs either power, or current and supply")

    # One value each. `where` is the dotted key; its last part is looked up in `table`.

    def decimal(self, table: Mapping[str, Any], where: str, dimension: str) -> Decimal:
        value = table[where.rpartition(".")[2]]
        if not isinstance(value, str):
            self.fail(where, f"must be text with a unit, as {_EXAMPLE[dimension]!r}")
        try:
            quantity = _quantity(value, dimension)
        except UsageError as error:
            self.fail(where, error.message, error.hint)
        if quantity <= 0:
            self.fail(where, "must be above 0")
        self.cite(table, where)
        return quantity

    def number(self, table: Mapping[str, Any], where: str, dimension: str) -> float:
        return float(self.decimal(table, where, dimension))

    def count(self, table: Mapping[str, Any], where: str, dimension: str) -> int:
        quantity = self.decimal(table, where, dimension)
        if quantity != quantity.to_integral_value():
            self.fail(where, "must be a whole number of bytes")
        return int(quantity)

    def integer(self, table: Mapping[str, Any], where: str) -> int:
        value = table[where.rpartition(".")[2]]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.fail(where, "must be a whole number, 1 or more")
        self.cite(table, where)
        return value

    def flag(self, table: Mapping[str, Any], where: str, default: bool) -> bool:
        value = table.get(where.rpartition(".")[2], default)
        if not isinstance(value, bool):
            self.fail(where, "must be true or false")
        return value

    def word(self, table: Mapping[str, Any], where: str) -> str:
        value = table[where.rpartition(".")[2]]
        if not isinstance(value, str) or not value:
            self.fail(where, "must be text")
        return value

    def strings(self, table: Mapping[str, Any], where: str) -> tuple[str, ...]:
        value = table[where.rpartition(".")[2]]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fail(where, "must be a list of texts")
        return tuple(value)

    def table(self, parent: Mapping[str, Any], key: str, where: str = "") -> Mapping[str, Any]:
        value = parent[key]
        if not isinstance(value, dict):
            self.fail(f"{where}.{key}" if where else key, "must be a table")
        return value

    def keys(self, table: Mapping[str, Any], where: str, required: str, optional: str = "") -> None:
        """Every required key is there and none is unknown: misspelt is not the same as missing."""
        dot = f"{where}." if where else ""
        needed, allowed = required.split(), optional.split()
        for key in needed:
            if key not in table:
                reason = "every number needs a source" if key == "source" else ""
                self.fail(dot + key, "is missing" + (f": {reason}" if reason else ""))
        for key in table:
            if key not in needed and key not in allowed:
                near = difflib.get_close_matches(key, [*needed, *allowed], n=1)
                self.fail(dot + key, "is not known", f"did you mean {near[0]}?" if near else "")

    def cite(self, table: Mapping[str, Any], where: str) -> None:
        """Note where a number is from, or fail: a number without a source does not load."""
        source = table.get("source")
        if isinstance(source, dict):
            source = source.get(where.rpartition(".")[2])
        if not isinstance(source, str) or not source.strip():
            self.fail(where, "has no source", "say in the table's source where the number is from")
        self.sources.append((where, source))

    def fail(self, where: str, why: str, hint: str = "") -> NoReturn:
        raise UsageError(f"{self.file}: {where} {why}", hint=hint)
