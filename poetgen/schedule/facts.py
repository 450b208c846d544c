"""What every planner asks of a costed graph, worked out once. The judge does not use it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from poetgen.cost import Cost, CostedGraph, aligned
from poetgen.graph import Node
from poetgen.schedule.actions import Action, Compute, Free, PageIn, PageOut


@dataclass(frozen=True, eq=False)
class Facts:
    """A costed graph by numbers: node s is the s-th of the graph's own order, the base order.

    Only tensors of the arena appear: callers' buffers and constants are always readable and take none
    of the budget.
    """

    costed: CostedGraph

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes in base order."""
        return self.costed.training.nodes

    @cached_property
    def index(self) -> dict[str, int]:
        """Node name -> s."""
        return {n.name: s for s, n in enumerate(self.nodes)}

    @cached_property
    def size(self) -> dict[str, int]:
        """Aligned bytes of each tensor of the arena, in the graph's order of tensors."""
        return {
            t.name: self.costed.nbytes(t.name) for t in self.costed.training.tensors.values() if t.in_arena
        }

    @cached_property
    def persistent(self) -> tuple[str, ...]:
        """Tensors that live on between training steps."""
        return tuple(t for t in self.size if self.costed.training.tensors[t].persistent)

    @cached_property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """reads[s]: distinct operands in the arena."""
        return tuple(tuple(t for t in n.reads if t in self.size) for n in self.nodes)

    @cached_property
    def makes(self) -> tuple[tuple[str, ...], ...]:
        """makes[s]: outputs in the arena."""
        return tuple(tuple(t for t in dict.fromkeys(n.outputs) if t in self.size) for n in self.nodes)

    @cached_property
    def changes(self) -> tuple[tuple[str, ...], ...]:
        """changes[s]: persistent tensors that node s changes."""
        return tuple(tuple(dict.fromkeys(n.mutates)) for n in self.nodes)

    @cached_property
    def uses(self) -> dict[str, tuple[int, ...]]:
        """Nodes that read a tensor, ascending."""
        table: dict[str, list[int]] = {t: [] for t in self.size}
        for s, operands in enumerate(self.reads):
            for t in operands:
                table[t].append(s)
        return {t: tuple(v) for t, v in table.items()}

    @cached_property
    def maker(self) -> dict[str, int]:
        """The node that makes a tensor."""
        return {t: s for s, outputs in enumerate(self.makes) for t in outputs}

    @cached_property
    def changed_at(self) -> dict[str, tuple[int, ...]]:
        """Nodes that change a persistent tensor, ascending; absent where training leaves it alone."""
        table: dict[str, list[int]] = {}
        for s, changed in enumerate(self.changes):
            for t in changed:
                table.setdefault(t, []).append(s)
        return {t: tuple(v) for t, v in table.items()}

    @cached_property
    def in_place(self) -> tuple[tuple[str, ...], ...]:
        """in_place[s]: operands whose bytes node s's first output may take if they die there."""
        return tuple(tuple(self._in_place(s)) for s in range(len(self.nodes)))

    def _in_place(self, s: int) -> Iterable[str]:
        node = self.nodes[s]
        if not node.outputs or node.outputs[0] not in self.size:
            return
        op = node.op
        allowed = {*op.in_place, *(() if op.continues is None else (op.continues,))}
        for t in self.reads[s]:
            at = {i for i, name in enumerate(node.inputs) if name == t}
            if (
                at <= allowed
                and not self.costed.training.tensors[t].persistent
                and self.size[t] == self.size[node.outputs[0]]
            ):
                yield t

    @cached_property
    def _barred_by(self) -> dict[int, tuple[int, ...]]:
        """Updates after which node j may not run, beside those that its own operands tell."""
        table: dict[int, list[int]] = {}
        for h in self.costed.training.hazards:
            table.setdefault(self.index[h.reader], []).append(self.index[h.update])
        return {j: tuple(v) for j, v in table.items()}

    def may_rerun(self, j: int, s: int) -> bool:
        """May node j be recomputed just before node s, with the same result as at first?"""
        node = self.nodes[j]
        if not node.op.recomputable or node.mutates:
            return False
        if any(u < s for u in self._barred_by.get(j, ())):
            return False
        return all(not j < u < s for t in node.inputs for u in self.changed_at.get(t, ()))

    def pinned(self, t: str, s: int) -> bool:
        """Must t stay in RAM from node s to its next use: changed, and not readable from the store?"""
        changed = self.changed_at.get(t)
        return changed is not None and changed[0] <= s and any(u > s for u in self.uses[t])

    def next_use(self, t: str, s: int) -> int | None:
        """The first use of t after node s."""
        return next((u for u in self.uses[t] if u > s), None)

    @cached_property
    def cheapest(self) -> tuple[int, ...]:
        """The variant of least energy of each node, among those with all operands in RAM."""
        table = []
        for n in self.nodes:
            variants = self.costed.variants[n.name]
            whole = [v for v in range(len(variants)) if not variants[v].streamed] or [0]
            table.append(min(whole, key=lambda v: (variants[v].cost.energy_j, v)))
        return tuple(table)

    @cached_property
    def workspace(self) -> tuple[int, ...]:
        """Aligned scratch bytes of each node's cheapest variant."""
        return tuple(
            aligned(self.costed.variants[n.name][v].workspace_bytes)
            for n, v in zip(self.nodes, self.cheapest, strict=True)
        )

    @cached_property
    def compute(self) -> Cost:
        """Each node once, as cheaply as it goes: no schedule takes fewer joules or seconds."""
        variants = [self.costed.variants[n.name] for n in self.nodes]
        return Cost(
            sum(min(v.cost.time_s for v in vs) for vs in variants),
            sum(min(v.cost.energy_j for v in vs) for vs in variants),
        )


