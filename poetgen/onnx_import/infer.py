"""Give each node its op and its shapes. In: a Source and shapes of its inputs. Out: a Typed graph.

One walk does it, since each step needs the others: an op infers its shapes; a Shape of a known shape
is a constant; what follows from constants is folded; an If on a constant is its branch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from poetgen.errors import ModelError
from poetgen.graph import NameTable
from poetgen.onnx_import.fold import FOLDABLE, check_inputs, check_node, evaluate
from poetgen.onnx_import.node import (
    FOREIGN,
    SHAPE_RULES,
    Shape,
    TypedGraph,
    TypedNode,
    make_node,
    spec_of,
    unsupported,
)
from poetgen.onnx_import.raw import (
    Constant,
    RawGraph,
    RawNode,
    Source,
    reads,
    shorten,
    sort_nodes,
)
from poetgen.op import Array, Dtype, Spec
from poetgen.ops import by_onnx


def is_weight(name: str, constants: Mapping[str, Constant], readers: Mapping[str, int]) -> bool:
    """May this constant be trained, so that folding it away would lose a parameter?

    An initializer may; a Constant node's values only where several nodes share them, since folding
    would then make several parameters of one.
    """
    constant = constants[name]
    if constant.array.dtype != np.float32 or constant.array.size <= 1:
        return False
    return constant.origin == "initializer" or readers.get(name, 0) > 1


def live_nodes(graph: RawGraph, outputs: Iterable[str]) -> tuple[RawNode, ...]:
    """Nodes that the outputs need, producers first."""
    needed = set(outputs)
    kept: list[RawNode] = []
    for node in reversed(sort_nodes(graph)):
        if needed & set(node.outputs):
            needed |= set(reads(node))
            kept.append(node)
    return tuple(reversed(kept))


@dataclass
class _Walk:
    """The state of the one walk over a graph."""

    opset: int
    specs: dict[str, Spec]
    constants: dict[str, Constant]
    readers: dict[str, int]
    made_by: dict[str, RawNode]
    names: NameTable
    notes: list[str]
    targets: Mapping[str, Shape]
    outputs: tuple[str, ...]
    alias: dict[str, str] = field(default_factory=dict)
    nodes: list[TypedNode] = field(default_factory=list)
    todo: deque[RawNode] = field(default_factory=deque)


def type_graph(
    source: Source,
    input_specs: Mapping[str, Spec],
    outputs: tuple[str, ...],
    targets: Mapping[str, Shape] | None = None,
) -> TypedGraph:
    """See the module's docstring. ``targets``: shapes that Reshape outputs must have instead."""
    graph = source.graph
    live = live_nodes(graph, outputs)
    if missing := [n for n in live if not _may_work(n)]:
        raise unsupported(missing, source.opset)
    readers: dict[str, int] = {}
    for node in live:
        for name in reads(node):
            readers[name] = readers.get(name, 0) + 1
    specs = dict(input_specs)
    specs |= {name: spec_of(c.array) for name, c in graph.constants.items()}
    names = NameTable(set(specs) | {o for n in graph.nodes for o in n.outputs})
    walk = _Walk(
        source.opset,
        specs,
        dict(graph.constants),
        readers,
        {o: n for n in graph.nodes for o in n.outputs},
        names,
        [],
        targets or {},
        outputs,
    )
    walk.todo.extend(live)
    while walk.todo:
        _visit(walk, walk.todo.popleft())
    for name in outputs:
        if name not in walk.specs:
            maker = walk.made_by[name]
            raise ModelError(
                f"graph output {shorten(name)} is output {maker.outputs.index(name)} of {maker.label}, "
                "which poetgen does not make",
                hint="choose another one with --output",
            )
    return TypedGraph(
        source.opset,
        tuple(walk.nodes),
        walk.specs,
        walk.constants,
        tuple(i.name for i in graph.inputs),
        outputs,
        tuple(walk.notes),
    ).pruned()


def _may_work(node: RawNode) -> bool:
    if node.domain:
        return (node.domain, node.op_type) in FOREIGN
    return node.op_type in FOLDABLE | by_onnx().keys() | SHAPE_RULES.keys() | {"If"}


def _visit(walk: _Walk, node: RawNode) -> None:
    node = _resolve(walk, node)
    check_inputs(node, walk.opset)
    if node.op_type == "If" and not node.domain:
        _visit_if(walk, node)
        return
    if node.op_type in ("Shape", "Size") and not node.domain:
        _store(walk, node, (_measured(node, walk.specs[node.inputs[0]].shape, walk.opset),))
        return
    if _folds(walk, node):
        arrays = [walk.constants[i].array if i else None for i in node.inputs]
        _store(walk, node, evaluate(node, arrays, walk.opset))
        return
    node = _simplified(walk, node)
    if node.op_type == "Identity" and node.outputs[0] not in walk.outputs:
        check_node(node, walk.opset)
        walk.alias[node.outputs[0]] = node.inputs[0]
        return
    typed = make_node(node, walk.specs, walk.constants, walk.opset)
    for name, spec in zip(typed.outputs, typed.out_specs, strict=True):
        if name:
            walk.specs[name] = spec
    walk.nodes.append(typed)


def _resolve(walk: _Walk, node: RawNode) -> RawNode:
    """The node with names behind aliases; raises where it reads what poetgen does not make."""
    inputs = tuple(walk.alias.get(i, i) for i in node.inputs)
    for name in inputs:
        if name and name not in walk.specs:
            maker = walk.made_by[name]
            raise ModelError(
                f"{node.label} reads output {maker.outputs.index(name)} ({shorten(name)}) of "
                f"{maker.label}, which poetgen does not make",
                hint="only the first output of this op is supported",
            )
    return replace(node, inputs=inputs)


