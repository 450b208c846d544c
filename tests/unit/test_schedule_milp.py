"""Solvers run in a process of their own: what they found survives them, and one stands in for another."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from poetgen.errors import NoPlanError
from poetgen.schedule import check, keep_all_bytes, min_ram, plan
from poetgen.schedule import milp as room
from poetgen.schedule.baselines import page_all
from poetgen.schedule.facts import Facts
from poetgen.schedule.gaps import build
from poetgen.schedule.milp import Improvement, solve
from tests.schedule_graphs import random_net, with_ram

SEED, LAYERS = 3, 6
PAGING = random_net(SEED, LAYERS).costed()
TIGHT = with_ram(PAGING, min_ram(PAGING).arena_bytes)


def hang(lp: Any, first: Any, limits: Any, constant: float, send: Any) -> None:
    """A solver that finds where it began, and never stops."""
    send("bound", -1e9)
    if first is not None:
        send("incumbent", float(lp.cost @ first), np.packbits(first > 0.5))
    time.sleep(600)


def crash(lp: Any, first: Any, limits: Any, constant: float, send: Any) -> None:
    raise MemoryError("no room for the solver")


@pytest.mark.parametrize("seed", range(6))
def test_cbc_finds_what_highs_finds(seed: int) -> None:
    costed = random_net(seed, 5).costed()
    low, high = min_ram(costed).arena_bytes, keep_all_bytes(costed)
    costed = with_ram(costed, (2 * low + high) // 3)
    ours, theirs = (solve(costed, 1, 30, gap=0.0, solver=s) for s in ("HiGHS", "CBC"))
    assert (ours.end, theirs.end) == ("gap", "gap")
    assert ours.value == pytest.approx(theirs.value, rel=1e-6)
    assert theirs.bound == pytest.approx(theirs.value, rel=1e-6)
    assert theirs.schedule is not None
    check(theirs.schedule)


def test_cbc_knows_what_is_infeasible() -> None:
    assert solve(with_ram(PAGING, min_ram(PAGING).arena_bytes - 8), 1, 30, solver="CBC").end == "infeasible"


def test_a_solver_that_overruns_is_killed_and_what_it_found_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_highs", hang)
    monkeypatch.setattr(room, "GRACE_S", 0.2)
    began = time.monotonic()
    start = page_all(TIGHT)
    assert start is not None
    outcome = solve(TIGHT, 1, 0.5, start=start)
    assert time.monotonic() - began < 10
    assert outcome.end == "time"
    assert outcome.schedule is not None
    assert check(outcome.schedule).energy_j == pytest.approx(start.solved.energy_j)
    assert outcome.schedule.solved.stopped_by == "time"
    assert outcome.schedule.solved.status == "feasible"


def test_cbc_stands_in_for_a_highs_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    best = plan(TIGHT, gap=0.0).solved
    monkeypatch.setattr(room, "_highs", crash)
    solved = plan(TIGHT, gap=0.0).solved
    assert solved.solver == "CBC"
    assert solved.energy_j == pytest.approx(best.energy_j, rel=1e-6)


def test_a_baseline_stands_in_when_no_solver_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_highs", crash)
    monkeypatch.setattr(room, "_cbc", crash)
    schedule = plan(TIGHT)
    baseline = page_all(TIGHT)
    assert baseline is not None
    assert schedule.solved.energy_j == baseline.solved.energy_j
    assert schedule.solved.status == "feasible"
    assert schedule.solved.bound_j == pytest.approx(Facts(TIGHT).compute.energy_j)
    assert schedule.solved.stopped_by != "gap"


def test_no_plan_in_time_is_said_when_nothing_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    least = Facts(TIGHT).compute.time_s
    hurried = with_ram(PAGING, TIGHT.arena_budget_bytes or 0, least * 1.01)
    monkeypatch.setattr(room, "_highs", hang)
    monkeypatch.setattr(room, "GRACE_S", 0.2)
    with pytest.raises(NoPlanError, match="no plan in time") as caught:
        plan(hurried, time_limit_s=0.5)
    assert caught.value.exit_code == 7
    assert "--time-limit" in caught.value.hint


def test_the_solver_tells_how_it_gets_on() -> None:
    news: list[Improvement] = []
    outcome = solve(TIGHT, 1, 30, gap=0.0, progress=news.append)
    assert news[-1].energy_j == pytest.approx(outcome.value)
    bounds = [n.bound_j for n in news if n.bound_j is not None]
    assert bounds == sorted(bounds)


def test_a_gap_is_relative_to_the_whole_energy_and_never_claimed_beyond_the_bound() -> None:
    for gap in (0.3, 0.05, 0.0):
        outcome = solve(TIGHT, 1, 30, gap=gap)
        assert outcome.schedule is not None
        solved = outcome.schedule.solved
        assert solved.gap is not None
        assert solved.gap <= gap + 1e-6
        assert (solved.status == "optimal") == (solved.gap <= 1e-6)


def test_memory_rows_are_whole_units_with_half_a_unit_to_spare() -> None:
    lp = build(Facts(TIGHT), 1, TIGHT.arena_budget_bytes).lp
    halves = np.where(np.isfinite(lp.hi), lp.hi, 0) % 1 == 0.5
    assert halves.any()
    for r in np.flatnonzero(halves):
        assert (lp.value[lp.start[r] : lp.start[r + 1]] % 1 == 0).all()
