"""Solve the gap model with HiGHS, or CBC. In: CostedGraph, depth, time limit. Out: Outcome.

The only place that imports pulp and highspy. Solvers do not always stop when told to, so each runs in
a process of its own that reports every improvement and can be killed. What it found is rounded, turned
into actions and replayed by the judge before anybody sees it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from poetgen.cost import CostedGraph
from poetgen.schedule.actions import PROVEN, Schedule, Solved, total
from poetgen.schedule.cuts import Cuts, cuts
from poetgen.schedule.facts import Facts
from poetgen.schedule.gaps import NONE, UNIT, GapModel, Lp, Objective, build

Solver = Literal["HiGHS", "CBC"]
CUTS_FROM_DEPTH = 1
"""Without recomputes the relaxation is good as it is."""
End = Literal["gap", "infeasible", "time", "failed"]
GRACE_S = 2.0
"""Seconds that a solver may take beyond its limit before it is killed."""
CUTTING_SHARE, CUTTING_ROUNDS = 0.25, 4
"""Cuts stop at this share of the time, or when so many rounds gain next to nothing."""


@dataclass(frozen=True)
class Improvement:
    """News from a solver: ``Improvement(1, 3.2, 1.71e-3, 1.69e-3)``; joules, None for not yet."""

    depth: int
    seconds: float
    energy_j: float | None
    bound_j: float | None


Progress = Callable[[Improvement], None]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a solve gave. ``value`` and ``bound`` are in the objective's unit: joules, seconds or bytes."""

    schedule: Schedule | None
    value: float | None
    bound: float | None
    end: End
    cpu_s: float
    solver: Solver


def solve(
    costed: CostedGraph,
    depth: int,
    time_limit_s: float,
    *,
    gap: float = 1e-4,
    start: Schedule | None = None,
    objective: Objective = "energy",
    progress: Progress | None = None,
    facts: Facts | None = None,
    solver: Solver | None = None,
    tolerance: float = 1e-6,
) -> Outcome:
    """The best schedule at a recompute depth, as far as the time goes.

    ``start`` is where the solver begins, if the model can say it; ``gap`` is relative to the whole
    energy. HiGHS is asked first and CBC where HiGHS is missing or fails, unless ``solver`` names one.
    """
    began, cpu_began = time.monotonic(), time.process_time()
    facts = facts or Facts(costed)
    arena_bytes = None if objective == "peak" else costed.arena_budget_bytes
    deadline_s = None if objective == "time" else costed.budget.time_s
    model = build(facts, depth, arena_bytes, deadline_s, objective)
    first = None if start is None else model.solution(start)
    worth = cuts(model) if depth >= CUTS_FROM_DEPTH and objective == "energy" else None
    tried: tuple[Solver, ...] = ("HiGHS", "CBC") if solver is None else (solver,)
    spent = 0.0
    for name in tried:
        left = time_limit_s - (time.monotonic() - began)
        found = _run(name, model, first, _Limits(max(0.1, left), gap, tolerance, worth), progress)
        spent += found.cpu_s
        if found.end != "failed":
            break
    cpu_s = spent + time.process_time() - cpu_began
    bound = None if found.bound is None else model.value(found.bound)
    if found.x is None:
        return Outcome(None, None, bound, found.end, cpu_s, name)
    actions, resident = model.actions(found.x)
    price = total(costed, actions)
    solved = Solved(
        "feasible",
        price.energy_j,
        min(bound, price.energy_j) if bound is not None and objective == "energy" else None,
        depth,
        cpu_s,
        name,
        "gap" if found.end == "gap" else "time",
    )
    if solved.gap is not None and solved.gap <= PROVEN:
        solved = replace(solved, status="optimal")
    value = {"energy": price.energy_j, "time": price.time_s}.get(objective)
    if value is None:
        value = model.value(found.objective)
    schedule = Schedule(costed, actions, resident, solved, "milp")
    return Outcome(schedule, value, bound, found.end, cpu_s, name)


@dataclass(frozen=True)
class _Limits:
    """When a solver may stop, and how far an integer may be from one."""

    time_s: float
    gap: float
    tolerance: float
    cuts: Cuts | None = None


@dataclass
class _Found:
    """What a solver's process sent before it ended or was killed."""

    end: End = "failed"
    x: npt.NDArray[np.bool_] | None = None
    objective: float = 0.0
    bound: float | None = None
    cpu_s: float = 0.0


