"""Nodes with ops and shapes: what ``Op.from_onnx`` sees, what it gives, and what to say if it cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from poetgen.errors import ModelError
from poetgen.onnx_import.fold import check_node
from poetgen.onnx_import.raw import Constant, RawNode, shorten
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
        if raw.op_type in SHAPE_RULES:
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
    rule = SHAPE_RULES.get(view.raw.op_type)
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


SHAPE_RULES: dict[str, Callable[..., Shape]] = {
    "MatMul": _matmul,
    "Transpose": _transpose,
    **dict.fromkeys("Add Sub Mul Div Pow Erf Sqrt Tanh Sum Max Min".split(), _broadcast),
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
