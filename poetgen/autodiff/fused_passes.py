"""Fuse gradient nodes that pass over the same tensors, so that each is read once.

    Add of two gradients + Relu's or batch norm and Relu's gradient  -> that gradient of the sum
    BatchNormDx + BatchNormDg + ChannelSum of one dy                 -> BatchNormGradients
    BatchNormDg + ChannelSum of one dy                               -> BatchNormSums

For streaming: what is saved are passes over the store. Where tensors are resident, a fused sum keeps one
more of them alive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from poetgen.autodiff.reverse import hazards_of, in_running_order
from poetgen.graph import Node, TrainingGraph
from poetgen.op import Op
from poetgen.ops.add import Add
from poetgen.ops.batchnorm import BatchNormDg, BatchNormDx, BatchNormGradients, BatchNormSums
from poetgen.ops.batchnorm_relu import (
    AddReluDx,
    BatchNormAddReluDx,
    BatchNormAddReluDxOfSum,
    BatchNormReluDx,
    BatchNormReluDxOfSum,
    ReluDxOfSum,
)
from poetgen.ops.channel_sum import ChannelSum
from poetgen.ops.relu import ReluDx

OF_SUM: dict[type[Op], tuple[int, Callable[[Op], Op]]] = {
    ReluDx: (1, lambda _: ReluDxOfSum()),
    AddReluDx: (1, lambda _: ReluDxOfSum()),
    BatchNormReluDx: (0, lambda op: BatchNormReluDxOfSum(op.eps)),  # type: ignore[attr-defined]
    BatchNormAddReluDx: (0, lambda op: BatchNormAddReluDxOfSum(op.eps)),  # type: ignore[attr-defined]
}
"""Which operand is dy, and the op that takes two of them there."""


def fuse_passes(training: TrainingGraph) -> TrainingGraph:
    """The same training step in fewer passes, bit for bit."""
    nodes = {n.name: n for n in training.nodes}
    gone = _fuse_sums(training, nodes)
    _fuse_norms(nodes)
    kept = tuple(nodes.values())
    hazards = hazards_of(kept)
    return replace(
        training,
        nodes=in_running_order(kept, hazards),
        tensors={k: t for k, t in training.tensors.items() if k not in gone},
        hazards=hazards,
    )


def _fuse_sums(training: TrainingGraph, nodes: dict[str, Node]) -> set[str]:
    """Put each Add of two gradients into its only reader; the sums that are gone."""
    gone: set[str] = set()
    for node in training.nodes:
        at, make = OF_SUM.get(type(node.op), (0, None))
        add = training.producer.get(node.inputs[at]) if make is not None else None
        if make is None or add is None or not isinstance(add.op, Add):
            continue
        total = add.outputs[0]
        is_only_here = training.readers[total] == (node,) and node.inputs.count(total) == 1
        is_alike = add.in_specs[0] == add.in_specs[1] == node.in_specs[at]
        if not is_only_here or not is_alike or total in (training.loss, training.output):
            continue
        nodes[node.name] = replace(
            node,
            op=make(node.op),
            inputs=(*node.inputs[:at], *add.inputs, *node.inputs[at + 1 :]),
            in_specs=(*node.in_specs[:at], *add.in_specs, *node.in_specs[at + 1 :]),
        )
        nodes.pop(add.name)
        gone.add(total)
    return gone


def _fuse_norms(nodes: dict[str, Node]) -> None:
    """Put the sums of a batch norm into one node; where its statistics are frozen, dx with them."""
    for dg in [n for n in nodes.values() if isinstance(n.op, BatchNormDg)]:
        dy, x, mean, var = dg.inputs
        db = _of(nodes, ChannelSum, dg.layer, (dy,))
        if db is None:
            continue
        dx = next(
            (
                n
                for n in nodes.values()
                if isinstance(n.op, BatchNormDx) and (n.inputs[0], n.inputs[2]) == (dy, var)
            ),
            None,
        )
        assert isinstance(dg.op, BatchNormDg)
        nodes.pop(db.name)
        if dx is None:
            nodes[dg.name] = replace(
                dg,
                op=BatchNormSums(dg.op.eps),
                outputs=(*dg.outputs, *db.outputs),
                out_specs=(*dg.out_specs, *db.out_specs),
            )
            continue
        dy_spec, x_spec, mean_spec, var_spec = dg.in_specs
        fused = replace(
            dx,
            op=BatchNormGradients(dg.op.eps),
            inputs=(dy, x, dx.inputs[1], mean, var),
            in_specs=(dy_spec, x_spec, dx.in_specs[1], mean_spec, var_spec),
            outputs=(*dx.outputs, *dg.outputs, *db.outputs),
            out_specs=(*dx.out_specs, *dg.out_specs, *db.out_specs),
        )
        nodes.pop(dg.name)
        nodes[dx.name] = fused


def _of(nodes: dict[str, Node], kind: type[Op], layer: str, inputs: tuple[str, ...]) -> Node | None:
    """A layer's node of that kind with these inputs."""
    found = (n for n in nodes.values() if isinstance(n.op, kind) and n.layer == layer and n.inputs == inputs)
    return next(found, None)
