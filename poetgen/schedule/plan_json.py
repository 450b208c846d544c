"""Schedules as text, for ``plan -o`` and ``generate --plan``.

A stored plan is for one graph, board, budget and set of costs; another one is refused, naming what
differs, and what it says is replayed by the judge.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from poetgen.cost import CostedGraph
from poetgen.errors import DataError, UsageError
from poetgen.schedule.actions import Action, Compute, Free, Move, PageIn, PageOut, Schedule, Solved
from poetgen.schedule.check import check

FORMAT = 1
_VERBS: dict[str, type[Free | PageOut | PageIn | Move]] = {
    "free": Free,
    "page_out": PageOut,
    "page_in": PageIn,
    "move": Move,
}


def to_json(schedule: Schedule) -> str:
    """A schedule as JSON, one action a line; without the solver's seconds, so that equal plans are equal."""
    head = {
        "format": FORMAT,
        **_made_for(schedule.costed),
        "strategy": schedule.strategy,
        "resident": list(schedule.resident),
        "solved": {
            "status": schedule.solved.status,
            "energy_j": schedule.solved.energy_j,
            "bound_j": schedule.solved.bound_j,
            "depth": schedule.solved.depth,
            "solver": schedule.solved.solver,
            "stopped_by": schedule.solved.stopped_by,
        },
    }
    lines = json.dumps(head, indent=1)[:-2]
    actions = ",\n".join(f"  {json.dumps(_action_json(a))}" for a in schedule.actions)
    return f'{lines},\n "actions": [\n{actions}\n ]\n}}\n'


def from_json(text: str, costed: CostedGraph) -> Schedule:
    """The schedule that to_json wrote, for the same graph.

    Raises:
        DataError: it is no stored plan.
        UsageError: it is one for another model, board or budget.
        BrokenSchedule: it is no legal schedule of this graph.
    """
    try:
        stored = json.loads(text)
        if not isinstance(stored, dict) or stored["format"] != FORMAT:
            raise ValueError("its format is another one")
        for key, mine in _made_for(costed).items():
            if stored[key] != mine:
                raise _another(key, stored[key], mine)
        actions = tuple(_action(a) for a in stored["actions"])
        resident = tuple(_text(t) for t in stored["resident"])
        solved = _solved(stored["solved"])
        strategy = _text(stored["strategy"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DataError(f"this is no stored plan: {why}", hint="make one with `poetgen plan -o`") from error
    schedule = Schedule(costed, actions, resident, solved, strategy)
    check(schedule)
    return schedule


def graph_sha256(costed: CostedGraph) -> str:
    """What a schedule depends on: nodes in order, tensors, hazards."""
    graph = costed.training
    lines = [f"{n.name} {n.op!r} {n.inputs} {n.outputs}" for n in graph.nodes]
    lines += [f"{t.name} {t.spec} {t.kind}" for t in graph.tensors.values()]
    lines += [f"{h.reader} {h.update}" for h in graph.hazards]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def costs_sha256(costed: CostedGraph) -> str:
    """What each node and page costs."""
    lines = [f"{n.name} {costed.variants[n.name]}" for n in costed.training.nodes]
    lines += [f"{t} {costed.pages[t]}" for t in sorted(costed.pages)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _made_for(costed: CostedGraph) -> dict[str, Any]:
    return {
        "model_sha256": costed.training.model.sha256,
        "board": costed.board.name,
        "ram_bytes": costed.budget.ram_bytes,
        "deadline_s": costed.budget.time_s,
        "static_bytes": costed.static_bytes,
        "graph_sha256": graph_sha256(costed),
        "costs_sha256": costs_sha256(costed),
    }


_MEANING = {
    "model_sha256": "another model",
    "board": "another board",
    "ram_bytes": "another --ram",
    "deadline_s": "another --deadline",
    "static_bytes": "another size of buffers",
    "graph_sha256": "another training graph (loss, optimizer, batch or trained layers)",
    "costs_sha256": "other costs: the board file has changed since",
}


def _another(key: str, theirs: object, mine: object) -> UsageError:
    hashes = key.endswith("sha256")
    numbers = "" if hashes else f": {theirs}, not {mine}"
    return UsageError(
        f"the stored plan is for {_MEANING[key]}{numbers}",
        hint="plan again, or give the options that it was made with",
    )


def _action_json(action: Action) -> list[Any]:
    if isinstance(action, Compute):
        more: dict[str, Any] = {"variant": action.variant} if action.variant else {}
        if action.in_place is not None:
            more["in_place"] = action.in_place
        return ["compute", action.node, more] if more else ["compute", action.node]
    verb = next(v for v, kind in _VERBS.items() if type(action) is kind)
    return [verb, action.tensor]


def _action(stored: Any) -> Action:
    verb, what, *more = stored
    what = _text(what)
    if verb == "compute":
        options = more[0] if more else {}
        if len(more) > 1 or not set(options) <= {"variant", "in_place"}:
            raise ValueError(f"action {stored} is not known")
        variant, in_place = options.get("variant", 0), options.get("in_place")
        if isinstance(variant, bool) or not isinstance(variant, int):
            raise ValueError(f"action {stored} names no variant")
        return Compute(what, variant, None if in_place is None else _text(in_place))
    if verb not in _VERBS or more:
        raise ValueError(f"action {stored} is not known")
    return _VERBS[verb](what)


def _solved(stored: Any) -> Solved:
    solved = Solved(solve_cpu_s=0.0, **stored)
    numbers = (solved.energy_j, *(() if solved.bound_j is None else (solved.bound_j,)))
    if not all(isinstance(n, int | float) for n in numbers) or not isinstance(solved.depth, int):
        raise ValueError("what it says about its optimality is not in numbers")
    return solved


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no name")
    return value
