"""Import a model. In: an ONNX file. Out: a Model with ops, shapes and parameters, or one ModelError.

The stages, each a file: ``read`` checks and takes the file apart; ``batch`` binds open dimensions;
``infer`` gives nodes their ops and shapes and folds constants; ``rewrite`` puts together what
exporters take apart; ``model`` names everything. ``export`` writes trained parameters back.

This is the only place that imports onnx.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from poetgen.errors import ModelError
from poetgen.graph import Model
from poetgen.onnx_import.batch import bind, follow
from poetgen.onnx_import.export import export_onnx
from poetgen.onnx_import.infer import TypedGraph, type_graph
from poetgen.onnx_import.model import choose_outputs, to_model
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
        graph = _rebound(source, outputs, binding.with_batch, binding.fixed_batch, batch)
        note = f"The file's batch of {binding.fixed_batch} is changed to {batch}."
        return graph, (*binding.notes, note)
    try:
        return type_graph(source, binding.specs, outputs), binding.notes
    except ModelError as first:
        if batch in (None, 1):
            raise
        # An open batch over Reshapes that were exported at 1.
        at_one = bind(source, 1)
        try:
            type_graph(source, at_one.specs, outputs)
        except ModelError:
            raise first from None
        assert batch is not None
        return _rebound(source, outputs, at_one.with_batch, 1, batch), binding.notes


def _rebound(
    source: Source,
    outputs: tuple[str, ...],
    with_batch: Callable[[int, int], Mapping[str, Spec]],
    old: int,
    new: int,
) -> TypedGraph:
    """The graph at another batch: claimed by ``follow`` at the old one, held against the new one."""
    before = type_graph(source, with_batch(old, old), outputs)
    specs = with_batch(old, new)
    moved = tuple(n for n in before.inputs if specs[n] != before.specs[n])
    shapes = follow(before, moved, old, new)
    reshaped = {
        o: shapes[o] for n in before.nodes if n.raw.op_type == "Reshape" for o in n.outputs if o in shapes
    }
    after = type_graph(source, specs, outputs, reshaped)
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
