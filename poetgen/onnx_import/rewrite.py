"""Recognise what exporters take apart. In: a Typed graph. Out: one with fewer and larger nodes.

- MatMul by a matrix, with or without an Add of a bias, is Gemm; more than two axes, or one, go
  through views. A Transpose of the matrix becomes ``transB``.
- A Transpose before or after another MatMul becomes the order in which that walks its axes.
- Sum, Max and Min of any number of operands are chains of pairs.
- Div, Erf, Add, Mul, Mul is Gelu; the nine nodes of a layer normalization are LayerNormalization
  (where poetgen has these ops): one op keeps fewer tensors for the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from poetgen.graph import NameTable
from poetgen.onnx_import.node import TypedGraph, TypedNode, make_node, spec_of
from poetgen.onnx_import.raw import Constant, RawNode
from poetgen.op import Array, Spec
from poetgen.ops import by_onnx
from poetgen.ops.matmul import MatMul, PermutedMatMul
from poetgen.ops.transpose import Transpose


def rewrite(graph: TypedGraph) -> TypedGraph:
    """All rewrites, then what nobody needs any more is dropped."""
    for pattern in (_chains, _layer_norms, _gelus, _linears, _permuted):
        graph = pattern(graph).pruned()
    return graph


class _Editor:
    """A graph under change: replaces groups of nodes at the place of their last one."""

    def __init__(self, graph: TypedGraph) -> None:
        self.graph = graph
        self.specs: dict[str, Spec] = dict(graph.specs)
        self.constants: dict[str, Constant] = dict(graph.constants)
        self.names = NameTable(set(graph.specs))
        self.producer = {o: n for n in graph.nodes for o in n.outputs if o}
        self.readers: dict[str, list[TypedNode]] = {}
        for n in graph.nodes:
            for i in n.inputs:
                self.readers.setdefault(i, []).append(n)
        self.instead: dict[int, list[TypedNode]] = {}
        """By id of the node replaced."""

    def only_reader(self, name: str) -> TypedNode | None:
        """The node that alone reads a tensor; None if there are more, or it is an output."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.graph.outputs else None

    def replace(self, group: Sequence[TypedNode], at: TypedNode, new: Sequence[TypedNode]) -> None:
        """Drop a group; put the new nodes where ``at`` was."""
        for n in group:
            self.instead[id(n)] = []
        self.instead[id(at)] = list(new)

    def constant(self, wanted: str, array: Array) -> str:
        """A new constant's name."""
        name = self.names.unique(wanted)
        self.constants[name] = Constant(array, "folded")
        self.specs[name] = spec_of(array)
        return name

    def node(
        self,
        like: RawNode,
        op_type: str,
        inputs: tuple[str, ...],
        output: str,
        attributes: Mapping[str, Any] | None = None,
    ) -> TypedNode:
        """A new node named after ``like``."""
        raw = RawNode(like.index, like.name, op_type, "", inputs, (output,), attributes or {})
        typed = make_node(raw, self.specs, self.constants, self.graph.opset)
        self.specs[output] = typed.out_specs[0]
        return typed

    def reshape(
        self, like: RawNode, name: str, shape: tuple[int, ...], output: str = ""
    ) -> tuple[list[TypedNode], str]:
        """A view of a tensor, none where it has the shape; the view's name."""
        if self.specs[name].shape == shape and not output:
            return [], name
        output = output or self.names.unique(f"{name}/{'x'.join(map(str, shape)) or 'scalar'}")
        target = self.constant(f"{output}/shape", np.array(shape, np.int64))
        named = replace(like, name=f"{like.name}/view" if like.name else "")
        return [self.node(named, "Reshape", (name, target), output)], output

    def done(self) -> TypedGraph:
        """The changed graph."""
        nodes: list[TypedNode] = []
        for n in self.graph.nodes:
            nodes += self.instead.get(id(n), [n])
        return replace(self.graph, nodes=tuple(nodes), specs=self.specs, constants=self.constants)


