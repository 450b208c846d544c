"""Fuse a weight's gradient with its update, so that the gradient is never a tensor of its own."""

from __future__ import annotations

from dataclasses import replace

from poetgen.autodiff.reverse import hazards_of, in_running_order
from poetgen.graph import Node, TrainingGraph
from poetgen.op import Op
from poetgen.ops.adam import AdamUpdate
from poetgen.ops.conv import ConvDw
from poetgen.ops.fused_update import GradientAdam, GradientMomentum, GradientSgd
from poetgen.ops.gemm import GemmDw
from poetgen.ops.sgd import MomentumUpdate, SgdUpdate

Fused = type[GradientSgd] | type[GradientMomentum] | type[GradientAdam]


def fused_class(update: Op) -> Fused | None:
    """The fused op for an update op; None where there is none."""
    if isinstance(update, SgdUpdate):
        return GradientSgd
    if isinstance(update, MomentumUpdate):
        return GradientMomentum
    return GradientAdam if isinstance(update, AdamUpdate) else None


def fuse_updates(training: TrainingGraph) -> TrainingGraph:
    """The same training step with each dW of a Conv or Gemm that only its update reads fused into that."""
    nodes: dict[str, Node] = {n.name: n for n in training.nodes}
    gone: set[str] = set()
    for update in training.nodes:
        kind = fused_class(update.op)
        if kind is None:
            continue
        gradient = training.producer.get(update.inputs[1])
        if gradient is None or not isinstance(gradient.op, ConvDw | GemmDw):
            continue
        dw = update.inputs[1]
        if training.readers[dw] != (update,) or update.in_specs[1] != gradient.out_specs[0]:
            continue
        inputs = tuple(update.inputs[i] for i in kind.order) + gradient.inputs
        specs = tuple(update.in_specs[i] for i in kind.order) + gradient.in_specs
        op = kind(gradient.op, update.op)
        nodes[update.name] = replace(
            update, op=op, inputs=inputs, in_specs=specs, layer=gradient.layer or update.layer
        )
        nodes.pop(gradient.name)
        gone.add(dw)
    kept = tuple(nodes.values())
    hazards = hazards_of(kept)
    return replace(
        training,
        nodes=in_running_order(kept, hazards),
        tensors={k: t for k, t in training.tensors.items() if k not in gone},
        hazards=hazards,
    )
