"""`poetgen boards`: the shelf, and each number of a board with its source."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from poetgen.boards import CYCLES, Board, board, names
from poetgen.cli.options import as_json
from poetgen.cli.show import answer, answer_json, table
from poetgen.report import kib, si


@click.command()
@click.argument("name", required=False)
@as_json
def boards(name: str | None, as_json: bool) -> None:
    """List the boards; of one, show each number with its source."""
    if name is not None:
        _one(board(name), as_json)
        return
    shelf = [board(n) for n in names()]
    if as_json:
        answer_json([_short(b) for b in shelf])
        return
    table(
        ("board", "core", "clock", "RAM", "code", "runs on", "about"),
        [
            (
                b.name,
                b.core,
                f"{b.clock_hz / 1e6:g} MHz",
                kib(b.ram_bytes),
                kib(b.code_bytes),
                _runs(b),
                b.about,
            )
            for b in shelf
        ],
        right=(2, 3, 4),
    )


def _runs(b: Board) -> str:
    if b.is_host:
        return "host"
    return f"QEMU {b.emulator.machine}" if b.emulator else "hardware"


def _short(b: Board) -> dict[str, Any]:
    return {
        "name": b.name,
        "about": b.about,
        "core": b.core,
        "clock_hz": b.clock_hz,
        "ram_bytes": b.ram_bytes,
        "reserved_bytes": b.reserved_bytes,
        "code_bytes": b.code_bytes,
        "machine": b.emulator.machine if b.emulator else None,
        "nominal": b.nominal,
    }


def _one(b: Board, as_json: bool) -> None:
    if as_json:
        long = {"power_w": b.power_w, "cycles": dict(b.cycles), "sources": dict(b.sources)}
        answer_json(_short(b) | long | {"store": asdict(b.store) if b.store else None})
        return
    answer(f"{b.name}: {b.about}")
    if b.nominal:
        answer("Its seconds and joules are nominal: for comparison only.")
    answer()
    source = dict(b.sources)
    rows = [("clock", f"{b.clock_hz / 1e6:g} MHz", source.get("cpu.clock", ""))]
    rows.append(("power while it computes", si(b.power_w, "W"), _first(source, "cpu.power", "cpu.current")))
    rows.append(("RAM", kib(b.ram_bytes), source.get("ram.main.size", "")))
    rows.append(
        ("RAM reserved for stack, main, drivers", kib(b.reserved_bytes), source.get("ram.main.reserved", ""))
    )
    rows.append(("code flash", kib(b.code_bytes), source.get("code.size", "")))
    rows += [
        (f"cycles per {CYCLES[kind]}, {kind}", f"{cycles:g}", source.get(f"cycles.{kind}", ""))
        for kind, cycles in b.cycles.items()
    ]
    if b.store is not None:
        s = b.store
        rows.append((f"page store ({s.driver})", kib(s.size_bytes), source.get("store.size", "")))
        rows.append(("page store, sector", kib(s.sector_bytes), source.get("store.sector_bytes", "")))
        for way, latency_s, rate, power_w in (
            ("in", s.latency_in_s, s.rate_in_bytes_per_s, s.power_in_w),
            ("out", s.latency_out_s, s.rate_out_bytes_per_s, s.power_out_w),
        ):
            where = f"store.{way}"
            rows.append((f"page {way}, latency", si(latency_s, "s"), source.get(f"{where}.latency", "")))
            rows.append((f"page {way}, rate", f"{kib(rate)}/s", source.get(f"{where}.rate", "")))
            power = _first(source, f"{where}.power", f"{where}.current")
            rows.append((f"page {way}, power", si(power_w, "W"), power))
    table(("what", "value", "source"), rows, right=(1,))


def _first(source: dict[str, str], *keys: str) -> str:
    return next((source[k] for k in keys if k in source), "")
