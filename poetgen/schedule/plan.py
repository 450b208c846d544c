"""Choose a schedule. In: CostedGraph, strategy, time limit. Out: Schedule, judged.

The planner goes from recompute depth 0 to the asked one, each depth starting from the best so far, so that
it can stop at any time; no schedule that it gives is worse than a baseline that fits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from poetgen.cost import Budget, CostedGraph
from poetgen.errors import FitError, NoPlanError, UsageError
from poetgen.schedule.actions import PROVEN, Schedule, Solved, Strategy, total
from poetgen.schedule.baselines import BASELINES
from poetgen.schedule.check import BrokenSchedule, check
from poetgen.schedule.facts import Facts
from poetgen.schedule.floor import Floor, min_ram, widest_node
from poetgen.schedule.milp import Improvement, Outcome, Progress, solve

ON_THE_WAY = 2e-3
"""Relative gap at which a depth that is not the last is good enough to start the next from."""


def plan(
    costed: CostedGraph,
    strategy: Strategy = "milp",
    time_limit_s: float = 60.0,
    depth: int = 1,
    gap: float = 1e-4,
    progress: Progress | None = None,
) -> Schedule:
    """The schedule of least energy within budget and deadline, or a baseline's by name.

    Its ``solved`` says what is proven: ``optimal`` within 1e-6 for recompute depth ``depth``, or
    ``feasible`` with a gap. The same input gives the same schedule unless the clock stopped the solver.

    Raises:
        FitError: nothing fits the RAM, or nothing the deadline.
        NoPlanError: time was up before any schedule was found.
    """
    if strategy == "milp":
        return _Plan(costed, time_limit_s, depth, gap, progress).run()
    if strategy not in BASELINES:
        raise UsageError(f"unknown strategy {strategy!r}", hint=f"one of: milp, {', '.join(BASELINES)}")
    schedule = BASELINES[strategy](costed)
    if schedule is None:
        raise _baseline_does_not_fit(costed, strategy)
    check(schedule)
    return schedule


@dataclass
class _Plan:
    """One search, from the baselines to the deepest recompute."""

    costed: CostedGraph
    time_limit_s: float
    depth: int
    gap: float
    progress: Progress | None

    def run(self) -> Schedule:
        costed, facts = self.costed, Facts(self.costed)
        began = time.monotonic()
        cpu_began = time.process_time()
        self.facts = facts
        self._possible_at_all()
        best: Schedule | None = None
        for make in BASELINES.values():
            best = _better(best, make(costed))
        least_j = facts.compute.energy_j
        if best is not None and best.solved.energy_j <= least_j * (1 + 1e-12):
            solved = Solved("optimal", best.solved.energy_j, least_j, self.depth, 0.0, best.strategy, "gap")
            return self._done(best, solved, time.process_time() - cpu_began)
        spent_s = 0.0
        proof: Outcome | None = None
        proven_depth = 0
        infeasible = False
        for d in self._depths():
            left = self.time_limit_s - (time.monotonic() - began)
            if left <= 0.05 and d:
                break
            last = d == self.depth
            outcome = self._solve(
                d, left if last else left / 3, self.gap if last else max(self.gap, ON_THE_WAY), best
            )
            spent_s += outcome.cpu_s
            infeasible = outcome.end == "infeasible"
            if outcome.bound is not None or outcome.schedule is not None:
                proof, proven_depth = outcome, d
            best = _better(best, outcome.schedule)
        if best is None:
            if infeasible:
                raise self._infeasible(max(5.0, self.time_limit_s - (time.monotonic() - began)))
            raise self._no_plan()
        bound = None if proof is None else proof.bound
        energy = best.solved.energy_j
        if bound is None or bound > energy * (1 + PROVEN):
            # A baseline may recompute deeper than the depth that was proven; this holds for any depth.
            bound = least_j
        finished = proof is not None and proof.end == "gap" and proven_depth == self.depth
        solver = "none" if proof is None else proof.solver
        solved = Solved(
            "feasible",
            energy,
            min(bound, energy),
            proven_depth,
            spent_s,
            solver if best.strategy == "milp" else f"{solver}, {best.strategy}",
            "gap" if finished else "time",
        )
        return self._done(best, solved, spent_s)

    def _depths(self) -> tuple[int, ...]:
        """Depths to solve: the asked one takes the time, those before it only give it a start."""
        return tuple(dict.fromkeys((0, 1, self.depth) if self.depth > 2 else (0, self.depth)))

    def _solve(self, depth: int, limit_s: float, gap: float, start: Schedule | None) -> Outcome:
        """One depth, its schedule replayed by the judge."""
        outcome = solve(
            self.costed,
            depth,
            limit_s,
            gap=gap,
            start=start,
            progress=self.progress,
            facts=self.facts,
        )
        if outcome.schedule is None:
            return outcome
        try:
            check(outcome.schedule)
        except BrokenSchedule as broken:
            if not broken.rule.startswith("ram_") and broken.rule != "deadline":
                raise
            # Over by the solver's tolerance: once more, with less of it.
            outcome = solve(
                self.costed, depth, limit_s, gap=gap, start=start, facts=self.facts, tolerance=1e-9
            )
            if outcome.schedule is not None:
                check(outcome.schedule)
        return outcome

    def _done(self, schedule: Schedule, solved: Solved, cpu_s: float) -> Schedule:
        solved = replace(solved, solve_cpu_s=cpu_s)
        if solved.gap is not None and solved.gap <= PROVEN:
            solved = replace(solved, status="optimal")
        schedule = replace(schedule, solved=solved, strategy="milp")
        check(schedule)
        return schedule

    # What can be told apart without a schedule, in words

    def _possible_at_all(self) -> None:
        costed, facts = self.costed, self.facts
        budget, deadline_s = costed.arena_budget_bytes, costed.budget.time_s
        if budget is not None and all(t in costed.pages for t in facts.size):
            floor = widest_node(facts)
            if budget < floor.arena_bytes:
                raise does_not_fit(costed, floor)
        if deadline_s is not None and facts.compute.time_s > deadline_s:
            raise FitError(
                f"no schedule fits: {_name(costed)} computes for {_seconds(facts.compute.time_s)} a"
                f" training step on {costed.board.name}, the deadline is {_seconds(deadline_s)}",
                hint=f"{_try_deadline(facts.compute.time_s)}, a smaller batch, or a faster board",
            )

    def _infeasible(self, limit_s: float) -> FitError:
        """No schedule: for want of RAM, or of time?"""
        costed = self.costed
        free = replace(costed, budget=replace(costed.budget, time_s=None))
        if costed.budget.time_s is not None:
            outcome = solve(free, self.depth, limit_s, gap=1e-3, objective="time")
            best = _faster(outcome.schedule, [s for f in BASELINES.values() if (s := f(free))])
            if best is not None:
                time_s = total(costed, best.actions).time_s
                return FitError(
                    f"no schedule fits: in {_size(costed.budget.ram_bytes)} of RAM {_name(costed)} takes at"
                    f" least {_seconds(time_s)} a training step, the deadline is"
                    f" {_seconds(costed.budget.time_s)}",
                    hint=f"{_try_deadline(time_s)}, or more --ram: computing alone takes"
                    f" {_seconds(self.facts.compute.time_s)}",
                )
        floor = min_ram(free, self.depth, limit_s)
        budget, store = costed.arena_budget_bytes, costed.board.store
        if store is not None and (budget is None or budget >= floor.arena_bytes):
            return FitError(
                f"no schedule fits: in {_size(costed.budget.ram_bytes)} of RAM the pages of {_name(costed)}"
                f" need more than the {_size(store.size_bytes)} of {costed.board.name}'s page store",
                hint="try more --ram, or training fewer layers with --train",
            )
        return does_not_fit(costed, floor)

    def _no_plan(self) -> NoPlanError:
        costed = self.costed
        wants = f"{_size(costed.budget.ram_bytes)} of RAM"
        if costed.budget.time_s is not None:
            wants += f" and {_seconds(costed.budget.time_s)} a training step"
        return NoPlanError(
            f"no plan in time: nothing was found for {_name(costed)} in {wants} within"
            f" {self.time_limit_s:g} s, and it is not proven that there is nothing",
            hint="try a longer --time-limit, more --ram or a later --deadline",
        )


def does_not_fit(costed: CostedGraph, floor: Floor) -> FitError:
    """The error for a budget below the floor: what is widest, and what to try."""
    arena = max(0, costed.arena_budget_bytes or 0)
    needs, leaves = _size(floor.arena_bytes), _size(arena)
    if needs == leaves:
        needs, leaves = f"{floor.arena_bytes} B", f"{arena} B"
    fixed = f" beside {_size(costed.static_bytes)} of buffers" if costed.static_bytes else ""
    ram_kib = math.ceil((floor.arena_bytes + costed.static_bytes) / 1024)
    layer = costed.training.node[floor.node].layer if floor.node else ""
    where = floor.node + (f" (of {layer})" if layer and layer not in floor.node else "")
    more = "" if costed.board.store else f"; {costed.board.name} has no page store"
    smaller = "a smaller batch, " if costed.training.batch > 1 else ""
    trained = ", or training fewer layers with --train" if costed.training.gradients else ""
    return FitError(
        f"no schedule fits: {_name(costed)} needs {needs} of arena{fixed},"
        f" the budget leaves {leaves}{more}\n"
        f"  widest moment: {where}, with {_parts(floor.parts)}",
        hint=f"try --ram {ram_kib}KiB{', ' if smaller else ''}{smaller.rstrip(', ')}{trained}",
    )


def _baseline_does_not_fit(costed: CostedGraph, strategy: Strategy) -> FitError:
    free = BASELINES[strategy](replace(costed, budget=Budget()))
    if free is None:
        return FitError(
            f"{strategy} needs a larger page store than {costed.board.name} has", hint="try --strategy milp"
        )
    verdict = check(free)
    arena = costed.arena_budget_bytes
    if arena is not None and verdict.peak_bytes > arena:
        ram_kib = math.ceil((verdict.peak_bytes + costed.static_bytes) / 1024)
        return FitError(
            f"{strategy} does not fit: it needs {_size(verdict.peak_bytes)} of arena, the budget leaves"
            f" {_size(max(0, arena))}\n  widest moment: {_parts(verdict.at_peak)}",
            hint=f"try --ram {ram_kib}KiB, or --strategy milp",
        )
    return FitError(
        f"{strategy} takes {_seconds(verdict.time_s)} a training step, the deadline is"
        f" {_seconds(costed.budget.time_s or 0.0)}",
        hint=f"{_try_deadline(verdict.time_s)}, or --strategy milp",
    )


def _better(a: Schedule | None, b: Schedule | None) -> Schedule | None:
    if a is None or b is None:
        return a or b
    return b if b.solved.energy_j < a.solved.energy_j else a


def _faster(a: Schedule | None, others: Iterable[Schedule]) -> Schedule | None:
    known = [s for s in (a, *others) if s is not None]
    return min(known, key=lambda s: total(s.costed, s.actions).time_s, default=None)


def _name(costed: CostedGraph) -> str:
    return costed.training.model.name or "the model"


def _size(nbytes: int | None) -> str:
    if nbytes is None:
        return "all"
    return f"{nbytes} B" if nbytes < 1024 else f"{nbytes / 1024:.1f} KiB"


def _seconds(time_s: float) -> str:
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if time_s >= factor:
            return f"{time_s / factor:.3g} {unit}"
    return f"{time_s * 1e6:.3g} us"


def _try_deadline(time_s: float) -> str:
    """A deadline that is met: rounded up to three digits."""
    digits = 10 ** (math.floor(math.log10(time_s)) - 2) if time_s > 0 else 1.0
    return f"try --deadline {math.ceil(time_s / digits) * digits:.6g}s"


def _parts(parts: tuple[tuple[str, int], ...], most: int = 6) -> str:
    """The largest parts in words: ``relu1/y 6.1 KiB + conv2/dw 4.6 KiB + 3 more 1.0 KiB``."""
    order = sorted(parts, key=lambda p: (-p[1], p[0]))
    shown = [f"{name} {_size(n)}" for name, n in order[:most]]
    if rest := order[most:]:
        shown.append(f"{len(rest)} more {_size(sum(n for _, n in rest))}")
    return " + ".join(shown)


__all__ = ["Improvement", "Progress", "does_not_fit", "plan"]
