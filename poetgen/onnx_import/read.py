"""Read an ONNX file. In: a path. Out: a Source whose graph holds plain values, or one ModelError.

``onnx.load`` and ``onnx.checker`` accept much that no program can run (a zero-byte file, a missing
weight, two producers of a tensor), so everything is checked here, before anybody computes with it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, TensorProto, inliner, numpy_helper

from poetgen.errors import ModelError
from poetgen.onnx_import.raw import (
    Constant,
    Dim,
    RawGraph,
    RawInput,
    RawNode,
    Source,
    shorten,
    sort_nodes,
)
from poetgen.op import Array

FIRST_OPSET, LAST_OPSET = 6, 28
"""Versions of the default operator set whose ops were compared with what ``ops`` does."""

MOST_AXES = 32
"""Far above any network's; numpy stops at 64."""

OWN_DOMAINS = ("", "ai.onnx")

_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"PK\x03\x04", "a zip archive (a PyTorch checkpoint?); export it with torch.onnx.export"),
    (0, b"\x80", "a Python pickle; export the model with torch.onnx.export"),
    (0, b"\x89HDF", "an HDF5 file (Keras?); convert it with tf2onnx"),
    (4, b"TFL3", "a TensorFlow Lite file; convert it with tf2onnx --tflite"),
    (4, b"ORTM", "ONNX Runtime's own format; give the .onnx file that it was made from"),
    (0, b"version https://git-lfs", "a Git LFS pointer; fetch the file with git lfs pull"),
    (0, b"{", "JSON text; poetgen reads the binary format"),
    (0, b"<", "HTML or XML text; was the download a web page?"),
)

_ELEMENT_BITS: dict[int, int] = {
    TensorProto.FLOAT: 32,
    TensorProto.DOUBLE: 64,
    TensorProto.FLOAT16: 16,
    TensorProto.BFLOAT16: 16,
    TensorProto.INT8: 8,
    TensorProto.INT16: 16,
    TensorProto.INT32: 32,
    TensorProto.INT64: 64,
    TensorProto.UINT8: 8,
    TensorProto.UINT16: 16,
    TensorProto.UINT32: 32,
    TensorProto.UINT64: 64,
    TensorProto.BOOL: 8,
}
_TYPED_FIELD: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}


def type_name(elem_type: int) -> str:
    """``float32`` for TensorProto.FLOAT."""
    name = TensorProto.DataType.Name(elem_type).lower() if elem_type in _known_types() else "?"
    return {"float": "float32", "double": "float64"}.get(name, name)


def _known_types() -> frozenset[int]:
    return frozenset(TensorProto.DataType.values())


