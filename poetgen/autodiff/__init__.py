"""Differentiate a model. In: Model, loss, optimizer, what to train. Out: TrainingGraph.

Reverse mode: each op emits the nodes of its own gradient; what no update needs is pruned, so nothing
is computed below the lowest trained parameter. An update is ordered after the last reader of what it
changes; each such pair is a hazard that a recompute must respect too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poetgen.autodiff.builder import Builder, prune
from poetgen.autodiff.forward import inference_forward, norm_nodes, statistics, training_forward
from poetgen.autodiff.losses import LOSSES, Loss, attachment, label_spec, loss_named
from poetgen.autodiff.optimizers import Adam, Optimizer, Sgd
from poetgen.autodiff.reverse import backward, hazards_of, in_running_order, updates
from poetgen.autodiff.select import select, trainable
from poetgen.errors import ModelError, UsageError
from poetgen.fuse import fuse_nodes
from poetgen.graph import Kind, Model, Node, TrainingGraph
from poetgen.op import Value
from poetgen.ops.cross_entropy import CountCorrect


def differentiate(
    model: Model,
    loss: str = "cross_entropy",
    optimizer: Optimizer | None = None,
    train: Sequence[str] = ("*",),
    freeze: Sequence[str] = (),
    output: str | None = None,
    bn: str = "file",
) -> TrainingGraph:
    """The graph of one training step.

    Args:
        model: what import_onnx gave.
        loss: ``cross_entropy`` (int32 class indices, mean over samples), ``mse`` (mean over all
            elements) or ``bce`` (binary, with logits, mean over all elements).
        optimizer: ``Sgd(momentum=0.9)`` or ``Adam()``; plain SGD by default.
        train: globs of ONNX parameter names to train.
        freeze: globs removed from them.
        output: the graph output that takes the loss, where there are several.
        bn: statistics of batch norm: ``file`` (as the file says), ``train`` or ``frozen``.

    Raises:
        UsageError: a glob without a match, an unknown loss or output, nothing to train.
        ModelError: a gradient must pass an op that has none, or the loss does not fit the output.
    """
    optimizer = optimizer or Sgd()
    nodes = fuse_nodes(norm_nodes(model, bn), model.outputs)
    trained = select(model, train, freeze)
    moved = statistics(nodes)
    kinds: dict[str, Kind] = dict.fromkeys(moved, "statistic")
    kinds |= dict.fromkeys(trained, "param")
    b = training_forward(model, nodes, kinds)
    kind = loss_named(loss)
    out = _loss_output(model, output)
    takes, note = attachment(model, kind, out)
    loss_value = _add_loss(b, model, kind, loss, takes, out)
    gradients = backward(b, loss_value, trained)
    updates(b, optimizer, gradients)
    kept = prune(b.nodes, keep={loss_value.name})
    hazards = hazards_of(kept)
    ordered = in_running_order(kept, hazards)
    label = next(t.name for t in b.tensors.values() if t.kind == "label")
    used = {t for n in ordered for t in (*n.inputs, *n.outputs)} | {*model.inputs, label}
    tensors = {k: t for k, t in b.tensors.items() if k in used}
    initial = {k: v for k, v in model.parameters.items() if k in used}
    for t in tensors.values():
        if t.kind == "state":
            initial[t.name] = np.zeros(t.spec.shape, np.float32)
    return TrainingGraph(
        model=model,
        nodes=ordered,
        tensors=tensors,
        loss=loss_value.name,
        output=out,
        gradients={p: g.name for p, g in gradients.items()},
        hazards=hazards,
        initial=initial,
        batch=model.spec(model.inputs[0]).shape[0] if model.inputs else 1,
        loss_name=loss,
        notes=(note,) if note else (),
        forward=nodes,
    )


def inference_graph(training: TrainingGraph) -> TrainingGraph:
    """What ``_infer`` runs: forward only, ops in their inference form, the output left to the caller."""
    b = inference_forward(training.model, training.forward, _kinds(training))
    name = b.source(training.output)
    if b.tensors[name].kind != "act":
        raise ModelError(
            f"output {training.output!r} is input {name!r} itself", hint="export the output of a layer"
        )
    b.mark(name, "result")
    return _forward_only(training, b, prune(b.nodes, {name}), name, loss="")


def evaluation_graph(training: TrainingGraph) -> TrainingGraph:
    """What ``_evaluate`` runs: forward, loss, and for classes the count of correct samples."""
    model, kind = training.model, loss_named(training.loss_name)
    b = inference_forward(model, training.forward, _kinds(training))
    takes, _ = attachment(model, kind, training.output)
    loss_value = _add_loss(b, model, kind, training.loss_name, takes, training.output)
    keep = {loss_value.name}
    logits = Value(b.source(takes), model.spec(takes))
    if kind.classes:
        label = next(t for t in b.tensors.values() if t.kind == "label")
        operands = (logits, Value(label.name, label.spec))
        (correct,) = b.add(CountCorrect(), operands, ("correct",), "count_correct", "loss", "accuracy")
        b.mark(correct.name, "result")
        keep.add(correct.name)
    return _forward_only(training, b, prune(b.nodes, keep), logits.name, loss_value.name)


def inference_only(model: Model) -> TrainingGraph:
    """The graph of a model without any parameter: it can only infer."""
    empty = TrainingGraph(
        model=model,
        nodes=(),
        tensors={},
        loss="",
        output=model.outputs[0],
        gradients={},
        hazards=(),
        initial=dict(model.parameters),
        batch=model.spec(model.inputs[0]).shape[0] if model.inputs else 1,
        notes=(f"{model.name} has no parameter to train: the project only infers",),
        forward=model.nodes,
    )
    return inference_graph(empty)


def _kinds(training: TrainingGraph) -> dict[str, Kind]:
    return {t.name: t.kind for t in training.tensors.values() if t.persistent}


def _forward_only(
    training: TrainingGraph, b: Builder, nodes: tuple[Node, ...], output: str, loss: str
) -> TrainingGraph:
    used = {t for n in nodes for t in (*n.inputs, *n.outputs)} | set(training.model.inputs)
    used |= {t.name for t in b.tensors.values() if t.kind == "label"}
    return TrainingGraph(
        model=training.model,
        nodes=nodes,
        tensors={k: t for k, t in b.tensors.items() if k in used},
        loss=loss,
        output=output,
        gradients={},
        hazards=(),
        initial={k: v for k, v in training.model.parameters.items() if k in used},
        batch=training.batch,
        loss_name=training.loss_name,
        notes=training.notes,
        forward=training.forward,
    )


def _loss_output(model: Model, output: str | None) -> str:
    if output is not None:
        if output not in model.outputs:
            raise UsageError(
                f"{model.name} has no output {output!r}", hint=f"outputs: {', '.join(model.outputs)}"
            )
        return output
    floats = [o for o in model.outputs if model.spec(o).dtype == "f32"]
    if len(floats) != 1:
        raise UsageError(
            f"{model.name} has {len(floats)} float outputs: {', '.join(floats)}",
            hint="say which one takes the loss: --output NAME",
        )
    return floats[0]


def _add_loss(b: Builder, model: Model, kind: Loss, loss: str, takes: str, out: str) -> Value:
    """Add label and loss; the loss goes to the caller."""
    logits = Value(b.source(takes), model.spec(takes))
    label = b.tensor(b.names.unique("y"), label_spec(kind, logits.spec), "label")
    try:
        (value,) = b.add(kind.op(), (logits, label), ("loss",), loss, "loss", f"loss {loss}")
    except ValueError as error:
        raise ModelError(
            f"{loss} does not fit output {out!r} of shape {list(logits.spec.shape)}: {error}",
            hint="choose another --loss or --output",
        ) from error
    b.mark(value.name, "result")
    return value


__all__ = [
    "LOSSES",
    "Adam",
    "Optimizer",
    "Sgd",
    "differentiate",
    "evaluation_graph",
    "inference_graph",
    "inference_only",
    "select",
    "trainable",
]
