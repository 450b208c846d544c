"""How little RAM a graph can do with. In: CostedGraph. Out: Floor, which names the node that sets it.

With a page store, and deadlines aside, everything that a node does not need at that moment can be in the
store: the floor is the widest node, exactly. Without one it is a search for the schedule with the
lowest peak.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from poetgen.cost import ALIGN, Budget, CostedGraph, aligned
from poetgen.schedule.actions import Compute, Schedule
from poetgen.schedule.baselines import BASELINES, keep_all
from poetgen.schedule.check import WORKSPACE, check
from poetgen.schedule.facts import Facts
from poetgen.schedule.milp import solve


@dataclass(frozen=True)
class Floor:
    """The least arena: ``Floor(14132, "conv2/dw", (("relu1/y", 6272), ...), exact=True)``.

    ``parts`` are the tensors (and "workspace") that are in RAM together while ``node`` runs. Not
    ``exact``: a schedule with this peak was found, and a lower one was not ruled out.
    """

    arena_bytes: int
    node: str
    parts: tuple[tuple[str, int], ...]
    exact: bool


def min_ram(costed: CostedGraph, depth: int = 1, time_limit_s: float = 20.0) -> Floor:
    """The smallest arena budget for which a schedule exists, deadlines aside."""
    facts = Facts(costed)
    if all(t in costed.pages for t in facts.size):
        return widest_node(facts)
    return _lowest_peak(costed, depth, time_limit_s)


def widest_node(facts: Facts) -> Floor:
    """The floor where every tensor can be paged."""
    floors = [_leanest(facts, s) for s in range(len(facts.nodes))]
    return max(floors, key=lambda f: f.arena_bytes, default=Floor(0, "", (), True))


def _leanest(facts: Facts, s: int) -> Floor:
    """What node s must have in RAM in its leanest variant."""
    node = facts.nodes[s]
    homes = facts.costed.homes or ()
    pinned = [
        t
        for t in facts.persistent
        if t not in facts.reads[s]
        and (t in homes or (t in facts.changed_at and facts.changed_at[t][0] < s < max(facts.uses[t])))
    ]
    floors = []
    for v in facts.costed.variants[node.name]:
        operands = [t for t in facts.reads[s] if t not in v.streamed]
        made = [t for t in facts.makes[s] if t not in v.streamed]
        whole = node.outputs[:1] == tuple(made[:1])
        overwritten = next((t for t in facts.in_place[s] if whole and t in operands), None)
        kept = [t for t in (*operands, *made, *pinned) if t != overwritten]
        parts = [(t, facts.size[t]) for t in kept]
        if v.workspace_bytes:
            parts.append((WORKSPACE, aligned(v.workspace_bytes)))
        floors.append(Floor(sum(n for _, n in parts), node.name, tuple(parts), True))
    return min(floors, key=lambda f: f.arena_bytes)


def _lowest_peak(costed: CostedGraph, depth: int, time_limit_s: float) -> Floor:
    free = replace(costed, budget=Budget())
    found = [s for make in BASELINES.values() if (s := make(free)) is not None]
    outcome = solve(free, depth, time_limit_s, gap=0.0, objective="peak")
    if outcome.schedule is not None:
        found.append(outcome.schedule)
    floors = [_peak(s) for s in found]
    best = min(floors, key=lambda f: f.arena_bytes)
    exact = outcome.bound is not None and best.arena_bytes <= outcome.bound + ALIGN / 2
    return replace(best, exact=exact)


def _peak(schedule: Schedule) -> Floor:
    verdict = check(schedule)
    ran = [a.node for a in schedule.actions[: verdict.peak_action + 1] if isinstance(a, Compute)]
    following = [a.node for a in schedule.actions[verdict.peak_action + 1 :] if isinstance(a, Compute)]
    node = next(iter((*reversed(ran), *following)), "")
    return Floor(verdict.peak_bytes, node, verdict.at_peak, exact=False)


def keep_all_bytes(costed: CostedGraph) -> int:
    """Arena in which everything stays until its last use: more buys nothing."""
    schedule = keep_all(replace(costed, budget=Budget()))
    assert schedule is not None  # there is no budget to exceed
    return check(schedule).peak_bytes
