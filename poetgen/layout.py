"""Choose the order of images' bytes. In: TrainingGraph. Out: the same with rows layout where it can be.

In rows layout [n][y][c][x] a band of rows of all channels is one run in the store; that is what streaming
wants. Tensors that meet in an op that cannot mix layouts change together or not at all.
"""

from __future__ import annotations

from dataclasses import replace

from poetgen.graph import Node, TrainingGraph
from poetgen.op import Spec
from poetgen.ops.conv import Conv, ConvDw, ConvDx

MIXES = (Conv, ConvDx, ConvDw)
"""Ops whose operands may have different layouts: their kernels take strides for each."""


def to_rows(training: TrainingGraph) -> TrainingGraph:
    """Images of activations and gradients in rows layout, where every op that touches them takes it."""
    image = {t.name for t in training.tensors.values() if t.kind == "act" and _is_image(t.spec)}
    group: dict[str, str] = {t: t for t in image}

    def find(t: str) -> str:
        while group[t] != t:
            t = group[t]
        return t

    dense: set[str] = set()
    for node in training.nodes:
        touched = [
            (t, spec)
            for t, spec in (
                *zip(node.inputs, node.in_specs, strict=True),
                *zip(node.outputs, node.out_specs, strict=True),
            )
            if t in image
        ]
        for t, spec in touched:
            if not _takes_rows(node) or spec.shape != training.tensors[t].spec.shape:
                dense.add(t)
        fixed = [
            t
            for t, s in zip(node.inputs, node.in_specs, strict=True)
            if t not in image and training.tensors[t].kind in ("input", "const", "result") and _is_image(s)
        ]
        if not isinstance(_inner(node), MIXES):
            names = [t for t, _ in touched]
            for a in names[1:]:
                group[find(a)] = find(names[0])
            if fixed and names:
                dense.add(names[0])
    stay = {find(t) for t in dense}
    changed = {t for t in image if find(t) not in stay}
    return _rewritten(training, changed)


def _inner(node: Node) -> object:
    """The op that touches images: of a fused update, the gradient's."""
    return getattr(node.op, "gradient_op", node.op)


def _takes_rows(node: Node) -> bool:
    inner = _inner(node)
    return isinstance(inner, MIXES) or bool(getattr(inner, "rows", False))


def _is_image(spec: Spec) -> bool:
    """More than one row: else the two layouts are one."""
    return len(spec.shape) == 4 and spec.shape[2] > 1 and spec.dtype in ("f32", "u8")


def _rewritten(training: TrainingGraph, changed: set[str]) -> TrainingGraph:
    def of(names: tuple[str, ...], specs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        return tuple(
            replace(s, layout="rows") if n in changed else s for n, s in zip(names, specs, strict=True)
        )

    nodes = tuple(
        replace(n, in_specs=of(n.inputs, n.in_specs), out_specs=of(n.outputs, n.out_specs))
        for n in training.nodes
    )
    tensors = {
        k: replace(t, spec=replace(t.spec, layout="rows")) if k in changed else t
        for k, t in training.tensors.items()
    }
    return replace(training, nodes=nodes, tensors=tensors)