def parse(path: Path) -> tuple[onnx.ModelProto, bytes]:
    """The file's protobuf, functions not yet inlined, and its bytes."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"cannot read {path}: {error.strerror or error}", hint="give the path of an .onnx file"
        ) from error
    if not data:
        raise ModelError(f"{path.name} is empty (0 bytes)", hint="export the model again")
    for at, mark, what in _SIGNATURES:
        if data[at : at + len(mark)] == mark:
            raise ModelError(f"{path.name} is not an ONNX file", hint=f"it looks like {what}")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(
            f"{path.name} is not a valid ONNX protobuf: truncated or damaged ({len(data)} bytes were read)",
            hint="copy or export the file again",
        ) from error
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError(
            f"{path.name} holds no graph ({len(data)} bytes were read)",
            hint="it may be truncated, or no ONNX model at all",
        )
    return model, data


def read(path: Path) -> Source:
    """Read and check; see the module's docstring."""
    model, data = parse(path)
    notes: list[str] = []
    _check_text(t for n in model.graph.node for t in (n.op_type, n.domain, n.name))
    _check_text(o.domain for o in model.opset_import)
    opset = _opset(model, path.name, notes)
    tensors = _Tensors(path.parent)
    model = inline_functions(model)
    graph = _graph(model.graph, tensors)
    _check_order(graph)
    if not graph.nodes:
        raise ModelError(
            f"{path.name} has no nodes: its outputs are its inputs or constants",
            hint="there is nothing to train or to run",
        )
    return Source(str(path), tensors.digest(data), opset, graph, tuple(notes))


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without model-local functions."""
    if not model.functions:
        return model
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # the inliner is C++ and raises what it likes
        names = ", ".join(f"{f.domain}::{f.name}" for f in model.functions)
        raise ModelError(
            f"model-local functions cannot be inlined: {names} ({error})",
            hint="export the model without functions",
        ) from error


def _opset(model: onnx.ModelProto, name: str, notes: list[str]) -> int:
    versions = [int(o.version) for o in model.opset_import if o.domain in OWN_DOMAINS]
    if not versions:
        raise ModelError(
            f"{name} imports no version of the default operator set",
            hint="the file may be truncated, or hold only other vendors' operators",
        )
    opset = max(versions)
    if opset > LAST_OPSET:
        raise ModelError(
            f"{name} uses opset {opset}, newer than the newest supported, {LAST_OPSET}",
            hint="export with opset_version=17",
        )
    if min(versions) < FIRST_OPSET:
        raise ModelError(
            f"{name} uses opset {min(versions)}, older than the oldest supported, {FIRST_OPSET}",
            hint="convert it: onnx.version_converter.convert_version(model, 17)",
        )
    if len(set(versions)) > 1:
        for node in model.graph.node:
            meanings = {_meaning(node.op_type, v) for v in versions}
            if node.domain in OWN_DOMAINS and len(meanings) > 1:
                raise ModelError(
                    f"{name} imports ai.onnx at opsets {_and(versions)}, and {node.op_type} node "
                    f"{shorten(node.name or ', '.join(node.output))} means different things in them",
                    hint="export the model again with one opset",
                )
        notes.append(f"ai.onnx is imported at opsets {_and(versions)}; every op here is the same in each.")
    return opset


def _meaning(op_type: str, opset: int) -> tuple[object, ...]:
    """What tells versions of an op apart: later ones that only allow more types are the same."""
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return ()
    defaults = [(k, a.default_value.SerializeToString()) for k, a in schema.attributes.items()]
    inputs, outputs = ([v.name for v in side] for side in (schema.inputs, schema.outputs))
    return (tuple(sorted(defaults)), tuple(inputs), tuple(outputs))


def _and(numbers: Iterable[int]) -> str:
    return " and ".join(str(n) for n in numbers)


class _Tensors:
    """Turns TensorProtos into arrays; reads external files once, and only beside the model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.files: dict[str, bytes] = {}

    def digest(self, data: bytes) -> str:
        """SHA-256 of the model file and then of the external files, by name."""
        sha = hashlib.sha256(data)
        for location in sorted(self.files):
            sha.update(self.files[location])
        return sha.hexdigest()

    def array(self, t: TensorProto, what: str) -> Array:
        """The values; ``what`` is how messages call the tensor."""
        dims = tuple(int(d) for d in t.dims)
        if any(d < 0 for d in dims):
            raise ModelError(f"{what} has the negative dimension {min(dims)}: {list(dims)}")
        if len(dims) > MOST_AXES:
            raise ModelError(f"{what} has {len(dims)} axes, more than {MOST_AXES}")
        if t.data_type not in _ELEMENT_BITS:
            raise ModelError(
                f"{what} has elements of type {type_name(t.data_type)}, which is not supported",
                hint="export the model in float32",
            )
        count = math.prod(dims)
        expected = count * _ELEMENT_BITS[t.data_type] // 8
        if t.data_location == TensorProto.EXTERNAL:
            raw = self._external(t, what, expected)
        elif t.HasField("raw_data"):
            raw = t.raw_data
        else:
            return self._typed(t, what, dims, count)
        if len(raw) != expected:
            raise ModelError(
                f"{what} has {len(raw)} bytes, expected {expected} for {type_name(t.data_type)}{list(dims)}",
                hint="the file is damaged; export the model again",
            )
        plain = TensorProto(data_type=t.data_type, dims=dims, raw_data=raw)
        return _frozen(numpy_helper.to_array(plain))

    def _typed(self, t: TensorProto, what: str, dims: tuple[int, ...], count: int) -> Array:
        name = _TYPED_FIELD.get(t.data_type, "int32_data")
        found = len(getattr(t, name))
        if found != count:
            raise ModelError(
                f"{what} has {found} values, expected {count} for {type_name(t.data_type)}{list(dims)}",
                hint="the file is damaged; export the model again",
            )
        return _frozen(numpy_helper.to_array(t))

    def _external(self, t: TensorProto, what: str, expected: int) -> bytes:
        entry = {e.key: e.value for e in t.external_data}
        _check_text(entry.values())
        location = entry.get("location", "")
        path = (self.folder / location).resolve()
        if not location or not path.is_relative_to(self.folder) or path == self.folder:
            raise ModelError(
                f"{what} keeps its data in {location!r}, outside of the model's folder",
                hint="move the data file beside the model and export it again",
            )
        if location not in self.files:
            try:
                self.files[location] = path.read_bytes()
            except OSError as error:
                raise ModelError(
                    f"external data file {location} of {what} is missing: {error.strerror or error}",
                    hint="put it beside the .onnx file; both make the model",
                ) from error
        data = self.files[location]
        try:
            offset = int(entry.get("offset", "0"))
            length = int(entry.get("length", str(expected)))
        except ValueError as error:
            raise ModelError(f"{what} has a malformed entry for external data: {error}") from error
        if offset < 0 or length < 0 or offset + length > len(data):
            raise ModelError(
                f"{what} wants bytes {offset} to {offset + length} of {location}, which has {len(data)}",
                hint="the data file is truncated or belongs to another export",
            )
        return data[offset : offset + length]