def _chains(graph: TypedGraph) -> TypedGraph:
    """Sum, Max, Min of one operand, or of several: the first two, then one more at a time."""
    e = _Editor(graph)
    for node in graph.nodes:
        pair = {"Sum": "Add", "Max": "Max", "Min": "Min"}.get(node.raw.op_type, "")
        if not pair or node.op is not None or node.in_specs[0].dtype != "f32":
            continue
        first, *others = node.inputs
        if not others:
            e.replace((node,), node, [e.node(node.raw, "Identity", (first,), node.outputs[0])])
            continue
        chain: list[TypedNode] = []
        for k, other in enumerate(others, 2):
            last = k == len(node.inputs)
            output = node.outputs[0] if last else e.names.unique(f"{node.outputs[0]}/of_{k}")
            chain.append(e.node(node.raw, pair, (first, other), output))
            first = output
        e.replace((node,), node, chain)
    return e.done()


def _linears(graph: TypedGraph) -> TypedGraph:
    """MatMul by a matrix (+ Add) -> Gemm; Gemm of a transposed matrix -> Gemm with transB."""
    e = _Editor(graph)
    if "Gemm" not in by_onnx():
        return graph
    for node in graph.nodes:
        if node.raw.op_type == "MatMul" and len(node.in_specs[1].shape) <= 2:
            _linear(e, node)
        elif node.raw.op_type == "Gemm" and _transposed(e, node.raw.inputs[1]):
            attributes = dict(node.raw.attributes)
            attributes["transB"] = 1 - int(attributes.get("transB", 0))
            inputs = (node.raw.inputs[0], _transposed(e, node.raw.inputs[1]), *node.raw.inputs[2:])
            e.replace((node,), node, [e.node(node.raw, "Gemm", inputs, node.outputs[0], attributes)])
    return e.done()


def _transposed(e: _Editor, name: str) -> str:
    """What a tensor is the transpose of, as a matrix; "" if it is none."""
    node = e.producer.get(name)
    if node is None or node.raw.op_type != "Transpose" or len(node.in_specs[0].shape) != 2:
        return ""
    return node.inputs[0] if tuple(node.raw.attributes.get("perm", (1, 0))) == (1, 0) else ""


def _linear(e: _Editor, matmul: TypedNode) -> None:
    (a, b), (sa, sb) = matmul.inputs, matmul.in_specs
    if not sa.shape or not sb.shape:
        return
    attributes: dict[str, Any] = {}
    if matrix := _transposed(e, b):
        b, attributes = matrix, {"transB": 1}
    columns = sb.shape[1] if len(sb.shape) == 2 else 1
    rows, out = math.prod(sa.shape[:-1]), matmul.out_specs[0].shape
    last, bias = matmul, ""
    add = e.only_reader(matmul.outputs[0])
    if add is not None and add.raw.op_type == "Add":
        bias = _bias(e, add, matmul.outputs[0], rows, columns)
        last = add if bias else matmul
    new, x = e.reshape(matmul.raw, a, (rows, sa.shape[-1]))
    if len(sb.shape) == 1:
        more, b = e.reshape(matmul.raw, b, (sb.shape[0], 1))
        new += more
    flat = out == (rows, columns)
    y = last.outputs[0] if flat else e.names.unique(f"{last.outputs[0]}/rows")
    new.append(e.node(matmul.raw, "Gemm", (x, b, *([bias] if bias else [])), y, attributes))
    if not flat:
        new += e.reshape(matmul.raw, y, out, last.outputs[0])[0]
    e.replace((matmul, last), last, new)


def _bias(e: _Editor, add: TypedNode, product: str, rows: int, columns: int) -> str:
    """The constant that an Add adds to a product, if Gemm can take it; else ""."""
    others = [i for i in add.inputs if i != product]
    if len(others) != 1 or others[0] not in e.constants:
        return ""
    shape = e.specs[others[0]].shape
    if add.out_specs[0].shape != e.specs[product].shape:
        return ""
    two_axes = len(e.specs[product].shape) == 2
    fits = shape in ((columns,), (1, columns), (1,)) or (two_axes and shape == (rows, columns))
    return others[0] if fits and e.specs[product].shape[-1:] == (columns,) else ""


def _permuted(graph: TypedGraph) -> TypedGraph:
    """Transposes of a stacked MatMul's operands and of its result."""
    e = _Editor(graph)
    for node in graph.nodes:
        if isinstance(node.op, MatMul):
            _absorb_transposes(e, node)
    return e.done()


