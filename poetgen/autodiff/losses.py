"""Losses: the op, what its labels are, and which last activation it is computed before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from poetgen.errors import ModelError, UsageError
from poetgen.graph import Model, Node
from poetgen.op import Op, Spec
from poetgen.ops.bce import BinaryCrossEntropy
from poetgen.ops.cross_entropy import SoftmaxCrossEntropy
from poetgen.ops.mse import MeanSquaredError
from poetgen.ops.sigmoid import Sigmoid
from poetgen.ops.softmax import LogSoftmax, Softmax


@dataclass(frozen=True)
class Loss:
    """``Loss(SoftmaxCrossEntropy, classes=True, absorbs=(Softmax, LogSoftmax))``."""

    op: type[Op]
    classes: bool
    """Labels are int32 class indices; else float32 of the output's shape."""
    absorbs: tuple[type[Op], ...] = ()
    """A last activation that the loss contains: it attaches before it."""


LOSSES: Mapping[str, Loss] = {
    "cross_entropy": Loss(SoftmaxCrossEntropy, True, (Softmax, LogSoftmax)),
    "mse": Loss(MeanSquaredError, False),
    "bce": Loss(BinaryCrossEntropy, False, (Sigmoid,)),
}


def loss_named(name: str) -> Loss:
    """The loss of a name; UsageError where there is none."""
    if name not in LOSSES:
        raise UsageError(f"unknown loss {name!r}", hint=f"one of: {', '.join(LOSSES)}")
    return LOSSES[name]


def attachment(model: Model, loss: Loss, output: str) -> tuple[str, str]:
    """The tensor that takes the loss, and a note where that is not the output itself."""
    node = _maker(model, output)
    if node is None or not isinstance(node.op, loss.absorbs):
        return output, ""
    if isinstance(node.op, Softmax | LogSoftmax):
        rows, _, inner = node.op.along.sizes(node.in_specs[0].shape)
        if rows != node.in_specs[0].shape[0] or inner != 1:
            raise ModelError(
                f"the output passes {node.name!r}, a {type(node.op).__name__} over "
                f"axis {node.op.along.axis} of {list(node.in_specs[0].shape)}, which is not the class axis",
                hint="choose the output before it: --output NAME, or another --loss",
            )
    what = type(node.op).__name__
    return node.inputs[0], f"the loss attaches before the final {what} {node.name!r}, which it contains"


def label_spec(loss: Loss, output: Spec) -> Spec:
    """What one batch of labels is."""
    return Spec(output.shape[:1], "i32") if loss.classes else output


def _maker(model: Model, tensor: str) -> Node | None:
    """The node that computes a tensor, seen through views."""
    makers = {o: n for n in model.nodes for o in n.outputs}
    while tensor in makers and makers[tensor].op.view:
        tensor = makers[tensor].inputs[0]
    return makers.get(tensor)
