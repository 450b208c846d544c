"""Give each node its op and its shapes. In: a Source and shapes of its inputs. Out: a Typed graph.

One walk does it, since each step needs the others: an op infers its shapes; a Shape of a known shape
is a constant; what follows from constants is folded; an If on a constant is its branch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from poetgen.errors import ModelError
from poetgen.graph import NameTable
from poetgen.onnx_import.fold import FOLDABLE, check_inputs, check_node, evaluate
from poetgen.onnx_import.raw import (
    Constant,
    RawGraph,
    RawNode,
    Source,
    reads,
    shorten,
    sort_nodes,
)
from poetgen.op import Array, Dtype, Op, Spec
from poetgen.ops import by_onnx

FOREIGN = {("com.microsoft", "Gelu")}
"""Ops of other domains that mean what ONNX's own op of that name means."""

SHAPE_OF_OUTPUT_0_ONLY = frozenset({"BatchNormalization"})
"""Ops whose further ONNX outputs are no tensors here: running statistics change in place."""


@dataclass
class NodeView:
    """What ``Op.from_onnx`` sees of a node; see ``poetgen.op.OnnxNode``."""

    raw: RawNode
    opset: int
    inputs: tuple[Spec | None, ...]
    constants: tuple[Array | None, ...]
    read: set[str] = field(default_factory=set)
    op_type: str = field(init=False)
    output_count: int = field(init=False)
    """Outputs that the file names, used or not."""

    def __post_init__(self) -> None:
        self.op_type = self.raw.op_type
        self.output_count = max((k + 1 for k, o in enumerate(self.raw.outputs) if o), default=0)

    def take(self, attribute: str, default: Any) -> Any:
        """The attribute's value, marked as read; lists come as tuples, tensors as arrays."""
        self.read.add(attribute)
        return self.raw.attributes.get(attribute, default)

    def refuse(self, why: str, hint: str = "") -> ModelError:
        """The error that names this node, its op and opset."""
        return ModelError(f"{self.raw.label} (opset {self.opset}): {why}", hint=hint)

    def unread(self) -> tuple[str, ...]:
        """Attributes of the file that nobody asked for."""
        return tuple(a for a in self.raw.attributes if a not in self.read)


@dataclass(frozen=True, eq=False)
class TypedNode:
    """A node, what it does, and the shapes of its operands."""

    raw: RawNode
    op: Op | None
    """None: no op of poetgen does this; ``why_not`` says so, unless a rewrite takes the node in."""
    operands: tuple[int, ...]
    """Which of the file's inputs are read at run time."""
    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]
    why_not: ModelError | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the operands."""
        return tuple(self.raw.inputs[i] for i in self.operands)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs that this node makes as tensors; "" where the file names none."""
        only_first = self.raw.op_type in SHAPE_OF_OUTPUT_0_ONLY
        names = self.raw.outputs[:1] if only_first else self.raw.outputs
        return tuple(names[k] if k < len(names) else "" for k in range(len(self.out_specs)))


@dataclass(frozen=True, eq=False)
class TypedGraph:
    """All of a model's nodes with shapes, in the order in which they run."""

    opset: int
    nodes: tuple[TypedNode, ...]
    specs: Mapping[str, Spec]
    constants: Mapping[str, Constant]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    notes: tuple[str, ...]

    def pruned(self) -> TypedGraph:
        """Without what no output needs."""
        needed = set(self.outputs)
        kept: list[TypedNode] = []
        for node in reversed(self.nodes):
            if needed & set(node.outputs):
                needed |= set(node.inputs)
                kept.append(node)
        return replace(self, nodes=tuple(reversed(kept)))


def spec_of(array: Array) -> Spec:
    """How an op sees a constant; types that cannot be operands are refused when one is."""
    dtype: Dtype = "f32"
    if array.dtype == np.bool_:
        dtype = "u8"
    elif array.dtype.kind in "iu":
        dtype = "i32"
    return Spec(tuple(int(d) for d in array.shape), dtype)


def is_weight(name: str, constants: Mapping[str, Constant], readers: Mapping[str, int]) -> bool:
    """May this constant be trained, so that folding it away would lose a parameter?

    An initializer may; a Constant node's values only where several nodes share them, since folding
    would then make several parameters of one.
    """
    constant = constants[name]
    if constant.array.dtype != np.float32 or constant.array.size <= 1:
        return False
    return constant.origin == "initializer" or readers.get(name, 0) > 1


def make_node(
    raw: RawNode, specs: Mapping[str, Spec], constants: Mapping[str, Constant], opset: int
) -> TypedNode:
    """The op of a node and its shapes. Raises ModelError in words that name the node."""
    view = NodeView(
        raw,
        opset,
        tuple(specs[i] if i else None for i in raw.inputs),
        tuple(constants[i].array if i in constants else None for i in raw.inputs),
    )
    op_class = by_onnx().get(raw.op_type)
    if op_class is None or (raw.domain and (raw.domain, raw.op_type) not in FOREIGN):
        return _without_op(view, unsupported([raw], opset))
    try:
        try:
            op, operands = op_class.from_onnx(view)
        except ValueError as error:
            raise view.refuse(str(error)) from error
        if unread := view.unread():
            raise view.refuse(
                f"attribute {unread[0]!r} = {raw.attributes[unread[0]]!r} is not understood",
                hint="poetgen refuses what it does not read; export the model again without it",
            )
        in_specs = tuple(_spec(view, i) for i in operands)
        try:
            out_specs = op.infer(*in_specs)
        except ValueError as error:
            raise view.refuse(f"{error}; {_operands(view)}") from error
        return TypedNode(raw, op, operands, in_specs, out_specs)
    except ModelError as error:
        if raw.op_type in _RULES:
            return _without_op(view, error)
        raise


