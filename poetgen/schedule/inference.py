"""Schedule a graph that only runs forward: _infer and _evaluate.

In: its CostedGraph, and the persistent tensors that training keeps in RAM. Out: Schedule. Each other
parameter is paged in for its use; activations are kept until their last use, or paged where the budget
asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from poetgen.cost import CostedGraph
from poetgen.errors import FitError
from poetgen.graph import Node
from poetgen.schedule import Action, Compute, Free, PageIn, PageOut, Schedule, Solved


def plan_forward(costed: CostedGraph, in_ram: Sequence[str]) -> Schedule:
    """The forward schedule: what does not fit is paged out, the tensor needed last first (Belady).

    Raises:
        FitError: one node's operands exceed the budget.
    """
    training = costed.training
    homes = tuple(t.name for t in training.tensors.values() if t.persistent and t.name in set(in_ram))
    budget = costed.arena_budget_bytes
    uses = {t: [k for k, n in enumerate(training.nodes) if t in n.inputs] for t in training.tensors}
    live: dict[str, int] = {t: costed.nbytes(t) for t in homes}
    stored: set[str] = {t.name for t in training.tensors.values() if t.persistent} - set(homes)
    actions: list[Action] = []
    energy = 0.0

    def next_use(tensor: str, after: int) -> int:
        return next((k for k in uses[tensor] if k >= after), len(training.nodes))

    def make_room(need: int, k: int, pinned: set[str]) -> None:
        nonlocal energy
        while budget is not None and sum(live.values()) + need > budget:
            movable = [t for t in live if t not in pinned and t not in homes]
            if not movable or (costed.board.store is None and not stored.issuperset(movable)):
                raise FitError(
                    f"{training.nodes[k].layer} needs {sum(live.values()) + need} B in inference, "
                    f"the budget leaves {budget} B",
                    hint=f"try --ram {-(-(sum(live.values()) + need + costed.static_bytes) // 1024)}KiB",
                )
            victim = max(movable, key=lambda t: (next_use(t, k), live[t], t))
            if victim not in stored:
                actions.append(PageOut(victim))
                energy += costed.pages[victim].out.energy_j
                stored.add(victim)
            actions.append(Free(victim))
            del live[victim]

    for k, node in enumerate(training.nodes):
        operands = [t for t in node.reads if training.tensors[t].in_arena]
        outputs = [t for t in node.outputs if training.tensors[t].in_arena]
        pinned = {*operands, *outputs}
        for t in operands:
            if t not in live:
                make_room(costed.nbytes(t), k, pinned)
                actions.append(PageIn(t))
                energy += costed.pages[t].back.energy_j
                live[t] = costed.nbytes(t)
        over = _in_place(costed, node, k, uses, set(homes))
        variant = costed.variants[node.name][0]
        need = sum(costed.nbytes(t) for t in outputs) + -(-variant.workspace_bytes // 8) * 8
        if over is not None:
            need -= costed.nbytes(over)
        make_room(need, k, pinned)
        actions.append(Compute(node.name, 0, over))
        energy += variant.cost.energy_j
        if over is not None:
            del live[over]
        live.update({t: costed.nbytes(t) for t in outputs})
        for t in list(live):
            if t not in homes and next_use(t, k + 1) == len(training.nodes):
                actions.append(Free(t))
                del live[t]
    solved = Solved("baseline", energy, None, 0, 0.0, "forward")
    return Schedule(costed, tuple(actions), homes, solved, "forward")


def _in_place(
    costed: CostedGraph, node: Node, k: int, uses: dict[str, list[int]], homes: set[str]
) -> str | None:
    """An operand that dies here and whose bytes the first output may take."""
    training = costed.training
    if not node.outputs or not training.tensors[node.outputs[0]].in_arena:
        return None
    for index in node.op.in_place:
        t = node.inputs[index]
        dies = max(uses[t]) == k and training.tensors[t].kind == "act" and t not in homes
        if dies and node.inputs.count(t) == 1 and costed.nbytes(t) == costed.nbytes(node.outputs[0]):
            return t
    return None
