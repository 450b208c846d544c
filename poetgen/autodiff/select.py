"""Which parameters can train, and which ones the user's globs choose."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np

from poetgen.errors import UsageError
from poetgen.graph import Model, Node


def trainable(model: Model) -> Mapping[str, str]:
    """Each parameter and why it can or cannot be trained; an empty reason means it can.

    Rule (docs/contract): float32 with more than one element, reaches an output, and is no batch-norm
    statistic.
    """
    reached: set[str] = set(model.outputs)
    for node in reversed(model.nodes):
        if reached & set(node.outputs):
            reached |= set(node.inputs)
    readers: dict[str, list[tuple[Node, int]]] = {p: [] for p in model.parameters}
    for node in model.nodes:
        for index, name in enumerate(node.inputs):
            if name in readers:
                readers[name].append((node, index))
    reasons: dict[str, str] = {}
    for name, array in model.parameters.items():
        if array.dtype != np.float32:
            reasons[name] = f"is {array.dtype}, not float32"
        elif array.size <= 1:
            reasons[name] = "has a single element"
        elif name in model.fixed:
            reasons[name] = model.fixed[name]
        elif name not in reached:
            reasons[name] = "does not reach an output"
        elif all(i in getattr(n.op, "statistics", ()) for n, i in readers[name]):
            reasons[name] = "is a running statistic"
        else:
            reasons[name] = ""
    return reasons


def select(model: Model, train: Sequence[str], freeze: Sequence[str]) -> tuple[str, ...]:
    """Parameters to train: trainable ones that match a ``train`` glob and no ``freeze`` glob.

    Raises UsageError for a glob that matches nothing, with the nearest names.
    """
    can = trainable(model)
    for glob in (*train, *freeze):
        if not any(fnmatchcase(name, glob) for name in can):
            if glob == "*" and not can:
                continue
            near = difflib.get_close_matches(glob.rstrip("*"), can, n=3, cutoff=0.1)
            raise UsageError(
                f"{glob!r} matches none of the {len(can)} parameters of {model.name}",
                hint=f"nearest names: {', '.join(near)}" if near else "",
            )
    chosen = tuple(
        name
        for name, why_not in can.items()
        if not why_not
        and any(fnmatchcase(name, g) for g in train)
        and not any(fnmatchcase(name, g) for g in freeze)
    )
    if not chosen and can:
        named = [n for n in can if any(fnmatchcase(n, g) for g in train)]
        why = "; ".join(f"{n} {can[n]}" for n in named[:3] if can[n]) or "all are frozen"
        raise UsageError(
            f"nothing to train in {model.name}: {why}",
            hint="`poetgen inspect` lists what can train",
        )
    return chosen
