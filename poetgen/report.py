"""What a person asks of a plan: bytes, joules, milliseconds, pages. In: Program, Verdict. Out: text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from poetgen.cost import CostedGraph
from poetgen.op import DTYPE_BYTES
from poetgen.program import Program
from poetgen.schedule import Compute, Move, PageIn, PageOut, Schedule, Verdict


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


@dataclass(frozen=True)
class BaselineFact:
    """What a strategy without the solver takes: ``BaselineFact("keep_all", True, 13800, 1.2e-3, 0.4)``.

    ``fits`` says whether budget and deadline allow it; ``peak_bytes`` is what --ram would have to be.
    """

    strategy: str
    fits: bool
    peak_bytes: int
    energy_j: float
    time_s: float


@dataclass(frozen=True, eq=False)
class PlanReport:
    """A schedule and what it is measured by. ``min_ram_set_by`` names the op that needs ``min_ram_bytes``."""

    schedule: Schedule
    verdict: Verdict
    peak_bytes: int
    static_bytes: int
    min_ram_bytes: int
    min_ram_set_by: str
    min_ram_exact: bool
    keep_all_bytes: int
    baselines: tuple[BaselineFact, ...]

    def json(self) -> dict[str, Any]:
        """For machines."""
        solved = self.schedule.solved
        return {
            "status": solved.status,
            "strategy": self.schedule.strategy,
            "energy_j": self.verdict.energy_j,
            "bound_j": solved.bound_j,
            "gap": solved.gap,
            "depth": solved.depth,
            "time_s": self.verdict.time_s,
            "peak_bytes": self.peak_bytes,
            "min_ram_bytes": self.min_ram_bytes,
            "min_ram_set_by": self.min_ram_set_by,
            "min_ram_exact": self.min_ram_exact,
            "keep_all_bytes": self.keep_all_bytes,
            "pages_in": self.verdict.pages_in,
            "pages_out": self.verdict.pages_out,
            "page_bytes_in": self.verdict.page_bytes_in,
            "page_bytes_out": self.verdict.page_bytes_out,
            "recomputes": self.verdict.recomputes,
            "baselines": {
                b.strategy: {
                    "fits": b.fits,
                    "peak_bytes": b.peak_bytes,
                    "energy_j": b.energy_j,
                    "time_s": b.time_s,
                }
                for b in self.baselines
            },
            "solver": solved.solver,
            "solve_cpu_s": solved.solve_cpu_s,
            "stopped_by": solved.stopped_by,
        }

    def text(self) -> str:
        """For people: what the plan takes, beside the baselines."""
        board = self.schedule.costed.board
        nominal = " (nominal costs)" if board.nominal else ""
        budget = self.schedule.costed.budget.ram_bytes
        head = [
            f"plan       {status_line(self.schedule)}",
            f"a step     {si(self.verdict.time_s, 's')}, {si(self.verdict.energy_j, 'J')} predicted on "
            f"{board.name}{nominal}",
            f"RAM        {self.peak_bytes} B of {budget} B allowed; keeping everything takes "
            f"{self.keep_all_bytes} B",
            f"least RAM  {self.min_ram_bytes} B, set by {self.min_ram_set_by}"
            + ("" if self.min_ram_exact else " (perhaps less: not proven)"),
            f"paging     {self.verdict.page_bytes_out} B out in {self.verdict.pages_out} pages, "
            f"{self.verdict.page_bytes_in} B in in {self.verdict.pages_in}",
            f"recompute  {self.verdict.recomputes} ops",
        ]
        return "\n".join(head)

    def baseline_rows(self) -> list[tuple[str, str, str, str, str]]:
        """Strategy, fits, RAM, energy and time of the plan and of each baseline."""
        mine = (self.schedule.strategy, "yes", self.peak_bytes, self.verdict.energy_j, self.verdict.time_s)
        others = [
            (b.strategy, "yes" if b.fits else "no", b.peak_bytes, b.energy_j, b.time_s)
            for b in self.baselines
            if b.strategy != self.schedule.strategy
        ]
        return [(n, f, kib(p), si(e, "J"), si(t, "s")) for n, f, p, e, t in (mine, *others)]


def timeline(schedule: Schedule, verdict: Verdict, static_bytes: int) -> list[tuple[int, str, str, int]]:
    """Each action that takes time: number, what happens, to what, and the bytes of RAM meanwhile."""
    rows: list[tuple[int, str, str, int]] = []
    done: set[str] = set()
    for action, nbytes in zip(schedule.actions, verdict.bytes_at, strict=True):
        what = {PageIn: "page in", PageOut: "page out", Move: "move"}.get(type(action), "")
        subject = getattr(action, "tensor", "")
        if isinstance(action, Compute):
            node = schedule.costed.training.node[action.node]
            subject = action.node
            what = "in place" if action.in_place else "update" if node.phase == "update" else "compute"
            what = "recompute" if action.node in done else what
            done.add(action.node)
        if what:
            rows.append((len(rows), what, subject, nbytes + static_bytes))
    return rows


def step_facts(costed: CostedGraph) -> dict[str, Any]:
    """What a training step takes before it is planned: every op once, nothing paged."""
    costs = [min(v.cost.energy_j for v in costed.variants[n.name]) for n in costed.training.nodes]
    times = [min(v.cost.time_s for v in costed.variants[n.name]) for n in costed.training.nodes]
    return {
        "board": costed.board.name,
        "nominal": costed.board.nominal,
        "batch": costed.training.batch,
        "energy_j": sum(costs),
        "time_s": sum(times),
        "trained": list(costed.training.gradients),
    }


def step_line(costed: CostedGraph) -> str:
    """The same in words."""
    facts = step_facts(costed)
    nominal = " (nominal costs)" if facts["nominal"] else ""
    return (
        f"A training step of batch {facts['batch']} takes {si(facts['time_s'], 's')} and "
        f"{si(facts['energy_j'], 'J')} of computing on {facts['board']}{nominal}, predicted."
    )