def _spec(view: NodeView, index: int) -> Spec:
    spec = view.inputs[index] if index < len(view.inputs) else None
    if spec is None:
        raise view.refuse(f"input {index} is missing", hint="export the model again")
    return spec


def _operands(view: NodeView) -> str:
    parts = [
        f"{shorten(n)} {list(s.shape)}"
        for n, s in zip(view.raw.inputs, view.inputs, strict=True)
        if s is not None
    ]
    return f"inputs: {', '.join(parts)}"


def _without_op(view: NodeView, why_not: ModelError) -> TypedNode:
    """Shapes of a node that has no op of its own but may be part of something that has one."""
    rule = _RULES.get(view.raw.op_type)
    if rule is None or view.raw.domain:
        raise why_not
    check_node(view.raw, view.opset)
    operands = tuple(i for i, s in enumerate(view.inputs) if s is not None)
    in_specs = tuple(_spec(view, i) for i in operands)
    try:
        shape = rule(view, *(s.shape for s in in_specs))
    except (ValueError, IndexError, TypeError) as error:
        raise why_not from error
    return TypedNode(view.raw, None, operands, in_specs, (Spec(shape, in_specs[0].dtype),), why_not)


Shape = tuple[int, ...]


def _broadcast(_: NodeView, *shapes: Shape) -> Shape:
    rank = max(len(s) for s in shapes)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    out = []
    for column in zip(*padded, strict=True):
        sizes = {n for n in column if n != 1}
        if len(sizes) > 1:
            raise ValueError("shapes do not broadcast")
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


def _transpose(view: NodeView, x: Shape) -> Shape:
    perm = view.take("perm", tuple(reversed(range(len(x)))))
    if sorted(perm) != list(range(len(x))):
        raise ValueError("perm is no permutation")
    return tuple(x[p] for p in perm)


def _matmul(view: NodeView, a: Shape, b: Shape) -> Shape:
    rows = a if len(a) > 1 else (1, *a)
    columns = b if len(b) > 1 else (*b, 1)
    if rows[-1] != columns[-2]:
        raise ValueError("inner sizes differ")
    batch = _broadcast(view, rows[:-2], columns[:-2]) if len(rows) + len(columns) > 4 else ()
    return batch + rows[-2:-1] * (len(a) > 1) + columns[-1:] * (len(b) > 1)


_RULES: dict[str, Callable[..., Shape]] = {
    "MatMul": _matmul,
    "Transpose": _transpose,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Erf", "Sqrt", "Tanh"), _broadcast),
}
"""Shapes of ops that a rewrite may take into another one (``rewrite.py``)."""

_HINTS: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset({"LSTM", "GRU", "RNN"}),
        "poetgen cannot run recurrent ops, not even frozen: export what follows as a model of its "
        "own, feed it the recurrent part's outputs, and train that",
    ),
    (
        frozenset({"Loop", "Scan", "If", "SequenceAt", "SequenceConstruct", "ConcatFromSequence"}),
        "poetgen runs graphs without control flow: export with fixed shapes, so that the exporter unrolls it",
    ),
    (
        frozenset({"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul"}),
        "poetgen trains in float32: export the model before it is quantized",
    ),
)


def unsupported(nodes: Sequence[RawNode], opset: int) -> ModelError:
    """The error for nodes that no op of poetgen does."""
    first = nodes[0]
    kinds: dict[str, int] = {}
    for node in nodes:
        kinds[node.kind] = kinds.get(node.kind, 0) + 1
    others = [f"{k} ({n})" if n > 1 else k for k, n in kinds.items() if k != first.kind]
    more = f"; nor are {', '.join(others)}" if others else ""
    same = kinds[first.kind] - 1
    also = f" and {same} more" if same else ""
    hint = next((h for ops, h in _HINTS if first.op_type in ops), "")
    if not hint:
        hint = (
            f"supported: {', '.join(sorted(by_onnx()))}. The part of the model after this node can be "
            "exported and trained on its own"
        )
    if first.domain:
        hint = f"ops of domain {first.domain!r} are not ONNX's own: export without them"
    return ModelError(
        f"op {first.kind} is not supported (node {first.short}{also}, opset {opset}){more}",
        hint=hint,
    )


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
    return node.op_type in FOLDABLE | by_onnx().keys() | _RULES.keys() | {"If"}


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


_CAST_TO: dict[int, Dtype] = {1: "f32", 5: "i32", 6: "i32", 7: "i32", 3: "i32", 2: "i32"}
"""TensorProto types that are the same bytes here: every integer tensor at run time is int32."""


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
