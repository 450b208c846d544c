"""Schedules without a solver: what the planner must beat, and what it starts from.

In: CostedGraph. Out: a Schedule, or None where the strategy does not fit the budget.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from poetgen.cost import CostedGraph
from poetgen.schedule.actions import (
    Action,
    Compute,
    Free,
    PageIn,
    PageOut,
    Schedule,
    Solved,
    Strategy,
    total,
)
from poetgen.schedule.facts import Facts, prune, store_bytes


@dataclass
class _Steps:
    """Actions while they are written down, and what is in RAM after them."""

    facts: Facts
    resident: tuple[str, ...]
    actions: list[Action] = field(default_factory=list)
    live: dict[str, int] = field(init=False)
    peak_bytes: int = 0

    def __post_init__(self) -> None:
        self.live = {t: self.facts.size[t] for t in self.resident}
        self.saw(0)

    def page_in(self, t: str) -> None:
        self.actions.append(PageIn(t))
        self.live[t] = self.facts.size[t]
        self.saw(0)

    def page_out(self, t: str) -> None:
        self.actions.append(PageOut(t))

    def free(self, tensors: Iterable[str]) -> None:
        for t in tensors:
            self.actions.append(Free(t))
            del self.live[t]

    def more_bytes(self, s: int) -> int:
        """What node s needs beside its operands, not in place."""
        return sum(self.facts.size[o] for o in self.facts.makes[s]) + self.facts.workspace[s]

    def compute(self, s: int, in_place: str | None) -> None:
        self.actions.append(Compute(self.facts.nodes[s].name, self.facts.cheapest[s], in_place))
        if in_place is not None:
            del self.live[in_place]
        self.saw(self.more_bytes(s))
        self.live.update((o, self.facts.size[o]) for o in self.facts.makes[s])

    def saw(self, more: int) -> None:
        self.peak_bytes = max(self.peak_bytes, sum(self.live.values()) + more)

    def fits(self, more: int) -> bool:
        budget = self.facts.costed.arena_budget_bytes
        return budget is None or sum(self.live.values()) + more <= budget


def keep_all(costed: CostedGraph) -> Schedule | None:
    """Everything stays in RAM until its last use; parameters and states stay for good."""
    return _finish(costed, "keep_all", _keep_all)


def page_all(costed: CostedGraph) -> Schedule | None:
    """Nothing stays in RAM but between neighbours: written right after it is made, read before each use.

    Parameters and states are paged in for each use and written back after their update. It fits
    wherever anything fits, deadlines aside.
    """
    if costed.board.store is None:
        return None
    return _finish(costed, "page_all", _page_all)


def recompute_all(costed: CostedGraph) -> Schedule | None:
    """Forward activations are dropped after the forward pass and recomputed for each node that needs them.

    What cannot be recomputed is kept, and so are gradients, parameters and states.
    """
    return _finish(costed, "recompute_all", lambda facts: _recompute(facts, checkpoints=frozenset()))


def chen_sqrt(costed: CostedGraph) -> Schedule | None:
    """As recompute_all, but about sqrt(n) of n forward activations are kept, evenly spread.

    (Chen et al., arXiv 1604.06174; their segments are recomputed once and held, here node by node.)
    """
    return _finish(costed, "chen_sqrt", _chen_sqrt)


BASELINES: Mapping[Strategy, Callable[[CostedGraph], Schedule | None]] = MappingProxyType(
    {
        "keep_all": keep_all,
        "page_all": page_all,
        "recompute_all": recompute_all,
        "chen_sqrt": chen_sqrt,
    }
)


def _finish(costed: CostedGraph, strategy: Strategy, make: Callable[[Facts], _Steps]) -> Schedule | None:
    began = time.process_time()
    facts = Facts(costed)
    homeless = [t for t in facts.persistent if t not in costed.pages]
    steps = make(facts)
    budget = costed.arena_budget_bytes
    if budget is not None and steps.peak_bytes > budget:
        return None
    if costed.homes is not None and set(steps.resident) != costed.homes:
        return None
    if not set(homeless) <= set(steps.resident):
        return None
    actions = prune(costed, steps.actions)
    store = costed.board.store
    if store is not None and store_bytes(costed, actions, steps.resident) > store.size_bytes:
        return None
    price = total(costed, actions)
    if costed.budget.time_s is not None and price.time_s > costed.budget.time_s:
        return None
    solved = Solved("baseline", price.energy_j, None, 0, time.process_time() - began, strategy)
    return Schedule(costed, actions, steps.resident, solved, strategy)


def _keep_all(facts: Facts) -> _Steps:
    steps = _Steps(facts, facts.persistent)
    for s in range(len(facts.nodes)):
        done = {t for t in (*facts.reads[s], *facts.makes[s]) if _dies(facts, t, s)}
        in_place = next((t for t in facts.in_place[s] if t in done), None)
        steps.compute(s, in_place)
        steps.free(t for t in (*facts.reads[s], *facts.makes[s]) if t in done and t != in_place)
    return steps


def _dies(facts: Facts, t: str, s: int) -> bool:
    """Is node s the last that has to do with t, in one training step and in all?"""
    return facts.next_use(t, s) is None and t in facts.maker


def _page_all(facts: Facts) -> _Steps:
    pages = facts.costed.pages
    homes = facts.costed.homes or frozenset()
    steps = _Steps(facts, tuple(t for t in facts.persistent if t not in pages or t in homes))
    last = len(facts.nodes) - 1
    for s in range(len(facts.nodes)):
        for t in facts.reads[s]:
            if t not in steps.live:
                steps.page_in(t)
        soon = set(facts.reads[s + 1]) if s < last else set()
        in_place = next((t for t in facts.in_place[s] if t not in soon and _may_go(facts, t, s)), None)
        if in_place is None and not steps.fits(steps.more_bytes(s)):
            in_place = next((t for t in facts.in_place[s] if _may_go(facts, t, s)), None)
        steps.compute(s, in_place)
        for t in facts.makes[s]:
            if t in pages and facts.uses[t]:
                steps.page_out(t)
        for t in facts.changes[s]:
            if t in pages and t not in homes and facts.changed_at[t][-1] == s:
                steps.page_out(t)
        steps.free(
            t
            for t in (*facts.makes[s], *facts.reads[s])
            if t in steps.live
            and t not in soon
            and _may_go(facts, t, s)
            and t not in steps.resident
            and not facts.pinned(t, s)
        )
    return steps


def _may_go(facts: Facts, t: str, s: int) -> bool:
    return t in facts.costed.pages or _dies(facts, t, s)


def _chen_sqrt(facts: Facts) -> _Steps:
    saved = [
        t
        for t, s in facts.maker.items()
        if facts.nodes[s].phase == "forward" and any(facts.nodes[u].phase != "forward" for u in facts.uses[t])
    ]
    every = math.isqrt(len(saved)) or 1
    return _recompute(facts, checkpoints=frozenset(saved[every - 1 :: every]))


def _recompute(facts: Facts, checkpoints: frozenset[str]) -> _Steps:
    """Drop forward activations after the forward pass, but for checkpoints; recompute them by node.

    What turns out to be out of reach (its maker is impure, or an update came between) becomes a
    checkpoint, and the walk starts again.
    """
    kept = set(checkpoints)
    while True:
        kept |= {o for s in range(len(facts.nodes)) for o in facts.makes[s] if kept & set(facts.makes[s])}
        needed = dict.fromkeys(kept, len(facts.nodes))
        _, lacking, needed = _recompute_walk(facts, needed)
        if not lacking:
            return _recompute_walk(facts, needed)[0]
        kept |= lacking


def _recompute_walk(facts: Facts, kept: Mapping[str, int]) -> tuple[_Steps, set[str], dict[str, int]]:
    """Walk with checkpoints kept up to a node each; also, up to where they were needed."""
    nodes = facts.nodes
    steps = _Steps(facts, facts.persistent)
    forward = [n.phase == "forward" for n in nodes]
    # The last node that finds t in RAM if nothing is recomputed for it.
    until = {}
    for t, s in facts.maker.items():
        uses = facts.uses[t]
        if forward[s] and t not in kept:
            uses = tuple(u for u in uses if forward[u])
        until[t] = kept.get(t, max((s, *uses)))
    needed = {t: facts.maker[t] for t in kept}
    for s in range(len(nodes)):
        todo, lacking = _closure(facts, s, steps.live)
        if lacking:
            return steps, lacking, needed
        needed.update((t, s) for j in (*todo, s) for t in facts.reads[j] if t in needed)
        soon = set(facts.reads[s + 1]) if s + 1 < len(nodes) else set()
        order = (*todo, s)
        for k, j in enumerate(order):
            later = {t for i in order[k + 1 :] for t in facts.reads[i]}
            gone = [
                t
                for t in (*facts.reads[j], *facts.makes[j])
                if t in facts.maker and t not in later and t not in soon and until[t] <= s
            ]
            in_place = next((t for t in facts.in_place[j] if t in gone), None)
            steps.compute(j, in_place)
            steps.free(t for t in gone if t != in_place)
        # A node that makes several tensors keeps all that the next node reads, or none.
        steps.free(
            t
            for t in [*steps.live]
            if t in facts.maker
            and until[t] <= s
            and not (t in soon and soon & set(facts.makes[facts.maker[t]]) <= steps.live.keys())
        )
    return steps, set(), needed


def _closure(facts: Facts, s: int, live: Mapping[str, int]) -> tuple[list[int], set[str]]:
    """Nodes to recompute, ascending, before s can run; and what cannot be had that way."""
    todo: set[int] = set()
    lacking: set[str] = set()
    stack = [t for t in facts.reads[s] if t not in live]
    while stack:
        t = stack.pop()
        j = facts.maker.get(t)
        if j is None or j in todo:
            continue
        if not facts.may_rerun(j, s) or any(o in live for o in facts.makes[j]):
            lacking.add(t)
            continue
        todo.add(j)
        stack += [r for r in facts.reads[j] if r not in live]
    return sorted(todo), lacking