def _run(
    solver: Solver,
    model: GapModel,
    first: npt.NDArray[np.float64] | None,
    limits: _Limits,
    progress: Progress | None,
) -> _Found:
    """Run a solver in a process of its own; kill it when it overruns."""
    found = _Found()
    began = time.monotonic()
    cpu_began = _children_s()
    # A forked worker needs no __main__ that can be imported again, so scripts without a guard work.
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    here, there = context.Pipe(duplex=False)
    target = {"HiGHS": _highs, "CBC": _cbc}[solver]
    process = context.Process(
        target=_work, args=(there, target, model.lp, first, limits, model.offset / model.scale), daemon=True
    )
    process.start()
    there.close()
    try:
        while True:
            left = began + 1.05 * limits.time_s + GRACE_S - time.monotonic()
            if left <= 0 or not here.poll(left):
                found.end = "time"
                break
            try:
                news, *what = here.recv()
            except EOFError:
                break  # it died; "failed" unless it said how it ended
            if news == "end":
                found.end = what[0]
                break
            if news == "incumbent":
                found.objective = what[0]
                found.x = np.unpackbits(what[1], count=model.lp.columns).astype(bool)
            else:
                found.bound = what[0] if found.bound is None else max(found.bound, what[0])
            if progress is not None:
                energy = None if found.x is None else model.value(found.objective)
                bound = None if found.bound is None else model.value(found.bound)
                progress(Improvement(model.depth, time.monotonic() - began, energy, bound))
    finally:
        here.close()
        if process.is_alive():
            process.join(0.2)
        if process.is_alive() and process.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
        process.join()
    found.cpu_s = _children_s() - cpu_began
    return found


def _children_s() -> float:
    """CPU seconds of the processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _work(
    pipe: Connection,
    solver: Callable[..., Iterator[tuple[Any, ...]]],
    lp: Lp,
    first: npt.NDArray[np.float64] | None,
    limits: _Limits,
    constant: float,
) -> None:
    """The worker's life: its own process group, no stdin, and not one exception on stderr."""
    with contextlib.suppress(OSError):
        os.setsid()
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # HiGHS greets before it can be told not to

    def send(*news: Any) -> None:
        with contextlib.suppress(OSError, ValueError):
            pipe.send(news)

    try:
        solver(lp, first, limits, constant, send)
    except BaseException as error:
        send("end", "failed", repr(error))
    pipe.close()


Send = Callable[..., None]


def _point(lp: Lp, x: Any) -> tuple[float, npt.NDArray[np.uint8]]:
    """A solution's own objective, and its columns as bits: a variable is rounded before it is used."""
    columns = np.asarray(x, np.float64)
    return float(lp.cost @ columns), np.packbits(columns > 0.5)


def _highs(
    lp: Lp,
    first: npt.NDArray[np.float64] | None,
    limits: _Limits,
    constant: float,
    send: Send,
) -> None:
    began = time.monotonic()
    import highspy

    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = lp.columns, lp.rows
    program.col_cost_, program.col_lower_, program.col_upper_ = lp.cost, lp.lower, lp.upper
    program.row_lower_, program.row_upper_ = lp.lo, lp.hi
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_, program.a_matrix_.index_ = lp.start, lp.index
    program.a_matrix_.value_ = lp.value
    whole, real = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    program.integrality_ = [real if k == lp.real else whole for k in range(lp.columns)]
    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("random_seed", 0)
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("mip_feasibility_tolerance", limits.tolerance)
    # Measured on ResNet-18, depth 2: the root again, after presolve again, took half of all the time.
    highs.setOptionValue("mip_allow_restart", False)
    if highs.passModel(program) == highspy.HighsStatus.kError:
        raise ValueError("HiGHS refuses the model")
    # The gap is wanted relative to the whole energy, which the LP bounds from below.
    highs.setOptionValue("solve_relaxation", True)
    highs.setOptionValue("time_limit", limits.time_s)
    highs.run()
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        send("end", "infeasible")
        return
    floor = 0.0
    if status == highspy.HighsModelStatus.kOptimal:
        floor = highs.getInfo().objective_function_value
        send("bound", floor)
        if limits.cuts is not None and lp.rows:
            floor = _tighten(highs, lp.rows, limits, floor, began)
            send("bound", floor)
    highs.clearSolver()
    highs.setOptionValue("solve_relaxation", False)
    whole_units = max(UNIT, constant + floor) if lp.real == NONE else 0.0
    highs.setOptionValue("mip_abs_gap", limits.gap * whole_units)
    if first is not None:
        solution = highspy.HighsSolution()
        solution.col_value = list(first)
        highs.setSolution(solution)
    highs.setOptionValue("time_limit", max(0.05, limits.time_s - (time.monotonic() - began)))

    def improved(event: Any) -> None:
        out = event.data_out
        send("incumbent", *_point(lp, out.mip_solution))
        if abs(out.mip_dual_bound) < 1e30:
            send("bound", out.mip_dual_bound)

    last = [began]

    def logged(event: Any) -> None:
        now = time.monotonic()
        if now - last[0] > 0.5 and abs(event.data_out.mip_dual_bound) < 1e30:
            last[0] = now
            send("bound", event.data_out.mip_dual_bound)

    highs.cbMipImprovingSolution += improved
    highs.cbMipInterrupt += logged
    highs.run()
    info = highs.getInfo()
    if first is not None and info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        objective, _ = _point(lp, highs.getSolution().col_value)
        if objective > info.objective_function_value + 1e-6 * whole_units:
            # HiGHS 1.16, where presolve alone solves it: the optimum's value with the start's columns.
            highs.clearSolver()
            highs.run()
            info = highs.getInfo()
    status = highs.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        send("end", "infeasible")
        return
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        send("incumbent", *_point(lp, highs.getSolution().col_value))
    if abs(info.mip_dual_bound) < 1e30:
        send("bound", info.mip_dual_bound)
    if status == highspy.HighsModelStatus.kOptimal:
        send("end", "gap")
    elif status in (highspy.HighsModelStatus.kTimeLimit, highspy.HighsModelStatus.kInterrupt):
        send("end", "time")
    else:
        send("end", "failed", str(status))


