"""Fine-tune for other classes: a model whose last dense layer is a fresh one. In: Model. Out: Model.

The last Gemm gets weights and bias drawn uniformly from +-1 / sqrt(inputs), as PyTorch starts a Linear:
weights in row-major order of [classes, inputs], then the bias, from numpy's PCG64 with the given seed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from poetgen.errors import ModelError, UsageError
from poetgen.graph import Model, Node
from poetgen.op import Spec
from poetgen.ops.gemm import Gemm


def with_classes(model: Model, classes: int, seed: int = 0) -> Model:
    """The same model with ``classes`` outputs.

    Raises:
        UsageError: fewer than two classes.
        ModelError: the model does not end in a dense layer whose weights are its own.
    """
    if classes < 2:
        raise UsageError(f"--classes {classes}: a classifier tells at least 2 apart")
    last = _last_dense(model)
    op = last.op
    assert isinstance(op, Gemm)
    weight, bias = last.inputs[1], last.inputs[2] if len(last.inputs) > 2 else None
    inputs = last.in_specs[1].shape[1 if op.trans_b else 0]
    limit = 1 / math.sqrt(inputs)
    rng = np.random.Generator(np.random.PCG64(seed))
    fresh = rng.uniform(-limit, limit, (classes, inputs)).astype(np.float32)
    parameters = dict(model.parameters)
    parameters[weight] = fresh if op.trans_b else np.ascontiguousarray(fresh.T)
    if bias is not None:
        if model.parameters[bias].ndim != 1:
            raise ModelError(
                f"{last.name!r} has a bias of shape {list(model.parameters[bias].shape)}, not [classes]"
            )
        parameters[bias] = rng.uniform(-limit, limit, classes).astype(np.float32)
    specs = {k: t.spec for k, t in model.tensors.items()}
    specs |= {name: Spec(tuple(parameters[name].shape)) for name in (weight, bias) if name is not None}
    nodes: list[Node] = []
    changed = {weight, *((bias,) if bias else ())}
    for node in model.nodes:
        if changed & set(node.inputs):
            try:
                outs = node.op.infer(*(specs[i] for i in node.inputs))
            except ValueError as error:
                raise ModelError(
                    f"{node.name!r} does not take {classes} classes: {error}",
                    hint="export the model so that it ends in its last dense layer",
                ) from error
            specs |= dict(zip(node.outputs, outs, strict=True))
            changed |= set(node.outputs)
            node = replace(node, in_specs=tuple(specs[i] for i in node.inputs), out_specs=outs)
        nodes.append(node)
    tensors = {k: replace(t, spec=specs[k]) for k, t in model.tensors.items()}
    note = f"{last.name!r} starts afresh with {classes} classes (seed {seed})"
    return replace(
        model, nodes=tuple(nodes), tensors=tensors, parameters=parameters, notes=(*model.notes, note)
    )


def _last_dense(model: Model) -> Node:
    """The Gemm that the output comes from, through nodes without parameters of their own."""
    makers = {o: n for n in model.nodes for o in n.outputs}
    at = model.outputs[0]
    while at in makers:
        node = makers[at]
        if isinstance(node.op, Gemm):
            shared = [n for n in model.nodes if n is not node and set(n.inputs) & set(node.inputs[1:])]
            if not all(i in model.parameters for i in node.inputs[1:]) or shared:
                break
            return node
        at = node.inputs[0]
    raise ModelError(
        f"{model.name} does not end in a dense layer, so --classes cannot replace it",
        hint="export a model whose last layer is a Linear or Dense",
    )