def _frozen(array: Array) -> Array:
    array = np.array(array)
    array.flags.writeable = False
    return array


def _check_text(texts: Iterable[object]) -> None:
    """Protobuf gives bytes where a damaged file holds what is no UTF-8."""
    for text in texts:
        if isinstance(text, bytes):
            raise ModelError(
                f"the file holds a name that is no text: {text[:40]!r}", hint="copy or export it again"
            )


def _graph(g: onnx.GraphProto, tensors: _Tensors) -> RawGraph:
    _check_text(v.name for values in (g.initializer, g.input, g.output) for v in values)
    constants: dict[str, Constant] = {}
    if g.sparse_initializer:
        names = ", ".join(s.values.name for s in g.sparse_initializer)
        raise ModelError(
            f"sparse initializers are not supported: {names}",
            hint="export the model with dense weights",
        )
    for t in g.initializer:
        if not t.name:
            raise ModelError("an initializer has no name", hint="export the model again")
        if t.name in constants:
            raise ModelError(f"two initializers are named {shorten(t.name)}", hint="export the model again")
        constants[t.name] = Constant(tensors.array(t, f"initializer {shorten(t.name)}"), "initializer")
    inputs: list[RawInput] = []
    for value in g.input:  # up to IR version 3, initializers are listed as inputs too
        if any(value.name == i.name for i in inputs):
            raise ModelError(f"two graph inputs are named {shorten(value.name)}")
        if value.name not in constants:
            inputs.append(_input(value))
    nodes: list[RawNode] = []
    for n in g.node:
        node = _node(n, len(nodes), tensors)
        if node.op_type == "Constant" and node.domain == "":
            name, constant = _constant(node)
            if name in constants or any(name == i.name for i in inputs):
                raise ModelError(f"tensor {shorten(name)} is made twice")
            constants[name] = constant
        else:
            nodes.append(node)
    return RawGraph(g.name, tuple(nodes), constants, tuple(inputs), tuple(o.name for o in g.output))


