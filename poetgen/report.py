"""What a person asks of a plan: bytes, joules, milliseconds, pages. In: Program, Verdict. Out: text."""

from __future__ import annotations

from poetgen.op import DTYPE_BYTES
from poetgen.program import Program
from poetgen.schedule import Compute, PageIn, PageOut, Schedule, Verdict


def kib(nbytes: float) -> str:
    """Bytes for people: ``13.8 KiB``, ``1.18 MiB``."""
    if nbytes < 10240:
        return f"{nbytes:.0f} B"
    if nbytes < 1024 * 1024:
        return f"{nbytes / 1024:.1f} KiB"
    return f"{nbytes / 1024 / 1024:.2f} MiB"


def si(value: float, unit: str) -> str:
    """A number with an SI prefix: ``12.3 ms``."""
    for factor, prefix in ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def claims(program: Program, schedule: Schedule | None, verdict: Verdict | None) -> tuple[str, ...]:
    """Lines for the generated header: what the project takes, and what is proven about its plan."""
    budget = program.costed.budget.ram_bytes
    lines = [
        f"RAM        {program.peak_bytes} B of {budget} B allowed, stack and main.c not counted",
        *(f"             {row.nbytes:>8} B  {row.what}" for row in program.ram),
    ]
    if schedule is None or verdict is None:
        return tuple(lines)
    outs = [a for a in schedule.actions if isinstance(a, PageOut)]
    ins = [a for a in schedule.actions if isinstance(a, PageIn)]
    done: set[str] = set()
    again: list[str] = []
    for a in schedule.actions:
        if isinstance(a, Compute):
            if a.node in done:
                again.append(a.node)
            done.add(a.node)
    size = program.store.sector_bytes
    pages = program.costed.pages
    out_bytes = sum(pages[a.tensor].sectors for a in outs) * size
    in_bytes = sum(pages[a.tensor].sectors for a in ins) * size
    lines.append(
        f"paging     {out_bytes} B out in {len(outs)} pages, {in_bytes} B in in {len(ins)}, each step"
    )
    lines.append(f"recompute  {len(again)} ops" + (f": {', '.join(again[:6])}" if again else ""))
    nominal = " (nominal costs)" if program.costed.board.nominal else ""
    lines.append(
        f"a step     {si(verdict.time_s, 's')}, {si(verdict.energy_j, 'J')} predicted on "
        f"{program.costed.board.name}{nominal}"
    )
    lines.append(f"plan       {status_line(schedule)}")
    return tuple(lines)


def status_line(schedule: Schedule) -> str:
    """The solver's claim in words."""
    solved = schedule.solved
    if schedule.strategy != "milp":
        return f"strategy {schedule.strategy}"
    if solved.gap is None:
        return f"{solved.status}: nothing is proven"
    depth = f"recompute depth {solved.depth}"
    if solved.status == "optimal":
        return f"optimal ({depth})"
    return f"feasible, within {100 * solved.gap:.3g} % of optimal ({depth})"


def code_flash_bytes(program: Program) -> int:
    """Bytes of constants in code flash: frozen parameters, and initial values of those in RAM."""
    initial = sum(m.spec.nbytes for m in program.members if m.kind in ("param", "statistic"))
    return initial + sum(m.spec.size * DTYPE_BYTES[m.spec.dtype] for m in program.frozen)
