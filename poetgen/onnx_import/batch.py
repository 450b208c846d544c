"""The batch: bind what the file leaves open, or carry a fixed batch over to another size.

PyTorch's default export fixes the batch, often at 1, and writes it into the targets of Reshapes.
Such a file may run at another size if each tensor provably keeps the samples apart, one after the
other along one axis. ``follow`` walks the graph with that claim, op by op, and refuses where it ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from poetgen.errors import ModelError, UsageError
from poetgen.onnx_import.node import TypedGraph, TypedNode
from poetgen.onnx_import.raw import Dim, RawInput, Source, shorten
from poetgen.op import Dtype, Spec

Shape = tuple[int, ...]

_INPUT_TYPES: dict[str, Dtype] = {
    "float32": "f32",
    **dict.fromkeys(("int64", "int32", "int16", "int8", "uint16", "uint8"), "i32"),
}


@dataclass(frozen=True)
class Binding:
    """Shapes of the inputs, and where a fixed batch has to move from one size to another."""

    specs: Mapping[str, Spec]
    fixed_batch: int | None
    """The file's own batch, where it is fixed and not what the user asks for."""
    notes: tuple[str, ...]

    def moved(self, old: int, new: int) -> Mapping[str, Spec]:
        """The inputs whose leading axis is the old batch, with the new one."""
        return {
            name: Spec((new, *s.shape[1:]), s.dtype) if s.shape[:1] == (old,) else s
            for name, s in self.specs.items()
        }


def bind(source: Source, batch: int | None) -> Binding:
    """Shapes of the graph's inputs with every open dimension bound."""
    if batch is not None and batch < 1:
        raise UsageError(f"a batch of {batch} is no batch", hint="--batch takes 1 or more")
    inputs = source.graph.inputs
    leading = {i.dims[0] for i in inputs if i.dims and not isinstance(i.dims[0], int)}
    symbols: dict[Dim, int] = dict.fromkeys(leading, batch or 1)
    specs = {i.name: _spec(i, symbols) for i in inputs}
    notes = []
    fixed = next((i.dims[0] for i in inputs if i.dims and isinstance(i.dims[0], int)), None)
    if leading and batch is None:
        open_ = ", ".join(sorted(shorten(s) if isinstance(s, str) else "-1" for s in leading))
        notes.append(f"The batch is open in the file ({open_}) and bound to 1; --batch N changes it.")
    if leading or batch is None or fixed == batch or not isinstance(fixed, int):
        return Binding(specs, None, tuple(notes))
    return Binding(specs, fixed, tuple(notes))


def _spec(i: RawInput, symbols: Mapping[Dim, int]) -> Spec:
    what = f"graph input {shorten(i.name)}"
    if i.dtype not in _INPUT_TYPES:
        raise ModelError(
            f"{what} is {i.dtype}, which is not supported",
            hint="export the model in float32; integer inputs may be int32 or int64",
        )
    if i.dims is None:
        raise ModelError(f"{what} has no shape", hint="export the model with the shapes of inputs")
    shape = []
    for axis, d in enumerate(i.dims):
        if isinstance(d, int):
            shape.append(d)
        elif d in symbols and (axis == 0 or d is not None):
            shape.append(symbols[d])
        else:
            raise ModelError(
                f"axis {axis} of {what} is open ({'-1' if d is None else d!r}): {_dims(i.dims)}",
                hint="only the leading axis, the batch, may be open; export with fixed sizes",
            )
    if 0 in shape:
        raise ModelError(
            f"{what} has a zero-size dimension: {_dims(i.dims)}",
            hint="export the model with a batch of 1 or more",
        )
    return Spec(tuple(shape), _INPUT_TYPES[i.dtype])


def _dims(dims: tuple[Dim, ...]) -> str:
    return "[" + ", ".join("-1" if d is None else str(d) for d in dims) + "]"


@dataclass(frozen=True)
class Along:
    """A tensor's samples lie one after the other along ``axis``, each ``per_sample`` long there."""

    axis: int
    per_sample: int = 1

    def shape(self, old: Shape, new_batch: int) -> Shape:
        """The shape at another batch."""
        return tuple(self.per_sample * new_batch if a == self.axis else n for a, n in enumerate(old))


class _NotProvenError(Exception):
    """In words: why the samples may mix at a node."""


