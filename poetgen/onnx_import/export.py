"""Write trained parameters back into a copy of the user's file, ready for inference."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, external_data_helper, numpy_helper

from poetgen.errors import ModelError
from poetgen.onnx_import.raw import shorten
from poetgen.onnx_import.read import inline_functions, parse, read
from poetgen.op import Array

LARGEST_FILE_BYTES = 1 << 31
"""What a protobuf can hold."""


def export_onnx(model_path: str | Path, params: Mapping[str, Array], out_path: str | Path) -> None:
    """Copy the model to ``out_path`` with new values of parameters and statistics, by ONNX name.

    Batch norms and dropouts in training form become inference form, as the device's ``_infer``
    computes them. External data moves into the file. The file appears whole or not at all.

    Raises:
        ModelError: the model has no such parameter, or the copy would be too large for a file.
    """
    source, target = Path(model_path), Path(out_path)
    read(source)  # every check, external data included
    model, _ = parse(source)
    external_data_helper.load_external_data_for_model(model, str(source.parent))
    model = inline_functions(model)
    reshaped = [_write(model.graph, name, array) for name, array in params.items()]
    if any(reshaped):  # shapes that followed from the old ones
        del model.graph.value_info[:]
        for out in model.graph.output:
            out.type.tensor_type.ClearField("shape")
    _to_inference(model.graph)
    size = model.ByteSize()
    if size >= LARGEST_FILE_BYTES:
        raise ModelError(
            f"the exported model would take {size} bytes; an ONNX file holds {LARGEST_FILE_BYTES}"
        )
    _replace(target, model.SerializeToString())


def _write(graph: onnx.GraphProto, name: str, array: Array) -> bool:
    """Put one parameter in its place; was its shape another?"""
    values = np.ascontiguousarray(array)
    for t in graph.initializer:
        if t.name == name:
            old = tuple(t.dims)
            t.CopyFrom(numpy_helper.from_array(_as(t.data_type, values), name))
            _update_input(graph, name, values)
            return old != values.shape
    for n in graph.node:
        if list(n.output) == [name]:  # a Constant, or what was folded: from now on an initializer
            graph.node.remove(n)
            graph.initializer.append(numpy_helper.from_array(values, name))
            return False
    raise ModelError(
        f"the model has no parameter {shorten(name)} to write back",
        hint="parameters inside of an If branch cannot be exported",
    )


def _as(data_type: int, values: Array) -> Array:
    return values.astype(np.float32 if data_type == TensorProto.FLOAT else values.dtype)


def _update_input(graph: onnx.GraphProto, name: str, values: Array) -> None:
    """Old files list initializers as inputs too, with their shapes."""
    for value in graph.input:
        if value.name == name:
            shape = value.type.tensor_type.shape
            del shape.dim[:]
            for d in values.shape:
                shape.dim.add(dim_value=d)


def _to_inference(graph: onnx.GraphProto) -> None:
    gone: set[str] = set()
    for n in graph.node:
        if n.op_type == "BatchNormalization":
            gone.update(n.output[1:])
            del n.output[1:]
            kept = [a for a in n.attribute if a.name not in ("training_mode", "is_test")]
            del n.attribute[:]
            n.attribute.extend(kept)
        elif n.op_type == "Dropout" and len(n.input) > 2:
            del n.input[2:]  # training_mode; false where it is left out
    for values in (graph.output, graph.value_info):
        kept_values = [v for v in values if v.name not in gone]
        del values[:]
        values.extend(kept_values)


def _replace(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
