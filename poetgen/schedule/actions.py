"""The types of a schedule: actions, what is proven about them, and the schedule itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from poetgen.cost import Cost, CostedGraph

Strategy = Literal["milp", "keep_all", "page_all", "recompute_all", "chen_sqrt"]
Status = Literal["optimal", "feasible", "infeasible", "no plan in time", "baseline"]

PROVEN = 1e-6
"""Relative gap at and below which a schedule may be called optimal."""


@dataclass(frozen=True)
class Compute:
    """Run a node as one of its variants; the second run of a node is a recompute.

    ``in_place`` names the operand whose bytes the first output takes; the operand is gone afterwards.
    """

    node: str
    variant: int = 0
    in_place: str | None = None


@dataclass(frozen=True)
class Free:
    """Give up a tensor's bytes."""

    tensor: str


@dataclass(frozen=True)
class PageOut:
    """Copy a resident tensor to the store; it stays resident until it is freed."""

    tensor: str


@dataclass(frozen=True)
class PageIn:
    """Bring a tensor from the store; its landing bytes count from here."""

    tensor: str


@dataclass(frozen=True)
class Move:
    """Move a resident tensor to another address (planned by memory.place); no byte count changes."""

    tensor: str


Action = Compute | Free | PageOut | PageIn | Move


@dataclass(frozen=True)
class Solved:
    """What is known about a schedule's optimality.

    ``energy_j`` is the whole step's, ``bound_j`` a proven lower bound for recompute depth ``depth``
    (None where nothing is proven); ``gap`` = (energy - bound) / energy.
    """

    status: Status
    energy_j: float
    bound_j: float | None
    depth: int
    solve_cpu_s: float
    solver: str
    stopped_by: Literal["gap", "nodes", "time", "none"] = "none"

    @property
    def gap(self) -> float | None:
        """Relative gap, 0 when proven optimal."""
        if self.bound_j is None:
            return None
        return max(0.0, (self.energy_j - self.bound_j) / self.energy_j) if self.energy_j else 0.0


@dataclass(frozen=True, eq=False)
class Schedule:
    """Actions of one training step, and the persistent tensors that are resident between steps.

    ``Schedule(costed, (Compute("conv1"), PageOut("conv1/y"), Free("conv1/y"), ...), ("fc.weight",), solved)``
    """

    costed: CostedGraph
    actions: tuple[Action, ...]
    resident: tuple[str, ...]
    """Persistent tensors in RAM when a step begins and when it ends (home ram if never freed)."""
    solved: Solved
    strategy: str = "milp"


def total(costed: CostedGraph, actions: Iterable[Action]) -> Cost:
    """Seconds and joules of actions one after the other."""
    sum_ = Cost(0.0, 0.0)
    for action in actions:
        if isinstance(action, Compute):
            sum_ += costed.variants[action.node][action.variant].cost
        elif isinstance(action, PageOut):
            sum_ += costed.pages[action.tensor].out
        elif isinstance(action, PageIn):
            sum_ += costed.pages[action.tensor].back
    return sum_
