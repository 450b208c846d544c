"""Reverse mode: gradient nodes from the loss down, updates, and the order in which all of it runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from poetgen.autodiff.builder import Builder
from poetgen.autodiff.optimizers import Optimizer
from poetgen.errors import ModelError
from poetgen.graph import Hazard, Node, topological
from poetgen.op import Op, Spec, Value
from poetgen.ops import by_onnx


def backward(b: Builder, loss: Value, trained: Sequence[str]) -> dict[str, Value]:
    """Add the gradient nodes; the gradient of each trained parameter that reaches the loss.

    Raises:
        ModelError: a gradient must pass an op that has none; no selected parameter reaches the loss.
    """
    needs = set(trained)
    on_path: set[str] = set()
    forward = list(b.nodes)
    for node in forward:
        if needs & set(node.inputs):
            needs |= set(node.outputs)
            on_path.add(node.name)
    if loss.name not in needs:
        raise ModelError(
            f"the selected parameters do not reach the loss: {', '.join(trained[:3])}",
            hint="`poetgen inspect` says which parameters do",
        )
    gradient: dict[str, Value] = {}
    for node in reversed(forward):
        if node.name not in on_path or node.op.mutates:
            continue
        is_loss = loss.name in node.outputs
        douts = tuple(
            Value(gradient[o].name, s) if o in gradient else None
            for o, s in zip(node.outputs, node.out_specs, strict=True)
        )
        if is_loss or any(douts):
            _differentiate_node(b, node, douts, needs, gradient, forward, trained)
    return {p: gradient[p] for p in trained if p in gradient}


def _differentiate_node(
    b: Builder,
    node: Node,
    douts: tuple[Value | None, ...],
    needs: set[str],
    gradient: dict[str, Value],
    forward: Sequence[Node],
    trained: Sequence[str],
) -> None:
    def emit(op: Op, *inputs: Value) -> tuple[Value, ...]:
        wanted = f"{node.name}/{role(op)}"
        count = len(op.infer(*(v.spec for v in inputs)))
        return b.add(op, inputs, [wanted] * count, wanted, "backward", node.layer)

    first = len(b.nodes)
    values = tuple(Value(n, s) for n, s in zip(node.inputs, node.in_specs, strict=True))
    outputs = tuple(Value(n, s) for n, s in zip(node.outputs, node.out_specs, strict=True))
    try:
        parts = node.op.gradient(emit, values, outputs, douts)
    except NotImplementedError as error:
        below = ", ".join(_below(node, forward, trained)[:3])
        raise ModelError(
            f"a gradient must pass {node.layer!r}, and {type(node.op).__name__} has none",
            hint=f"freeze what lies before it: --freeze GLOB; trained there: {below}",
        ) from error
    b.nodes[first:] = _order_group(b, node, b.nodes[first:], parts)
    for name, part in zip(node.inputs, parts, strict=True):
        if part is None or name not in needs:
            continue
        total = Value(part.name, b.tensors[name].spec)
        if name in gradient:
            total = _sum(b, gradient[name], total, name, node)
        gradient[name] = total


def role(op: Op) -> str:
    """What a gradient op makes, for names: ConvDx -> dx, ChannelSum -> channel_sum."""
    name = type(op).__name__
    if match := re.search(r"D[a-z]$", name):
        return match[0].lower()
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _order_group(b: Builder, node: Node, group: list[Node], parts: Sequence[Value | None]) -> list[Node]:
    """Weights' gradients before dx where dx is the larger: x is dead by then and dx can take its room."""
    of_params = {
        p.name for i, p in zip(node.inputs, parts, strict=True) if p and b.tensors[i].kind == "param"
    }
    weights = [n for n in group if of_params & set(n.outputs)]
    others = [n for n in group if n not in weights]
    if _largest_bytes(others) <= _largest_bytes(weights):
        return group
    return list(topological(weights + others))


def _largest_bytes(nodes: Iterable[Node]) -> int:
    return max((s.nbytes for n in nodes for s in n.out_specs), default=0)


def _sum(b: Builder, first: Value, second: Value, name: str, node: Node) -> Value:
    """A value used twice has the sum of two gradients (docs/arithmetic.md: added, not accumulated)."""
    wanted = f"{name}/grad_sum"
    (total,) = b.add(by_onnx()["Add"](), (first, second), (wanted,), wanted, "backward", node.layer)
    return total


def _below(node: Node, forward: Iterable[Node], trained: Sequence[str]) -> list[str]:
    needed = set(node.inputs)
    for n in reversed(list(forward)):
        if needed & set(n.outputs):
            needed |= set(n.inputs)
    return [p for p in trained if p in needed]


def updates(b: Builder, optimizer: Optimizer, gradients: Mapping[str, Value]) -> None:
    """Add each parameter's update and its states."""
    lr = b.scalar("lr", Spec(()))
    shared = [b.tensor(name, Spec(shape), "state") for name, shape in optimizer.shared.items()]
    for name, gradient in gradients.items():
        spec = b.tensors[name].spec
        states = [b.tensor(b.names.unique(f"{name}/{r}"), spec, "state") for r in optimizer.states]
        operands = (Value(name, spec), Value(gradient.name, spec), lr, *states, *shared)
        b.add(optimizer.update(), operands, (), f"{name}/update", "update", name)
    if (advance := optimizer.advance()) is not None:
        b.add(advance, shared, (), "optimizer/advance", "update", "optimizer")


def hazards_of(nodes: Sequence[Node]) -> tuple[Hazard, ...]:
    """Every (reader, update) pair: the reader may never run after the update."""
    readers: dict[str, list[str]] = {}
    for node in nodes:
        for tensor in node.reads:
            readers.setdefault(tensor, []).append(node.name)
    return tuple(
        Hazard(reader, update.name)
        for update in nodes
        for changed in update.mutates
        for reader in readers.get(changed, [])
        if reader != update.name
    )


def in_running_order(nodes: Sequence[Node], hazards: Sequence[Hazard]) -> tuple[Node, ...]:
    """Each update right after the last of what it waits for: its gradient dies soonest."""
    order = [n for n in nodes if not n.op.mutates]
    for update in (n for n in nodes if n.op.mutates):
        makers = set(update.inputs)
        changed = set(update.mutates)
        last = max(
            (k for k, n in enumerate(order) if makers & set(n.outputs) or changed & set(n.inputs)),
            default=len(order) - 1,
        )
        order.insert(last + 1, update)
    return topological(order, hazards)
