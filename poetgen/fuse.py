"""Merge nodes that share their operands' passes through memory. In: a model's nodes. Out: fewer nodes.

    BatchNormalization (frozen) + Relu          -> BatchNormRelu
    BatchNormalization (frozen) + Add + Relu    -> BatchNormAddRelu
    Add + Relu                                  -> AddRelu

Each element goes through the same scalar operations, so the bits are the same; what lay between them
is never stored, and their gradients are one node each. Only values with a single reader are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from poetgen.graph import Node
from poetgen.op import Op
from poetgen.ops.add import Add
from poetgen.ops.batchnorm import BatchNorm
from poetgen.ops.batchnorm_relu import AddRelu, BatchNormAddRelu, BatchNormRelu
from poetgen.ops.relu import Relu


def fuse_nodes(nodes: Sequence[Node], outputs: Iterable[str]) -> tuple[Node, ...]:
    """The same network in fewer nodes; ``outputs`` are read from outside and stay."""
    merged: dict[str, Node] = {}
    gone: set[str] = set()
    producer = {o: n for n in nodes for o in n.outputs}
    readers: dict[str, int] = dict.fromkeys(outputs, 1)
    for node in nodes:
        for i in node.inputs:
            readers[i] = readers.get(i, 0) + 1
    for relu in nodes:
        if not isinstance(relu.op, Relu):
            continue
        inner = _only(relu.inputs[0], producer, readers, gone)
        if inner is None:
            continue
        if isinstance(inner.op, BatchNorm):
            merged[relu.name] = _merge(BatchNormRelu(inner.op.eps), inner, relu, inner.inputs)
            gone.add(inner.name)
        elif isinstance(inner.op, Add) and inner.in_specs[0] == inner.in_specs[1]:
            gone.add(inner.name)
            merged[relu.name] = _with_shortcut(inner, relu, producer, readers, gone)
    return tuple(merged.get(n.name, n) for n in nodes if n.name not in gone)


def _only(tensor: str, producer: dict[str, Node], readers: dict[str, int], gone: set[str]) -> Node | None:
    """The node whose one output this is and which nobody else reads."""
    node = producer.get(tensor)
    if node is None or node.name in gone or readers[tensor] != 1 or len(node.outputs) != 1:
        return None
    return node


def _with_shortcut(
    add: Node, relu: Node, producer: dict[str, Node], readers: dict[str, int], gone: set[str]
) -> Node:
    for k in range(2):
        norm = _only(add.inputs[k], producer, readers, gone)
        if norm is not None and isinstance(norm.op, BatchNorm):
            gone.add(norm.name)
            shortcut = add.inputs[1 - k]
            fused = replace(norm, in_specs=(*norm.in_specs, add.in_specs[1 - k]))
            return _merge(BatchNormAddRelu(norm.op.eps), fused, relu, (*norm.inputs, shortcut))
    return _merge(AddRelu(), add, relu, add.inputs)


def _merge(op: Op, first: Node, last: Node, inputs: tuple[str, ...]) -> Node:
    """One node with the first's name and operands, and the last's output.

    It stands where the last stood: by then every operand has been made.
    """
    return Node(
        first.name, op, inputs, last.outputs, first.in_specs, last.out_specs, first.phase, first.layer
    )