def _tighten(highs: Any, rows: int, limits: _Limits, floor: float, began: float) -> float:
    """Add cuts to the relaxation until they gain nothing; keep those that hold it up. The new bound."""
    assert limits.cuts is not None
    gains = [floor]
    while time.monotonic() - began < CUTTING_SHARE * limits.time_s:
        new = limits.cuts.separate(np.asarray(highs.getSolution().col_value))
        if not new:
            break
        index = np.array([c for row in new for c in row.columns], np.int32)
        value = np.array([v for row in new for v in row.factors])
        ends = np.cumsum([len(row.columns) for row in new])
        start = np.concatenate([[0], ends[:-1]]).astype(np.int32)
        low = np.array([row.low for row in new])
        highs.addRows(len(new), low, np.full(len(new), np.inf), len(index), start, index, value)
        highs.run()
        if str(highs.getModelStatus()) != "HighsModelStatus.kOptimal":
            return gains[-1]
        gains.append(highs.getInfo().objective_function_value)
        if len(gains) > CUTTING_ROUNDS and gains[-1] - gains[-1 - CUTTING_ROUNDS] < 2e-4 * UNIT:
            break
    activity = np.asarray(highs.getSolution().row_value)[rows:]
    slack = activity - np.asarray(highs.getLp().row_lower_)[rows:]
    loose = np.flatnonzero(slack > 1e-6).astype(np.int32) + rows
    if len(loose):
        highs.deleteRows(len(loose), loose)
    return gains[-1]


def _cbc(
    lp: Lp,
    first: npt.NDArray[np.float64] | None,
    limits: _Limits,
    constant: float,
    send: Send,
) -> None:
    import pulp

    whole_units = max(UNIT, constant) if lp.real == NONE else 0.0
    problem = pulp.LpProblem("plan", pulp.LpMinimize)
    x = [
        pulp.LpVariable(
            f"x{k}",
            lp.lower[k],
            None if np.isinf(lp.upper[k]) else lp.upper[k],
            pulp.LpContinuous if k == lp.real else pulp.LpInteger,
        )
        for k in range(lp.columns)
    ]
    problem += pulp.LpAffineExpression([(v, float(c)) for v, c in zip(x, lp.cost, strict=True) if c])
    for r in range(lp.rows):
        a, b = lp.start[r], lp.start[r + 1]
        row = pulp.LpAffineExpression(
            [(x[k], float(f)) for k, f in zip(lp.index[a:b], lp.value[a:b], strict=True)]
        )
        if lp.lo[r] == lp.hi[r]:
            problem += row == float(lp.lo[r])
            continue
        if np.isfinite(lp.lo[r]):
            problem += row >= float(lp.lo[r])
        if np.isfinite(lp.hi[r]):
            problem += row <= float(lp.hi[r])
    command = getattr(pulp, "PULP_CBC_CMD", None) or pulp.COIN_CMD  # the first leaves in PuLP 4
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "cbc.log"
        os.chdir(folder)
        if first is not None:
            for v, value in zip(x, first, strict=True):
                v.setInitialValue(float(value))
        problem.solve(
            command(
                msg=False,
                timeLimit=limits.time_s,
                threads=1,
                gapAbs=limits.gap * whole_units,
                gapRel=0.0,
                logPath=str(log),
                warmStart=first is not None,
            )
        )
        text = log.read_text() if log.exists() else ""
    if problem.sol_status == pulp.LpSolutionInfeasible:
        send("end", "infeasible")
        return
    # PuLP calls a schedule that the clock stopped "Optimal" too: only sol_status tells.
    proven = problem.sol_status == pulp.LpSolutionOptimal
    if not proven and problem.sol_status != pulp.LpSolutionIntegerFeasible:
        send("end", "time" if "Stopped on time" in text else "failed", pulp.LpStatus[problem.status])
        return
    values = np.array([v.value() or 0.0 for v in x])
    objective, bits = _point(lp, values)
    send("incumbent", objective, bits)
    bound = re.findall(r"(?:[Ll]ower bound:|best possible) +(-?[0-9.e+-]+)", text)
    if proven:
        send("bound", objective - limits.gap * whole_units)
    elif bound:
        send("bound", min(float(bound[-1]), objective))
    send("end", "gap" if proven else "time")
