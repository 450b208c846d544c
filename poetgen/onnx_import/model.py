"""Name everything and take the parameters out. In: a Typed graph. Out: the Model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from poetgen.errors import ModelError, UsageError
from poetgen.graph import Model, NameTable, Node, Tensor
from poetgen.onnx_import.node import TypedGraph, TypedNode, unsupported
from poetgen.onnx_import.raw import Constant, Source, shorten
from poetgen.op import Array

LARGEST_TENSOR_BYTES = 1 << 32
"""The address space of a Cortex-M: what is larger cannot even be named there."""

WEIGHT_SLOTS: dict[str, tuple[int, ...]] = {
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Gemm": (1, 2),
    "MatMul": (0, 1),
    "BatchNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "PRelu": (1,),
    "Gather": (0,),
    "LSTM": (1, 2, 3),
    "GRU": (1, 2, 3),
}
"""Inputs in which a Constant node's values count as a weight or a bias, as an initializer's do."""

_FOLDED_NORM = re.compile(r"^onnx::Conv_\d+$")


def choose_outputs(source: Source, output: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The graph outputs to keep, and notes on what is left out."""
    graph = source.graph
    given = tuple(dict.fromkeys(graph.outputs))
    if output is not None:
        if output not in given:
            near = difflib.get_close_matches(output, given, n=3, cutoff=0.1)
            raise UsageError(
                f"the model has no output {output!r}",
                hint=f"its outputs: {', '.join(near or given[:5])}",
            )
        given = (output,)
    statistics = {
        o for n in graph.nodes if n.op_type == "BatchNormalization" and not n.domain for o in n.outputs[1:]
    }
    fixed = set(graph.constants) | {i.name for i in graph.inputs}
    kept = tuple(o for o in given if o not in statistics | fixed)
    if not kept:
        why = "running statistics" if statistics & set(given) else "inputs or constants"
        raise ModelError(
            f"no output of {Path(source.path).name} is computed: "
            f"{', '.join(shorten(o) for o in given)} are {why}",
            hint="export the model with the output of its last layer",
        )
    notes = []
    if moved := [o for o in given if o in statistics]:
        names = ", ".join(shorten(o) for o in moved[:3])
        notes.append(
            f"{len(moved)} outputs are running statistics and are left out ({names}): "
            "training changes the statistics themselves."
        )
    if idle := [o for o in given if o in fixed]:
        names = ", ".join(shorten(o) for o in idle[:3])
        notes.append(f"{len(idle)} outputs are inputs or constants and are left out ({names}).")
    return kept, tuple(notes)


def to_model(source: Source, graph: TypedGraph, notes: Iterable[str]) -> Model:
    """See the module's docstring."""
    if missing := [n for n in graph.nodes if n.op is None]:
        alone = len(missing) == 1 and missing[0].why_not
        raise alone or unsupported([n.raw for n in missing], source.opset)
    path = Path(source.path)
    for out in graph.outputs:
        if out in graph.constants:
            raise ModelError(
                f"output {shorten(out)} is a constant: it depends on no input",
                hint="export the model with the output of its last layer, or choose another with --output",
            )
    names = NameTable()
    tensors = {i: Tensor(i, graph.specs[i], "input") for i in graph.inputs}
    parameters = _parameters(graph)
    fixed = _fixed(graph, parameters)
    tensor_names = NameTable(set(graph.specs))
    nodes: list[Node] = []
    for typed in graph.nodes:
        assert typed.op is not None
        name = names.unique(typed.raw.name or f"{typed.raw.op_type}_{typed.raw.index}")
        outputs = tuple(o or tensor_names.unique(f"{name}/out{k}") for k, o in enumerate(typed.outputs))
        nodes.append(
            Node(
                name,
                typed.op,
                typed.inputs,
                outputs,
                typed.in_specs,
                typed.out_specs,
                layer=name,
            )
        )
        for i in typed.inputs:
            if i in parameters:
                tensors[i] = Tensor(i, graph.specs[i], "const")
        for o, spec in zip(outputs, typed.out_specs, strict=True):
            tensors[o] = Tensor(o, spec)
    _check_sizes(nodes, tensors)
    return Model(
        name=path.stem,
        nodes=tuple(nodes),
        tensors=tensors,
        inputs=graph.inputs,
        outputs=graph.outputs,
        parameters=parameters,
        sha256=source.sha256,
        path=source.path,
        opset=source.opset,
        notes=(*notes, *graph.notes, *_folded_norms(graph)),
        fixed=fixed,
    )


