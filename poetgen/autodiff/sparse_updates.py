"""Plain SGD on an embedding: only rows that the batch names change; no gradient has the table's size."""

from __future__ import annotations

from dataclasses import replace

from poetgen.autodiff.reverse import hazards_of, in_running_order
from poetgen.graph import Node, TrainingGraph
from poetgen.ops.gather import GatherDx, GatherSgd
from poetgen.ops.sgd import SgdUpdate


def sparse_updates(training: TrainingGraph) -> TrainingGraph:
    """The same training step, bit for bit; each table's gradient that only a plain SGD update reads is gone.

    With momentum, Adam or weight decay every row moves each step, as in PyTorch's dense embedding.
    """
    nodes: dict[str, Node] = {n.name: n for n in training.nodes}
    gone: set[str] = set()
    for update in training.nodes:
        if update.op != SgdUpdate():
            continue
        dw = update.inputs[1]
        gradient = training.producer.get(dw)
        if gradient is None or not isinstance(gradient.op, GatherDx) or training.readers[dw] != (update,):
            continue
        op = GatherSgd(gradient.op.axis)
        inputs = (update.inputs[0], *gradient.inputs, update.inputs[2])
        specs = (update.in_specs[0], *gradient.in_specs, update.in_specs[2])
        nodes[update.name] = replace(update, op=op, inputs=inputs, in_specs=specs, layer=gradient.layer)
        nodes.pop(gradient.name)
        gone.add(dw)
    if not gone:
        return training
    kept = tuple(nodes.values())
    hazards = hazards_of(kept)
    return replace(
        training,
        nodes=in_running_order(kept, hazards),
        tensors={k: t for k, t in training.tensors.items() if k not in gone},
        hazards=hazards,
    )