def _absorb_transposes(e: _Editor, node: TypedNode) -> None:
    (a, perm_a), (b, perm_b) = (_untransposed(e, name) for name in node.inputs)
    last = node
    perm_y: tuple[int, ...] = ()
    after = e.only_reader(node.outputs[0])
    if after is not None and isinstance(after.op, Transpose) and min(len(s.shape) for s in node.in_specs) > 1:
        last, perm_y = after, after.op.perm
    if not (perm_a or perm_b or perm_y):
        return
    op = PermutedMatMul(perm_a, perm_b, perm_y)
    specs = e.specs[a], e.specs[b]
    try:
        made = op.infer(*specs)
    except ValueError:  # more loops than the kernel has
        return
    raw = replace(node.raw, inputs=(a, b), outputs=last.outputs)
    e.replace((node, last), last, [TypedNode(raw, op, (0, 1), specs, made)])


def _untransposed(e: _Editor, name: str) -> tuple[str, tuple[int, ...]]:
    """What a tensor is a transpose of, and how; itself and () if it is none."""
    perm: tuple[int, ...] = ()
    while (node := e.producer.get(name)) is not None and isinstance(node.op, Transpose):
        name = node.inputs[0]
        perm = tuple(node.op.perm[p] for p in perm) if perm else node.op.perm
    return name, perm


@dataclass(frozen=True)
class _Scaled:
    """``x * factor`` as found in the graph, whichever op and order the exporter chose."""

    x: str
    factor: float
    node: TypedNode


def _scalar(e: _Editor, name: str) -> float | None:
    constant = e.constants.get(name)
    if constant is None or constant.array.size != 1 or constant.array.dtype != np.float32:
        return None
    return float(constant.array.ravel()[0])


def _operands(e: _Editor, node: TypedNode | None, op_type: str) -> Iterator[tuple[str, float]]:
    """(tensor, scalar constant) of a node, in either order; Div only as tensor / scalar."""
    if node is None or node.raw.op_type != op_type or len(node.raw.inputs) != 2:
        return
    a, b = node.raw.inputs
    for x, s in ((a, b),) if op_type in ("Div", "Pow") else ((a, b), (b, a)):
        value = _scalar(e, s)
        if value is not None and x not in e.constants:
            yield x, value


def _scaled(e: _Editor, node: TypedNode | None) -> _Scaled | None:
    for x, s in _operands(e, node, "Mul"):
        assert node is not None
        return _Scaled(x, s, node)
    for x, s in _operands(e, node, "Div"):
        assert node is not None
        return _Scaled(x, 1 / s, node) if s else None
    return None


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6)  # constants in the file are float32


def _gelus(graph: TypedGraph) -> TypedGraph:
    """Find x * (1 + erf(x / sqrt 2)) * 0.5, the 0.5 wherever it stands."""
    e = _Editor(graph)
    if "Gelu" not in by_onnx():
        return graph
    for erf in (n for n in graph.nodes if n.raw.op_type == "Erf"):
        scaled = _scaled(e, e.producer.get(erf.inputs[0]))
        one = e.only_reader(erf.outputs[0])
        if scaled is None or not _near(scaled.factor, math.sqrt(0.5)) or one is None:
            continue
        if not any(_near(s, 1.0) for _, s in _operands(e, one, "Add")):
            continue
        found = _gelu_tail(e, scaled.x, one)
        if found is not None:
            members, last = found
            new = e.node(last.raw, "Gelu", (scaled.x,), last.outputs[0])
            e.replace((scaled.node, erf, one, *members), last, [new])
    return e.done()


def _gelu_tail(e: _Editor, x: str, one: TypedNode) -> tuple[tuple[TypedNode, ...], TypedNode] | None:
    """From 1 + erf on: the Muls by x and by a half, in any order."""
    factors, members, at = [x, 0.5], [], one
    while factors:
        mul = e.only_reader(at.outputs[0])
        if mul is None or mul.raw.op_type != "Mul":
            return None
        (other,) = [i for i in mul.raw.inputs if i != at.outputs[0]] or [""]
        half = _scalar(e, other)
        inner = _scaled(e, e.producer.get(other))
        if half is not None and 0.5 in factors and _near(half, 0.5):
            factors.remove(0.5)
        elif other == x and x in factors:
            factors.remove(x)
        elif factors == [x, 0.5] and inner and inner.x == x and _near(inner.factor, 0.5):
            factors = []
            if e.only_reader(inner.node.outputs[0]):
                members.append(inner.node)
        else:
            return None
        members.append(mul)
        at = mul
    return tuple(members), at