def _measured(node: RawNode, shape: Shape, opset: int) -> Array:
    check_node(node, opset)
    if node.op_type == "Size":
        return np.array(Spec(shape).size, np.int64)
    start, end = node.attributes.get("start", 0), node.attributes.get("end", len(shape))
    return np.array(shape[start:end], np.int64)


def _folds(walk: _Walk, node: RawNode) -> bool:
    if node.op_type not in FOLDABLE or node.domain:
        return False
    given = [i for i in node.inputs if i]
    return all(i in walk.constants and not is_weight(i, walk.constants, walk.readers) for i in given)


def _store(walk: _Walk, node: RawNode, arrays: Sequence[Array]) -> None:
    for name, array in zip(node.outputs, arrays, strict=True):
        if name:
            walk.constants[name] = Constant(array, "folded")
            walk.specs[name] = spec_of(array)


_CAST_TO: dict[int, Dtype] = {1: "f32", 6: "i32", 7: "i32"}
"""TensorProto types that are the same bytes here: int64 tensors are int32 at run time."""


def _simplified(walk: _Walk, node: RawNode) -> RawNode:
    """Another node that does the same: casts to the own type, empty operands of a Concat, targets."""
    node = _without_idle_outputs(walk, node)
    if node.domain:
        return node
    if node.op_type == "Cast" and walk.specs[node.inputs[0]].dtype == _CAST_TO.get(
        node.attributes.get("to", 0)
    ):
        check_node(node, walk.opset)
        return replace(node, op_type="Identity", attributes={})
    if node.op_type == "Concat":
        check_node(node, walk.opset)
        full = tuple(i for i in node.inputs if walk.specs[i].size)
        if len(full) < len(node.inputs):
            node = replace(node, inputs=full)
        if len(full) == 1:
            return replace(node, op_type="Identity", attributes={})
    if node.outputs[0] in walk.targets:
        name = walk.names.unique(f"{node.outputs[0]}/shape")
        array = np.array(walk.targets[node.outputs[0]], np.int64)
        _store(walk, replace(node, outputs=(name,)), (array,))
        return replace(node, inputs=(node.inputs[0], name, *node.inputs[2:]))
    return node


def _without_idle_outputs(walk: _Walk, node: RawNode) -> RawNode:
    """The node without trailing outputs that nobody reads.

    Batch norm keeps them: below opset 14, five outputs are what says that it is in training form.
    """
    if node.op_type == "BatchNormalization":
        return node
    outputs = list(node.outputs)
    while len(outputs) > 1 and outputs[-1] not in walk.readers and outputs[-1] not in walk.outputs:
        outputs.pop()
    return replace(node, outputs=tuple(outputs))


def _visit_if(walk: _Walk, node: RawNode) -> None:
    condition = walk.constants.get(node.inputs[0])
    if condition is None:
        raise ModelError(
            f"{node.label} (opset {walk.opset}): its condition {shorten(node.inputs[0])} is known "
            "only at run time",
            hint="export with fixed shapes and without data-dependent branches",
        )
    taken = "then_branch" if bool(condition.array.ravel()[0]) else "else_branch"
    body = node.attributes.get(taken)
    if not isinstance(body, RawGraph) or len(body.outputs) != len(node.outputs):
        raise ModelError(f"{node.label} has no usable {taken}", hint="export the model again")
    walk.notes.append(f"{node.label} has a constant condition: its {taken} is inlined.")
    walk.todo.extendleft(reversed(_inlined(walk, node, body)))


def _inlined(walk: _Walk, node: RawNode, body: RawGraph) -> list[RawNode]:
    """The body's nodes under names that are free in the outer graph."""
    rename: dict[str, str] = {}
    inner = set(body.constants) | {o for n in body.nodes for o in n.outputs if o}
    made = {o for n in body.nodes for o in n.outputs if o}
    for name, outer in zip(body.outputs, node.outputs, strict=True):
        if name in made and name not in rename:
            rename[name] = outer
    for name in sorted(inner - set(rename)):
        rename[name] = walk.names.unique(name)
    for name, constant in body.constants.items():
        walk.constants[rename[name]] = constant
        walk.specs[rename[name]] = spec_of(constant.array)
    known = frozenset(walk.specs) | frozenset(walk.alias) | frozenset(walk.made_by)
    nodes = [_renamed(n, rename) for n in sort_nodes(body, known - inner)]
    for name, outer in zip(body.outputs, node.outputs, strict=True):
        if rename.get(name, name) != outer:
            source = rename.get(name, name)
            nodes.append(RawNode(node.index, node.name, "Identity", "", (source,), (outer,), {}))
    if missing := [n for n in nodes if not _may_work(n)]:
        raise unsupported(missing, walk.opset)
    for n in nodes:
        walk.made_by |= {o: n for o in n.outputs if o}
        for name in reads(n):
            walk.readers[name] = walk.readers.get(name, 0) + 1
    return nodes


def _renamed(node: RawNode, rename: Mapping[str, str]) -> RawNode:
    attributes = {k: _renamed_value(v, rename) for k, v in node.attributes.items()}
    return replace(
        node,
        inputs=tuple(rename.get(i, i) for i in node.inputs),
        outputs=tuple(rename.get(o, o) for o in node.outputs),
        attributes=attributes,
    )


def _renamed_value(value: Any, rename: Mapping[str, str]) -> Any:
    if not isinstance(value, RawGraph):
        return value
    own = set(value.constants) | {o for n in value.nodes for o in n.outputs}
    outside = {k: v for k, v in rename.items() if k not in own}
    return replace(
        value,
        nodes=tuple(_renamed(n, outside) for n in value.nodes),
        outputs=tuple(outside.get(o, o) for o in value.outputs),
    )
