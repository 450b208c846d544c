"""Any schedule that any strategy makes is legal, and the planner's is the best of them."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poetgen.cost import Cost, CostedGraph, Variant
from poetgen.errors import FitError
from poetgen.schedule import Compute, check, keep_all_bytes, milp, min_ram, plan
from poetgen.schedule.baselines import BASELINES
from poetgen.schedule.cuts import cuts
from poetgen.schedule.facts import Facts
from poetgen.schedule.gaps import Floats, Lp, build, recomputes
from poetgen.schedule.milp import solve
from tests.schedule_graphs import POWER_W, SD_CARD, board, random_net, with_ram

seeds = st.integers(0, 10_000)
sizes = st.integers(1, 14)
shares = st.sampled_from((0.0, 0.1, 0.3, 0.6, 1.0))


def between(costed: CostedGraph, share: float) -> CostedGraph:
    """A budget between the floor and keeping everything."""
    low, high = min_ram(costed).arena_bytes, keep_all_bytes(costed)
    return with_ram(costed, low + int((high - low) * share))


def activity(lp: Lp, x: Floats) -> Floats:
    """A x."""
    row = np.repeat(np.arange(lp.rows), np.diff(lp.start))
    return np.asarray(np.bincount(row, lp.value * x[lp.index], minlength=lp.rows), np.float64)


@settings(max_examples=150, deadline=None)
@given(seeds, sizes, shares)
def test_every_baseline_is_legal_or_says_that_it_does_not_fit(seed: int, layers: int, share: float) -> None:
    costed = between(random_net(seed, layers).costed(), share)
    for make in BASELINES.values():
        schedule = make(costed)
        if schedule is not None:
            check(schedule)


@settings(max_examples=150, deadline=None)
@given(seeds, sizes)
def test_page_all_fits_at_the_floor_and_nothing_runs_below_it(seed: int, layers: int) -> None:
    costed = random_net(seed, layers).costed()
    floor = min_ram(costed)
    assert floor.exact
    assert sum(n for _, n in floor.parts) == floor.arena_bytes
    schedule = BASELINES["page_all"](with_ram(costed, floor.arena_bytes))
    assert schedule is not None
    assert check(schedule).peak_bytes == floor.arena_bytes
    for make in BASELINES.values():
        free = make(costed)
        assert free is not None
        assert check(free).peak_bytes >= floor.arena_bytes


@settings(max_examples=100, deadline=None)
@given(seeds, sizes, st.integers(0, 3))
def test_the_model_says_what_the_judge_says_of_a_baseline(seed: int, layers: int, depth: int) -> None:
    costed = random_net(seed, layers).costed()
    for name in ("keep_all", "page_all"):
        schedule = BASELINES[name](costed)
        assert schedule is not None
        verdict = check(schedule)
        lp = (model := build(Facts(costed), depth, verdict.peak_bytes)).lp
        x = model.solution(schedule)
        assert x is not None
        assert model.value(float(lp.cost @ x)) == pytest.approx(verdict.energy_j, rel=1e-9)
        rows = activity(lp, x)
        assert (rows <= lp.hi + 1e-9).all()
        assert (rows >= lp.lo - 1e-9).all()
        assert ((lp.lower <= x) & (x <= lp.upper)).all()
        again = replace(schedule, actions=model.actions(x > 0.5)[0])
        assert check(again).energy_j == pytest.approx(verdict.energy_j)
        # One unit less of RAM, and the rows no longer hold.
        tight = build(Facts(costed), depth, verdict.peak_bytes - 8).lp
        assert (activity(tight, x) > tight.hi).any()


@pytest.mark.parametrize("seed", range(30))
def test_the_plan_is_legal_proven_and_no_worse_than_any_baseline(seed: int) -> None:
    costed = between(random_net(seed, 2 + seed % 9).costed(), (0.0, 0.2, 0.5)[seed % 3])
    schedule = plan(costed, depth=1, gap=0.0)
    assert check(schedule).energy_j == pytest.approx(schedule.solved.energy_j)
    for make in BASELINES.values():
        other = make(costed)
        if other is not None:
            assert schedule.solved.energy_j <= other.solved.energy_j * (1 + 1e-9)
    assert schedule.solved.status == "optimal" or schedule.solved.solver.endswith(("_all", "_sqrt"))


@pytest.mark.parametrize("seed", range(40, 52))
def test_the_floor_is_where_plans_begin(seed: int) -> None:
    costed = random_net(seed, 2 + seed % 7).costed(static_bytes=40)
    floor = min_ram(costed)
    at = with_ram(costed, floor.arena_bytes)
    assert check(plan(at)).peak_bytes == floor.arena_bytes
    below = with_ram(costed, floor.arena_bytes - 8)
    with pytest.raises(FitError) as caught:
        plan(below)
    assert floor.node in caught.value.message
    # Nor does the solver find one, when nobody tells it beforehand.
    assert solve(below, 1, 20).end == "infeasible"


@pytest.mark.parametrize("seed", range(60, 70))
def test_without_a_store_the_floor_is_the_lowest_peak(seed: int) -> None:
    costed = random_net(seed, 2 + seed % 7).costed(on=board(None))
    floor = min_ram(costed)
    assert floor.exact
    schedule = plan(with_ram(costed, floor.arena_bytes))
    verdict = check(schedule)
    assert (verdict.peak_bytes, verdict.pages_in) == (floor.arena_bytes, 0)
    with pytest.raises(FitError, match="no page store"):
        plan(with_ram(costed, floor.arena_bytes - 8))


@pytest.mark.parametrize("seed", range(80, 90))
def test_a_deeper_recompute_never_costs_more(seed: int) -> None:
    costed = between(random_net(seed, 3 + seed % 6).costed(), 0.15)
    energies = []
    for depth in (0, 1, 2, 4):
        outcome = solve(costed, depth, 20, gap=0.0)
        assert outcome.schedule is not None
        energies.append(check(outcome.schedule).energy_j)
    assert all(b <= a * (1 + 1e-6) for a, b in itertools.pairwise(energies))


@pytest.mark.parametrize("seed", range(100, 112))
def test_a_deadline_is_met_or_refused_with_the_time_that_can_be_met(seed: int) -> None:
    costed = between(random_net(seed, 3 + seed % 6).costed(), 0.1)
    least = Facts(costed).compute.time_s
    slow = check(plan(costed, gap=0.0)).time_s
    for share in (0.2, 0.9):
        limit = least + (slow - least) * share
        timed = with_ram(costed, costed.arena_budget_bytes or 0, limit)
        try:
            assert check(plan(timed, gap=0.0)).time_s <= limit * (1 + 1e-9)
        except FitError as error:
            told = float(error.hint.partition("--deadline ")[2].partition("s")[0])
            assert told > limit
            again = with_ram(costed, costed.arena_budget_bytes or 0, told)
            assert check(plan(again)).time_s <= told


@pytest.mark.parametrize("seed", range(170, 178))
def test_given_homes_are_kept_and_the_floor_counts_them(seed: int) -> None:
    costed = random_net(seed, 6).costed()
    homes = frozenset(sorted(Facts(costed).persistent)[::2])
    costed = replace(costed, homes=homes)
    floor = min_ram(costed)
    schedule = plan(with_ram(costed, floor.arena_bytes), gap=0.0)
    assert check(schedule).peak_bytes == floor.arena_bytes
    assert set(schedule.resident) == homes
    with pytest.raises(FitError, match="widest moment"):
        plan(with_ram(costed, floor.arena_bytes - 8))


@pytest.mark.parametrize("seed", range(120, 126))
def test_pages_fit_the_store(seed: int) -> None:
    costed = between(random_net(seed, 6).costed(), 0.2)
    best = plan(costed, gap=0.0)
    sectors = sum(costed.pages[t].sectors for t in Facts(costed).persistent) * 2
    for extra in (8, 4, 2, 0):
        small = replace(costed, board=board(replace(SD_CARD, size_bytes=512 * (sectors + extra))))
        try:
            schedule = plan(small, gap=0.0)
        except FitError as error:
            assert "page store" in error.message
            continue
        check(schedule)
        assert schedule.solved.energy_j >= best.solved.energy_j * (1 - 1e-6)


@pytest.mark.parametrize("seed", range(130, 142))
def test_variants_are_chosen_by_cost_and_by_room(seed: int) -> None:
    net = random_net(seed, 5)
    for n in net.nodes[::2]:
        cost = Cost(net.seconds[n.name], net.seconds[n.name] * POWER_W)
        dear = Cost(cost.time_s * 3, cost.energy_j * 3)
        streams = tuple(i for i in n.inputs if net.tensors[i].kind in ("act", "param"))[:1]
        changed = {t for m in net.nodes for t in m.mutates}
        streams = tuple(t for t in streams if t not in n.mutates and not (t in changed and n.mutates))
        net.variants[n.name] = (
            Variant(512, cost),
            Variant(0, dear),
            Variant(64, dear, streams),
        )
    costed = net.costed()
    for share in (0.0, 0.3, 1.0):
        budget = between(costed, share)
        outcome = solve(budget, 1, 30, gap=0.0)
        assert outcome.schedule is not None, outcome.end
        check(outcome.schedule)
        assert outcome.schedule.solved.status == "optimal"
    plenty = plan(with_ram(costed, keep_all_bytes(costed)))
    assert {a.variant for a in plenty.actions if isinstance(a, Compute)} == {0}


@settings(max_examples=80, deadline=None)
@given(seeds, sizes, st.integers(1, 4), st.integers(0, 1000))
def test_no_schedule_violates_a_cut(seed: int, layers: int, depth: int, point: int) -> None:
    costed = random_net(seed, layers).costed()
    model = build(Facts(costed), depth, min_ram(costed).arena_bytes)
    rows = []
    for k in range(4):  # rows from anywhere: the relaxation's solutions are of no special kind
        separation = cuts(model)
        assert separation is not None
        rows += separation.separate(np.random.default_rng(point + k).random(model.lp.columns) ** 3)
    for name in ("keep_all", "page_all"):
        schedule = BASELINES[name](costed)
        assert schedule is not None
        x = model.solution(schedule)
        assert x is not None
        assert all(x[list(r.columns)] @ np.array(r.factors) >= r.low - 1e-9 for r in rows)


@pytest.mark.parametrize("seed", range(150, 162))
def test_the_optimum_with_recomputes_violates_no_cut_and_needs_none(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    costed = between(random_net(seed, 5 + seed % 5).costed(), 0.15)
    monkeypatch.setattr(milp, "CUTS_FROM_DEPTH", 99)
    plain = solve(costed, 3, 30, gap=0.0)
    monkeypatch.setattr(milp, "CUTS_FROM_DEPTH", 0)
    tightened = solve(costed, 3, 30, gap=0.0)
    assert plain.value == pytest.approx(tightened.value, rel=1e-6)
    assert plain.schedule is not None
    model = build(Facts(costed), 3, costed.arena_budget_bytes)
    separation = cuts(model)
    x = model.solution(plain.schedule)
    assert separation is not None
    assert x is not None
    assert separation.separate(x) == []
    rng = np.random.default_rng(seed)
    rows = [r for _ in range(8) for r in separation.separate(x * rng.random(len(x)))]
    assert rows
    assert all(x[list(r.columns)] @ np.array(r.factors) >= r.low - 1e-9 for r in rows)


# The optimum by exhaustion


def exhausted(costed: CostedGraph, depth: int) -> float:
    """The least energy of all schedules, by search over states. Knows no gaps, no events and no rows.

    In base order; before node s, nodes of its recompute set, ascending, each at most once. Tensors may be
    freed at any time. They are paged in by the node that reads them and written when they are first made
    or updated: earlier or later takes the same energy and no fewer bytes.
    """
    facts = Facts(costed)
    sets = recomputes(facts, depth, dominance=False)
    changed = [t for t in facts.persistent if t in facts.changed_at]
    best = float("inf")
    for r in range(len(facts.persistent) + 1):
        for resident in itertools.combinations(facts.persistent, r):
            for w in range(len(changed) + 1):
                for written in itertools.combinations(changed, w):
                    if set(changed) - set(resident) <= set(written):
                        search = Search(facts, sets, frozenset(resident), frozenset(written))
                        best = min(best, search.run(best))
    return best


State = tuple[int, int, frozenset[str], frozenset[str]]
"""Next base node, last recompute before it, what is in RAM, what the store has."""


@dataclass(frozen=True)
class Search:
    facts: Facts
    sets: list[list[int]]
    resident: frozenset[str]
    written: frozenset[str]

    def run(self, bound: float) -> float:
        facts = self.facts
        copies = {t for t in facts.persistent if t in self.written or t not in facts.changed_at}
        start: State = (0, -1, self.resident, frozenset(copies))
        spent = sum(facts.costed.pages[t].out.energy_j for t in self.written)
        best = {start: spent}
        queue: list[tuple[float, int, State]] = [(spent, 0, start)]
        number = itertools.count(1)
        while queue:
            spent, _, state = heapq.heappop(queue)
            if spent > best[state]:
                continue
            if spent >= bound:
                break
            if state[0] == len(facts.nodes):
                if {t for t in state[2] if t in facts.persistent} == self.resident:
                    return spent
                continue
            for price, later in self.moves(state):
                if spent + price < best.get(later, float("inf")):
                    best[later] = spent + price
                    heapq.heappush(queue, (spent + price, next(number), later))
        return float("inf")

    def moves(self, state: State) -> Iterator[tuple[float, State]]:
        s, j, live, copies = state
        for t in live:
            if not (t in self.resident and self.is_new(t, s)):
                yield 0.0, (s, j, live - {t}, copies)
        facts = self.facts
        for k in (*(c for c in self.sets[s] if c > j), s):
            landing = set(facts.reads[k]) - live
            if not landing <= copies or set(facts.makes[k]) & live or any(self.is_new(t, s) for t in landing):
                continue
            price = facts.costed.variants[facts.nodes[k].name][0].cost.energy_j
            price += sum(facts.costed.pages[t].back.energy_j for t in landing)
            for over in (None, *facts.in_place[k]):
                kept = (live | landing) - {over}
                during = sum(facts.size[t] for t in (*kept, *facts.makes[k])) + facts.workspace[k]
                if during > (facts.costed.arena_budget_bytes or 0):
                    continue
                after = frozenset(kept | set(facts.makes[k]))
                if k != s:
                    yield price, self.trimmed(s, k, after, copies)
                    continue
                made = facts.makes[s]
                for r in range(len(made) + 1):
                    for out in itertools.combinations(made, r):
                        more = sum(facts.costed.pages[t].out.energy_j for t in out)
                        yield price + more, self.trimmed(s + 1, -1, after, copies | set(out))

    def is_new(self, t: str, s: int) -> bool:
        """Has its update come?"""
        return any(u < s for u in self.facts.changed_at.get(t, ()))

    def trimmed(self, s: int, j: int, live: frozenset[str], copies: frozenset[str]) -> State:
        """Without activations that nobody may still read."""
        live = frozenset(t for t in live if t in self.facts.persistent or self.wanted(t, s))
        return s, j, live, frozenset(t for t in copies if self.wanted(t, s))

    def wanted(self, t: str, s: int) -> bool:
        uses = self.facts.uses[t]
        return any(u >= s for u in uses) or any(set(uses) & set(c) for c in self.sets[s:])


SMALL = (207, 209, 211, 214, 231, 237, 241, 251, 257)
"""Random nets that the search gets through quickly."""


@pytest.mark.parametrize("depth", [0, 1, 9])
@pytest.mark.parametrize("seed", SMALL)
def test_the_optimum_is_the_one_that_exhaustion_finds(seed: int, depth: int) -> None:
    costed = between(random_net(seed, 3).costed(), (0.0, 0.15, 0.4)[seed % 3])
    outcome = solve(costed, depth, 30, gap=0.0)
    assert outcome.value == pytest.approx(exhausted(costed, depth), rel=1e-6)


def test_the_nets_of_the_exhaustive_search_page_recompute_and_work_in_place() -> None:
    does: set[str] = set()
    for seed in SMALL:
        costed = between(random_net(seed, 3).costed(), (0.0, 0.15, 0.4)[seed % 3])
        schedule = solve(costed, 9, 30, gap=0.0).schedule
        assert schedule is not None
        verdict = check(schedule)
        does |= {"page"} if verdict.pages_in else set()
        does |= {"recompute"} if verdict.recomputes else set()
        does |= {"in place" for a in schedule.actions if isinstance(a, Compute) and a.in_place}
    assert does == {"page", "recompute", "in place"}