def _parameters(graph: TypedGraph) -> dict[str, Array]:
    """Every constant that a node reads, in the order in which they are read."""
    found: dict[str, Array] = {}
    for node in graph.nodes:
        for name in node.inputs:
            if name in graph.constants and name not in found:
                found[name] = _operand(name, graph.constants[name], node)
    return found


def _operand(name: str, constant: Constant, node: TypedNode) -> Array:
    """The values as an op reads them: float32, or int32 in range."""
    a = constant.array
    kind = "initializer" if constant.origin == "initializer" else "constant"
    what = f"{kind} {shorten(name)} (read by {node.raw.label})"
    if a.size == 0:
        raise ModelError(
            f"{what} has a zero-size dimension: {list(a.shape)}", hint="export the model without it"
        )
    if a.dtype.kind == "b":
        return a.astype(np.uint8)
    if a.dtype.kind in "iu":
        limits = np.iinfo(np.int32)
        if a.min() < limits.min or a.max() > limits.max:
            raise ModelError(
                f"{what} has values from {a.min()} to {a.max()}, outside of int32",
                hint="integers are 32 bits wide on the target",
            )
        return a.astype(np.int32)
    if a.dtype != np.float32:
        raise ModelError(
            f"{what} is {a.dtype}, which is not supported; poetgen computes in float32",
            hint="export the model in float32",
        )
    nan, inf = int(np.isnan(a).sum()), int(np.isinf(a).sum())
    if nan or inf:
        raise ModelError(
            f"{what} has {nan} NaN, {inf} Inf among its {a.size} values",
            hint="the model was saved after its training had diverged; use an earlier checkpoint",
        )
    return a


def _fixed(graph: TypedGraph, parameters: Mapping[str, Array]) -> dict[str, str]:
    """Constants that are no parameters by nature, and why."""
    in_slot: set[str] = set()
    for node in graph.nodes:
        slots = WEIGHT_SLOTS.get(node.raw.op_type, ())
        in_slot |= {node.raw.inputs[i] for i in node.operands if i in slots}
    return {
        name: f"is a {graph.constants[name].origin} outside of a weight or bias slot"
        for name in parameters
        if graph.constants[name].origin != "initializer" and name not in in_slot
    }


def _check_sizes(nodes: Iterable[Node], tensors: Mapping[str, Tensor]) -> None:
    producer = {o: n.name for n in nodes for o in n.outputs}
    largest = max(tensors.values(), key=lambda t: t.spec.nbytes)
    empty = next((t for t in tensors.values() if not t.spec.size), None)
    if empty is not None:
        raise ModelError(
            f"tensor {shorten(empty.name)} has a zero-size dimension: {list(empty.spec.shape)}",
            hint="export the model with sizes of 1 or more",
        )
    if largest.spec.nbytes > LARGEST_TENSOR_BYTES:
        size = largest.spec.nbytes
        of = producer.get(largest.name)
        raise ModelError(
            f"tensor {shorten(largest.name)} {list(largest.spec.shape)}"
            f"{f' of node {shorten(of)}' if of else ''} takes {size} bytes ({size:.2g}); "
            f"a microcontroller addresses {LARGEST_TENSOR_BYTES}",
            hint="export the model for smaller inputs or a smaller batch",
        )


def _folded_norms(graph: TypedGraph) -> Iterable[str]:
    """PyTorch names a convolution's weights so when it has folded a batch norm into it."""
    folded = {i for n in graph.nodes if n.raw.op_type == "Conv" for i in n.inputs if _FOLDED_NORM.match(i)}
    if folded:
        yield (
            f"{len(folded)} convolution weights have exporter's names ({min(folded)}): PyTorch has "
            "folded batch norms into them. To keep names and batch norms, export model.eval() with "
            "training=torch.onnx.TrainingMode.PRESERVE."
        )
