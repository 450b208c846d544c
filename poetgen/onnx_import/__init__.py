"""Import a model. In: an ONNX file. Out: a Model with ops, shapes and parameters, or one ModelError.

The stages, each a file: ``read`` checks and takes the file apart; ``batch`` binds open dimensions;
``infer`` (with ``node`` and ``fold``) gives nodes their ops and shapes and folds constants; ``rewrite``
puts together what exporters take apart; ``model`` names everything. ``export`` writes trained
parameters back.

This is the only place that imports onnx.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from poetgen.errors import ModelError
from poetgen.graph import Model
from poetgen.onnx_import.batch import bind, follow
from poetgen.onnx_import.export import export_onnx
from poetgen.onnx_import.infer import type_graph
from poetgen.onnx_import.model import choose_outputs, to_model
from poetgen.onnx_import.node import TypedGraph
from poetgen.onnx_import.raw import Source, shorten
from poetgen.onnx_import.read import read
from poetgen.onnx_import.rewrite import rewrite
from poetgen.op import Spec

__all__ = ["export_onnx", "import_onnx"]


def import_onnx(path: str | Path, batch: int | None = None, output: str | None = None) -> Model:
    """The model in a file.

    Args:
        path: an .onnx file; external data lies beside it.
        batch: samples a training step takes. An open leading axis is bound to it (default 1); a
            fixed one is changed to it where that provably means the same for each sample.
        output: the graph output to keep; all of them by default.

    Raises:
        ModelError: the file cannot be read, or asks for what poetgen does not do.
        UsageError: no such output, or a batch below 1.
    """
    source = read(Path(path))
    outputs, notes = choose_outputs(source, output)
    graph, more = _typed(source, outputs, batch)
    return to_model(source, rewrite(graph), (*source.notes, *notes, *more))


def _typed(source: Source, outputs: tuple[str, ...], batch: int | None) -> tuple[TypedGraph, tuple[str, ...]]:
    binding = bind(source, batch)
    if binding.fixed_batch is not None and batch is not None:
        old = binding.fixed_batch
        graph = _rebound(source, outputs, binding.specs, binding.moved(old, batch), old, batch)
        return graph, (*binding.notes, f"The file's batch of {old} is changed to {batch}.")
    if batch is None or batch == 1:
        try:
            return type_graph(source, binding.specs, outputs), binding.notes
        except ModelError as error:
            if binding.notes and not error.hint:
                error.hint = "the batch is open in the file and bound to 1: try --batch N"
            raise
    first: ModelError | None = None
    try:
        graph = type_graph(source, binding.specs, outputs)
        if all(graph.specs[o].shape[:1] in ((), (batch,)) for o in outputs):
            return graph, binding.notes
    except ModelError as error:
        first = error
    # An open batch over Reshapes that were exported at 1.
    at_one = bind(source, 1).specs
    try:
        type_graph(source, at_one, outputs)
    except ModelError as error:
        raise first or error from None
    return _rebound(source, outputs, at_one, binding.specs, 1, batch), binding.notes


def _rebound(
    source: Source,
    outputs: tuple[str, ...],
    old_specs: Mapping[str, Spec],
    new_specs: Mapping[str, Spec],
    old: int,
    new: int,
) -> TypedGraph:
    """The graph at another batch: claimed by ``follow`` at the old one, held against the new one."""
    before = type_graph(source, old_specs, outputs)
    moved = tuple(n for n in before.inputs if new_specs[n] != old_specs[n])
    shapes = follow(before, moved, old, new)
    reshaped = {
        o: shapes[o] for n in before.nodes if n.raw.op_type == "Reshape" for o in n.outputs if o in shapes
    }
    after = type_graph(source, new_specs, outputs, reshaped)
    for node in after.nodes:
        for name, spec in zip(node.outputs, node.out_specs, strict=True):
            expected = shapes.get(name, before.specs[name].shape) if name in before.specs else None
            if name and spec.shape != expected:
                raise ModelError(
                    f"cannot change the batch from {old} to {new} at {node.raw.label}: its output "
                    f"{shorten(name)} becomes {list(spec.shape)}, not {list(expected or ())}",
                    hint=f"export the model with a dynamic batch, or at batch {new}",
                )
    return after