def _layer_norms(graph: TypedGraph) -> TypedGraph:
    """(x - mean) / sqrt(mean((x - mean)^2) + eps) * w + b over the last axes."""
    e = _Editor(graph)
    if "LayerNormalization" not in by_onnx():
        return graph
    for div in (n for n in graph.nodes if n.raw.op_type == "Div"):
        found = _layer_norm(e, div)
        if found is None:
            continue
        members, last, inputs, attributes = found
        new = e.node(last.raw, "LayerNormalization", inputs, last.outputs[0], attributes)
        if new.out_specs[0].shape == last.out_specs[0].shape:
            e.replace(members, last, [new])
    return e.done()


def _layer_norm(
    e: _Editor, div: TypedNode
) -> tuple[tuple[TypedNode, ...], TypedNode, tuple[str, ...], dict[str, Any]] | None:
    sub, sqrt = (e.producer.get(i) for i in div.raw.inputs)
    if sub is None or sub.raw.op_type != "Sub" or sqrt is None or sqrt.raw.op_type != "Sqrt":
        return None
    x, mean = sub.raw.inputs[0], e.producer.get(sub.raw.inputs[1])
    plus = e.producer.get(sqrt.inputs[0])
    eps = next(_operands(e, plus, "Add"), None)
    variance = e.producer.get(eps[0]) if eps else None
    if mean is None or mean.inputs != (x,) or variance is None or plus is None or eps is None:
        return None
    square = e.producer.get(variance.inputs[0])
    axis = _last_axes(mean, x, e)
    if axis is None or _last_axes(variance, variance.inputs[0], e) != axis or square is None:
        return None
    centred = sub.outputs[0]
    squares = square.raw.op_type == "Mul" and square.inputs == (centred, centred)
    if not squares and list(_operands(e, square, "Pow")) != [(centred, 2.0)]:
        return None
    scale = e.only_reader(div.outputs[0])
    weight = _vector(e, scale, "Mul", div.outputs[0], axis)
    if scale is None or not weight:
        return None
    shift = e.only_reader(scale.outputs[0])
    bias = _vector(e, shift, "Add", scale.outputs[0], axis)
    last = shift if shift is not None and bias else scale
    inputs = (x, weight, bias) if bias else (x, weight)
    members = (mean, sub, square, variance, plus, sqrt, div, scale, last)
    inside = {id(m) for m in members}
    for m in members:
        outside = [r for o in m.outputs for r in e.readers.get(o, []) if id(r) not in inside]
        if m is not last and (outside or set(m.outputs) & set(e.graph.outputs)):
            return None
    attributes = {"axis": axis, "epsilon": float(np.float32(eps[1]))}
    return members, last, inputs, attributes


def _last_axes(node: TypedNode, x: str, e: _Editor) -> int | None:
    """The first of the axes that a ReduceMean takes, if they are the last ones and stay as 1."""
    if node.raw.op_type != "ReduceMean" or node.raw.attributes.get("keepdims", 1) != 1:
        return None
    rank = len(e.specs[x].shape)
    given = node.raw.attributes.get("axes")
    if given is None and len(node.raw.inputs) > 1 and node.raw.inputs[1] in e.constants:
        given = e.constants[node.raw.inputs[1]].array.ravel()
    axes = sorted(int(a) % rank for a in given) if given is not None else []
    return axes[0] - rank if axes and axes == list(range(axes[0], rank)) else None


def _vector(e: _Editor, node: TypedNode | None, op_type: str, x: str, axis: int) -> str:
    """The constant of the normalized axes' shape that a node multiplies or adds; else ""."""
    if node is None or node.raw.op_type != op_type:
        return ""
    others = [i for i in node.raw.inputs if i != x]
    if len(others) != 1 or others[0] not in e.constants:
        return ""
    return others[0] if e.specs[others[0]].shape == e.specs[x].shape[axis:] else ""