def store_bytes(costed: CostedGraph, actions: Iterable[Action], resident: Iterable[str]) -> int:
    """Space that a schedule's pages take; a tensor that training changes has two slots."""
    tensors = costed.training.tensors
    changed = {t for n in costed.training.nodes for t in n.mutates}
    homed = {t.name for t in tensors.values() if t.persistent and t.name in costed.pages} - set(resident)
    paged = homed | {a.tensor for a in actions if isinstance(a, PageIn | PageOut)}
    sectors = sum(costed.pages[t].sectors * (2 if t in changed else 1) for t in paged)
    return sectors * costed.board.store.sector_bytes if costed.board.store else 0


def prune(costed: CostedGraph, actions: Iterable[Action]) -> tuple[Action, ...]:
    """Leave out what serves nobody: page-ins and recomputes never read, copies never read back."""
    todo = list(actions)
    tensors = costed.training.tensors
    nodes = costed.training.node
    while True:
        drop: dict[int, Action | None] = {}
        stay: dict[str, int] = {}
        """Tensor -> the page-in or compute that began its stay in RAM."""
        served: set[int] = set()
        again: dict[int, int] = {}
        """Recompute -> how many of its outputs are in RAM."""
        runs: set[str] = set()
        copies: dict[str, int] = {}
        ends: dict[int, list[int]] = {}

        def leave(t: str, k: int) -> None:
            began = stay.pop(t, None)
            if began is None:
                return
            ends.setdefault(began, []).append(k)
            if isinstance(todo[began], PageIn):
                if began not in served:
                    drop[began] = None
                    drop[k] = None
            elif began in again:
                again[began] -= 1
                if not again[began] and began not in served:
                    drop[began] = None
                    drop.update(dict.fromkeys(ends[began]))

        for k, action in enumerate(todo):
            if isinstance(action, Compute):
                node = nodes[action.node]
                for t in node.reads:
                    if t in stay:
                        served.add(stay[t])
                        if isinstance(todo[stay[t]], PageIn):
                            copies.pop(t, None)
                for t in costed.variants[node.name][action.variant].streamed:
                    copies.pop(t, None)
                if action.in_place is not None:
                    leave(action.in_place, k)
                made = [o for o in node.outputs if tensors[o].in_arena]
                stay.update(dict.fromkeys(made, k))
                if node.name in runs:
                    again[k] = len(made)
                runs.add(node.name)
            elif isinstance(action, PageIn):
                stay[action.tensor] = k
            elif isinstance(action, PageOut):
                if not tensors[action.tensor].persistent:
                    copies[action.tensor] = k
                if action.tensor in stay:
                    served.add(stay[action.tensor])
            elif isinstance(action, Free):
                leave(action.tensor, k)
        drop.update(dict.fromkeys(copies.values()))
        if not drop:
            return tuple(todo)
        kept: list[Action] = []
        for k, action in enumerate(todo):
            if k not in drop:
                kept.append(action)
            elif isinstance(action, Compute) and action.in_place is not None:
                kept.append(Free(action.in_place))  # the operand still goes here
        todo = kept
