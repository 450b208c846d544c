"""The model's nodes as they run: in training, with what that adds, or in inference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from poetgen.autodiff.builder import Builder
from poetgen.errors import ModelError, UsageError
from poetgen.graph import Kind, Model, Node
from poetgen.op import Spec, Value
from poetgen.ops.batchnorm import BatchNorm, BatchNormTrain
from poetgen.ops.dropout import Dropout

BatchNormMode = Literal["file", "train", "frozen"]
_SCALAR = Spec((), "i32")


def norm_nodes(model: Model, mode: str) -> tuple[Node, ...]:
    """The model's nodes with each batch norm in the form that ``--bn`` asks for."""
    if mode not in ("file", "train", "frozen"):
        raise UsageError(f"unknown --bn {mode!r}", hint="one of: file, train, frozen")
    return tuple(_norm(node, mode) for node in model.nodes)


def _norm(node: Node, mode: str) -> Node:
    if mode == "train" and isinstance(node.op, BatchNorm):
        op = node.op.trained()
        try:
            specs = op.infer(*node.in_specs)
        except ValueError as error:
            raise ModelError(
                f"{node.name!r} cannot train with the batch's statistics: {error}",
                hint="use a larger --batch, or --bn frozen",
            ) from error
        extra = tuple(f"{node.name}/batch_{what}" for what in ("mean", "var"))
        return replace(node, op=op, outputs=(*node.outputs[:1], *extra), out_specs=specs)
    if mode == "frozen" and isinstance(node.op, BatchNormTrain):
        return replace(node, op=node.op.frozen(), outputs=node.outputs[:1], out_specs=node.out_specs[:1])
    return node


def statistics(nodes: tuple[Node, ...]) -> Mapping[str, str]:
    """Running statistics that training moves, and the node that moves each."""
    return {
        node.inputs[i]: node.name
        for node in nodes
        if isinstance(node.op, BatchNormTrain) and len(node.inputs) > 3
        for i, _ in node.op.moves
    }


def training_forward(model: Model, nodes: tuple[Node, ...], kinds: Mapping[str, Kind]) -> Builder:
    """Forward as training runs it: batch statistics moved once a step, dropout drawn by counter."""
    b = _with_inputs(model, kinds)
    draws = 0
    for node in nodes:
        op = node.op
        values = [Value(i, s) for i, s in zip(node.inputs, node.in_specs, strict=True)]
        if isinstance(op, BatchNormTrain):
            running = values[3:]
            outputs = b.add(op, values[:3], node.outputs, node.name, "forward", node.layer)
            for (_, out), statistic in zip(op.moves, running, strict=False):
                name = f"{statistic.name}/update"
                b.add(op.update(), (statistic, outputs[out]), (), name, "update", node.layer)
            continue
        if isinstance(op, Dropout):
            op = op.numbered(draws)
            draws += 1
            values += [b.scalar("seed", _SCALAR), b.scalar("step", _SCALAR)]
        b.add(op, values, node.outputs, node.name, "forward", node.layer)
    return b


def inference_forward(model: Model, nodes: tuple[Node, ...], kinds: Mapping[str, Kind]) -> Builder:
    """Forward as ``_infer`` runs it."""
    b = _with_inputs(model, kinds)
    for node in nodes:
        op, inputs, in_specs, outputs = node.op, node.inputs, node.in_specs, node.outputs
        if (instead := op.inference()) is not None:
            op = instead[0]
            inputs = tuple(node.inputs[i] for i in instead[1])
            in_specs = tuple(node.in_specs[i] for i in instead[1])
            outputs = tuple(node.outputs[i] for i in instead[2])
        values = [Value(i, s) for i, s in zip(inputs, in_specs, strict=True)]
        b.add(op, values, outputs, node.name, "forward", node.layer)
    return b


def _with_inputs(model: Model, kinds: Mapping[str, Kind]) -> Builder:
    b = Builder()
    for name in model.inputs:
        b.tensor(name, model.spec(name), "input")
    for name, array in model.parameters.items():
        b.tensor(name, Spec(tuple(array.shape), model.spec(name).dtype), kinds.get(name, "const"))
    return b