def follow(graph: TypedGraph, inputs: tuple[str, ...], old: int, new: int) -> dict[str, Shape]:
    """Shapes at the new batch of every tensor that depends on it.

    ``inputs``: those whose leading axis is the batch. Raises ModelError naming the node at which
    the claim "samples lie one after the other along one axis" cannot be proven.
    """
    along: dict[str, Along] = {name: Along(0) for name in inputs}
    for node in graph.nodes:
        if not any(i in along for i in node.inputs):
            continue
        rule = _RULES.get(node.raw.op_type)
        try:
            if rule is None:
                raise _NotProvenError(f"poetgen does not know how {node.raw.op_type} treats it")
            first = rule(node, tuple(along.get(i) for i in node.inputs))
        except _NotProvenError as why:
            raise ModelError(
                f"cannot change the batch from {old} to {new} at {node.raw.label}: {why}",
                hint=f"export the model with a dynamic batch, or at batch {new}",
            ) from why
        for k, (name, spec) in enumerate(zip(node.outputs, node.out_specs, strict=True)):
            if k == 0 or spec.shape == node.out_specs[0].shape:
                along[name] = first
    for name in graph.outputs:
        if along.get(name) != Along(0):
            raise ModelError(
                f"cannot change the batch from {old} to {new}: the leading axis of output "
                f"{shorten(name)} {list(graph.specs[name].shape)} is not the batch",
                hint=f"export the model with a dynamic batch, or at batch {new}",
            )
    return {n: a.shape(graph.specs[n].shape, new) for n, a in along.items() if n}


Rule = Callable[[TypedNode, tuple[Along | None, ...]], Along]


def _first(node: TypedNode, along: tuple[Along | None, ...]) -> Along:
    """The one operand that has the batch must be the first."""
    if along[0] is None or any(along[1:]):
        raise _NotProvenError("an operand other than the first depends on the batch")
    return along[0]


def _elementwise(node: TypedNode, along: tuple[Along | None, ...]) -> Along:
    """Aligned from the right; what has no batch must be broadcast along its axis."""
    out = node.out_specs[0].shape
    found = set()
    for spec, a in zip(node.in_specs, along, strict=True):
        if a is not None:
            found.add(Along(a.axis + len(out) - len(spec.shape), a.per_sample))
    if len(found) > 1:
        raise _NotProvenError("two operands have the batch along different axes")
    (result,) = found
    for spec, a in zip(node.in_specs, along, strict=True):
        axis = result.axis - (len(out) - len(spec.shape))
        if a is None and axis >= 0 and spec.shape[axis] != 1:
            raise _NotProvenError(
                f"an operand of fixed shape {list(spec.shape)} meets the batch in axis {axis}"
            )
    return result


def _spatial(node: TypedNode, along: tuple[Along | None, ...]) -> Along:
    """Convolutions, pools and batch norm go along axis 0 sample by sample."""
    a = _first(node, along)
    if a.axis != 0:
        raise _NotProvenError(f"the batch lies along axis {a.axis} of its input")
    return a


def _gemm(node: TypedNode, along: tuple[Along | None, ...]) -> Along:
    a = _first(node, along[:2])
    trans_a = int(node.raw.attributes.get("transA", 0))
    if a.axis != trans_a:
        raise _NotProvenError("the batch lies along the axis that is summed")
    if len(along) > 2 and along[2] is not None:
        raise _NotProvenError("its bias depends on the batch")
    if len(node.in_specs) > 2:
        c = node.in_specs[2].shape
        if len(c) == 2 and c[0] != 1:
            raise _NotProvenError(f"its bias has the fixed shape {list(c)}")
    return Along(0, a.per_sample)


def _matmul(node: TypedNode, along: tuple[Along | None, ...]) -> Along:
    left, right = (len(s.shape) for s in node.in_specs)
    out = len(node.out_specs[0].shape)
    if min(left, right) == 1 and any(a is not None and r == 1 for a, r in zip(along, (left, right))):
        raise _NotProvenError("the batch lies along the axis that is summed")
    found = set()
    for a, rank, summed in zip(along, (left, right), (left - 1, right - 2), strict=True):
        if a is None:
            continue
        if a.axis == summed:
            raise _NotProvenError("the batch lies along the axis that is summed")
        full = max(left, right)
        found.add(Along(a.axis + full - rank, a.per_sample))
    if len(found) != 1:
        raise _NotProvenError("its operands have the batch along different axes")
    (result,) = found
    if result.axis >= out:
        raise _NotProvenError("the batch is the column of a product")
    for a, spec in zip(along, node.in_specs, strict=True):
        axis = result.axis - (max(left, right) - len(spec.shape))
        stacked = 0 <= axis < len(spec.shape) - 2
        if a is None and stacked and spec.shape[axis] != 1:
            raise _NotProvenError(f"an operand of fixed shape {list(spec.shape)} meets the batch")
    return result