def _input(value: onnx.ValueInfoProto) -> RawInput:
    kind = value.type.WhichOneof("value")
    if not value.name or kind not in ("tensor_type", None):
        raise ModelError(
            f"graph input {shorten(value.name)} is a {kind}, not a tensor",
            hint="export a model whose inputs are tensors",
        )
    tensor = value.type.tensor_type
    dims: tuple[Dim, ...] | None = None
    if tensor.HasField("shape"):
        dims = tuple(_dim(d) for d in tensor.shape.dim)
    return RawInput(value.name, type_name(tensor.elem_type), dims)


def _dim(d: onnx.TensorShapeProto.Dimension) -> Dim:
    if d.HasField("dim_value"):
        return None if d.dim_value < 0 else int(d.dim_value)  # -1 is met in real files
    return d.dim_param or None


def _node(n: onnx.NodeProto, index: int, tensors: _Tensors) -> RawNode:
    _check_text((n.name, n.op_type, n.domain, *n.input, *n.output, *(a.name for a in n.attribute)))
    domain = "" if n.domain in OWN_DOMAINS else n.domain
    node = RawNode(index, n.name, n.op_type, domain, tuple(n.input), tuple(n.output), {})
    attributes: dict[str, Any] = {}
    for a in n.attribute:
        if a.name in attributes:
            raise ModelError(f"{node.label} has attribute {a.name!r} twice")
        attributes[a.name] = _attribute(a, node, tensors)
    return RawNode(index, n.name, n.op_type, domain, tuple(n.input), tuple(n.output), attributes)


def _attribute(a: AttributeProto, node: RawNode, tensors: _Tensors) -> Any:
    what = f"attribute {a.name!r} of {node.label}"
    if a.ref_attr_name:
        raise ModelError(f"{what} refers to a function's attribute outside of a function")
    match a.type:
        case AttributeProto.INT:
            return int(a.i)
        case AttributeProto.FLOAT:
            return float(a.f)
        case AttributeProto.STRING:
            return a.s.decode("utf-8", "replace")
        case AttributeProto.TENSOR:
            return tensors.array(a.t, what)
        case AttributeProto.INTS:
            return tuple(int(i) for i in a.ints)
        case AttributeProto.FLOATS:
            return tuple(float(f) for f in a.floats)
        case AttributeProto.STRINGS:
            return tuple(s.decode("utf-8", "replace") for s in a.strings)
        case AttributeProto.GRAPH:
            return _graph(a.g, tensors)
        case AttributeProto.GRAPHS:
            return tuple(_graph(g, tensors) for g in a.graphs)
    raise ModelError(f"{what} has type {AttributeProto.AttributeType.Name(a.type)}, which is not supported")


def _constant(node: RawNode) -> tuple[str, Constant]:
    values = dict(node.attributes)
    if len(values) != 1 or len(node.outputs) != 1:
        raise ModelError(f"{node.label} must have one value, it has {sorted(values)}")
    ((key, value),) = values.items()
    match key:
        case "value":
            array = value
        case "value_float" | "value_floats":
            array = np.array(value, np.float32)
        case "value_int" | "value_ints":
            array = np.array(value, np.int64)
        case _:
            raise ModelError(f"{node.label} has a {key}, which is not supported")
    return node.outputs[0], Constant(_frozen(array), "constant node")


def _check_order(graph: RawGraph, outer: frozenset[str] = frozenset()) -> None:
    """Raise for cycles, undefined and doubly made tensors, here and in subgraphs."""
    sort_nodes(graph, outer)
    made = outer | set(graph.constants) | {i.name for i in graph.inputs}
    made |= {o for n in graph.nodes for o in n.outputs if o}
    for node in graph.nodes:
        for body in node.subgraphs:
            shadowed = frozenset(made - {o for n in body.nodes for o in n.outputs})
            _check_order(body, shadowed - set(body.constants) - {i.name for i in body.inputs})
    for name in graph.outputs:
        if name not in made:
            raise ModelError(
                f"graph output {shorten(name)} is made by no node", hint="export the model again"
            )
