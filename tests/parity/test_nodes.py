"""Node by node: float32 arithmetic stays within a bound of float64's on the same inputs.

The bound is EACH x sqrt(length of the longest sum), in units of the tensor's largest magnitude; the
length, in roundings, is set once per op, here. Samples may cancel (the gradient of a bias before a batch
norm is zero): for a sum over the batch, the largest magnitude is that of the running sum after any sample.

The inputs are those of a whole training run in float64, rounded to float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from poetgen.graph import Node
from poetgen.op import Array
from tests.parity.nets import Oracle, Walk, each_oracle, largest

EACH = 2.5e-7
SUBNORMAL = 2.0**-149
"""What float32 cannot resolve: Adam's second moment of a gradient that is zero but for rounding."""


def one(node: Node) -> int:
    return 1


def macs(node: Node) -> int:
    """Roundings of one output: a product's and a sum's for each multiply-accumulate."""
    return 2 * node.op.work(node.in_specs, node.out_specs).count // node.out_specs[0].size


def channel(node: Node) -> int:
    """Elements of one channel of the first operand."""
    return node.in_specs[0].size // node.in_specs[0].shape[1]


def averaged(node: Node) -> int:
    return node.in_specs[0].size // node.out_specs[0].size


def window(node: Node) -> int:
    """A gradient's element gets something from each window it lies in: no more than a window's size."""
    op: Any = getattr(node.op, "forward", node.op)
    return math.prod(op.window.kernel)


def whole(node: Node) -> int:
    return node.in_specs[0].size


def few(node: Node) -> int:
    """Functions of the runtime's own, within 3 ulp, and what is done to their result; roots and quotients."""
    return 6


def last(node: Node) -> int:
    return node.in_specs[0].shape[-1]


def tokens(node: Node) -> int:
    """Rows of features, or ids."""
    return node.in_specs[1].size // (1 if type(node.op).__name__ == "GatherDx" else last(node))


LENGTH: Mapping[str, Callable[[Node], int]] = {
    "AdamAdvance": one,
    "AdamUpdate": few,
    "Add": one,
    "AddRelu": one,
    "AddReluDx": one,
    "AveragePool": window,
    "AveragePoolDx": window,
    "BatchNorm": one,
    "BatchNormAddRelu": one,
    "BatchNormAddReluDx": channel,
    "BatchNormDg": channel,
    "BatchNormDx": one,
    "BatchNormRelu": one,
    "BatchNormReluDx": channel,
    "BatchNormTrain": channel,
    "BatchNormTrainDx": one,
    "Cast": one,
    "ChannelSum": channel,
    "Clip": one,
    "ClipDx": one,
    "Concat": one,
    "Conv": macs,
    "ConvDw": macs,
    "ConvDx": macs,
    "ConvTranspose": macs,
    "ConvTransposeDx": macs,
    "Div": one,
    "Gather": one,
    "GatherDx": tokens,
    "Gelu": few,
    "GeluDx": few,
    "Gemm": macs,
    "GemmDw": macs,
    "GemmDx": macs,
    "HardSwish": one,
    "HardSwishDx": few,
    "LayerNorm": last,
    "LayerNormDg": tokens,
    "LayerNormDx": last,
    "LeakyRelu": one,
    "LeakyReluDx": one,
    "MatMul": macs,
    "MatMulDa": macs,
    "MatMulDb": macs,
    "MaxPool": one,
    "MaxPoolDx": window,
    "Mean": averaged,
    "MeanDx": one,
    "MeanSquaredError": whole,
    "MeanSquaredErrorDx": one,
    "MomentumUpdate": one,
    "Mul": one,
    "PermutedMatMul": macs,
    "Place": one,
    "ReduceSum": averaged,
    "ReduceSumDx": one,
    "Relu": one,
    "ReluDx": one,
    "SgdUpdate": one,
    "Sigmoid": few,
    "SigmoidDx": few,
    "Slice": one,
    "Softmax": last,
    "SoftmaxCrossEntropy": whole,
    "SoftmaxCrossEntropyDx": one,
    "SoftmaxDx": last,
    "StatisticUpdate": one,
    "Sub": one,
    "SumTo": averaged,
    "Tanh": few,
    "TanhDx": few,
    "Transpose": one,
}


OVER_THE_BATCH: Mapping[str, int] = {
    "ChannelSum": 1,
    "BatchNormDg": 2,
    "BatchNormReluDx": 2,
    "BatchNormAddReluDx": 3,
    "ConvDw": 2,
}
"""Ops that sum over the samples, and how many of their first operands have samples."""


def on_the_way(node: Node, read: tuple[Array, ...]) -> list[float]:
    """The largest that each output reaches after any of the samples; for means, what they are means of."""
    if type(node.op).__name__ == "LayerNorm":
        return [0.0, largest(read[:1]), 0.0]
    over = OVER_THE_BATCH.get(type(node.op).__name__, 0)
    samples = range(1, len(read[0]) + 1) if over else ()
    parts = [node.op.reference(*(a[:k] for a in read[:over]), *read[over:]) for k in samples]
    return [largest(outputs) for outputs in zip(*parts, strict=True)]


@pytest.mark.parametrize("oracle", each_oracle())
def test_every_node_is_as_exact_as_float32_sums_are(oracle: Oracle) -> None:
    walk = Walk(oracle.graph(), np.float64)
    worst: dict[str, tuple[float, str]] = {}
    count = 0

    def seen(node: Node, read: tuple[Array, ...], made: tuple[Array, ...]) -> None:
        nonlocal count
        narrow = tuple(a.astype(np.float32) if a.dtype.kind == "f" else a for a in read)
        wide = tuple(a.astype(np.float64) if a.dtype.kind == "f" else a for a in narrow)
        op = type(node.op).__name__
        reached = on_the_way(node, wide)
        for k, (got, true) in enumerate(
            zip(node.op.reference(*narrow), node.op.reference(*wide), strict=True)
        ):
            count += 1
            if true.dtype.kind != "f":
                assert np.array_equal(got, true), f"{node.name}: indices differ"
                continue
            assert np.asarray(got).dtype == np.float32, f"{node.name} leaves float32"
            scale = max([largest([true]), *reached[k : k + 1]]) or 1.0
            bound = EACH * math.sqrt(LENGTH[op](node)) * scale + SUBNORMAL
            worst[op] = max(worst.get(op, (0.0, "")), (largest([got - true]) / bound, node.name))

    for step in range(oracle.steps):
        walk.train_step(*oracle.batch(step), oracle.lr, seen)
    print(f"{count} outputs;", *(f"{op} {off:.2f}" for op, (off, _) in sorted(worst.items())))
    missed = [
        f"{op}: {off:.2f} of its bound at {where}" for op, (off, where) in worst.items() if not off <= 1
    ]
    assert count
    assert not missed, "\n".join(missed)