def _reshape(node: TypedNode, along: tuple[Along | None, ...]) -> Along:
    """The samples are contiguous rows before and must be so after."""
    a = _first(node, along)
    old, new = node.in_specs[0].shape, node.out_specs[0].shape
    before = math.prod(old[: a.axis])
    inner = math.prod(old[a.axis + 1 :]) * a.per_sample
    for axis in range(len(new)):
        if math.prod(new[:axis]) != before:
            continue
        rest = math.prod(new[axis + 1 :])
        size = old[a.axis] // a.per_sample
        if inner % rest == 0 and new[axis] == size * (inner // rest):
            return Along(axis, inner // rest)
    raise _NotProvenError(
        f"{list(old)} with the batch in axis {a.axis} becomes {list(new)}, and no axis of that is the batch"
    )


def _transpose(node: TypedNode, along: tuple[Along | None, ...]) -> Along:
    a = _first(node, along)
    rank = len(node.in_specs[0].shape)
    perm = node.raw.attributes.get("perm", tuple(reversed(range(rank))))
    return Along(tuple(perm).index(a.axis), a.per_sample)


def _reduce(node: TypedNode, along: tuple[Along | None, ...]) -> Along:
    """Sizes tell which axes are gone: the batch must not be among them."""
    a = _first(node, along)
    x, y = node.in_specs[0].shape, node.out_specs[0].shape
    axes = getattr(node.op, "axes", None)
    if not axes:
        raise _NotProvenError("it reduces all axes")
    gone = {int(i) % len(x) for i in axes}
    if a.axis in gone:
        raise _NotProvenError("it reduces the batch")
    kept = len(x) == len(y)
    return Along(a.axis if kept else a.axis - sum(g < a.axis for g in gone), a.per_sample)


def _along_axis(node: TypedNode, along: tuple[Along | None, ...]) -> Along:
    """Softmax and its like: the batch is not among the axes that are summed."""
    a = _first(node, along)
    sums = getattr(node.op, "along", node.op)
    axis = getattr(sums, "axis", None)
    if axis is None:
        raise _NotProvenError("its axis is unknown")
    axis = int(axis) % len(node.in_specs[0].shape)
    if axis == a.axis or (getattr(sums, "to_end", True) and axis < a.axis):
        raise _NotProvenError(f"it sums along the batch, axis {a.axis}")
    return a


def _concat(node: TypedNode, along: tuple[Along | None, ...]) -> Along:
    found = set(along)
    if len(found) != 1:
        raise _NotProvenError("some of its operands do not depend on the batch")
    (a,) = found
    assert a is not None
    axis = int(node.raw.attributes.get("axis", 0)) % len(node.out_specs[0].shape)
    if axis == a.axis:
        raise _NotProvenError("it joins along the batch")
    return a


def _same_size(node: TypedNode, along: tuple[Along | None, ...]) -> Along:
    """Slice and Pad: the batch axis must come out as it was."""
    a = _first(node, along)
    x, y = node.in_specs[0].shape, node.out_specs[0].shape
    if len(x) != len(y) or x[a.axis] != y[a.axis]:
        raise _NotProvenError("it changes the batch axis")
    if x[a.axis] == 1 and node.raw.op_type == "Slice":
        starts = getattr(node.op, "axes", ())
        if starts and a.axis in {int(i) % len(x) for i in starts}:
            raise _NotProvenError("it slices the batch axis")
    return a


def _expand(node: TypedNode, along: tuple[Along | None, ...]) -> Along:
    """The batch is not what is repeated."""
    a = _first(node, along)
    x, y = node.in_specs[0].shape, node.out_specs[0].shape
    axis = a.axis + len(y) - len(x)
    if y[axis] != x[a.axis] or x[a.axis] == 1:
        raise _NotProvenError("it may repeat the batch")
    return Along(axis, a.per_sample)


def _gather(node: TypedNode, along: tuple[Along | None, ...]) -> Along:
    """Rows of a table by a batch of indices, or a fixed index within each sample."""
    axis = int(node.raw.attributes.get("axis", 0)) % max(1, len(node.in_specs[0].shape))
    if len(along) > 1 and along[1] is not None:
        if along[0] is not None:
            raise _NotProvenError("both its table and its indices depend on the batch")
        return Along(axis + along[1].axis, along[1].per_sample)
    a = along[0]
    assert a is not None
    if axis == a.axis:
        raise _NotProvenError("it picks samples of the batch")
    gone = len(node.in_specs[0].shape) - len(node.out_specs[0].shape)
    return a if a.axis < axis else Along(a.axis - gone, a.per_sample)


_RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "Add Sub Mul Div Pow Relu LeakyRelu PRelu Sigmoid HardSigmoid Tanh Erf Sqrt Exp Log "
            "Neg Abs Clip Gelu Dropout Identity Cast Max Min Sum Where Reciprocal Equal Softplus Elu "
            "HardSwish Less LessOrEqual Greater GreaterOrEqual Not And Or"
        ).split(),
        _elementwise,
    ),
    **dict.fromkeys(
        (
            "Conv ConvTranspose MaxPool AveragePool GlobalAveragePool GlobalMaxPool "
            "BatchNormalization LRN InstanceNormalization"
        ).split(),
        _spatial,
    ),
    **dict.fromkeys("Reshape Flatten Squeeze Unsqueeze".split(), _reshape),
    **dict.fromkeys("ReduceMean ReduceSum ReduceMax ReduceMin".split(), _reduce),
    **dict.fromkeys("Softmax LogSoftmax LayerNormalization".split(), _along_axis),
    **dict.fromkeys("Slice Pad Split".split(), _same_size),
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Transpose": _transpose,
    "Concat": _concat,
    "Expand": _expand,
    "Gather": _gather,
}
