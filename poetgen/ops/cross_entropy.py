"""Softmax and cross entropy in one: the loss of a classifier, its gradient, and its hits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poetgen.arithmetic import exp, log, sum_in_order
from poetgen.op import Array, Call, Emit, Example, In, Kernel, Op, Out, Spec, Value, Work, f32

_FAMILY = "cross_entropy"


def _check(inputs: Sequence[Spec]) -> tuple[Spec, Spec]:
    logits, label = inputs
    if len(logits.shape) != 2:
        raise ValueError(f"it needs logits of shape [N, classes], not {list(logits.shape)}")
    if label.shape != logits.shape[:1] or label.dtype != "i32":
        raise ValueError(f"it needs {logits.shape[0]} int32 labels, not {label.dtype} {list(label.shape)}")
    return logits, label


def _rows(logits: Array) -> tuple[Array, Array]:
    """Per row the largest logit, found as the kernel finds it, and e^(x - largest)."""
    largest = logits[:, 0]
    for column in logits.T[1:]:
        largest = np.where(column > largest, column, largest)
    with np.errstate(invalid="ignore"):  # inf - inf is the NaN that the loss is to show
        return largest, exp(logits - largest[:, None])


def _labels(rows: int, classes: int) -> Array:
    return (np.arange(rows, dtype=np.int32) * 7 + 1) % np.int32(classes)


def _examples(cls: type[Op]) -> tuple[Example, ...]:
    large = np.array([[90.0, -90.0, 3.0], [1e4, 0.0, -1e4]], np.float32)
    return (
        *(Example(cls(), (f32(n, c), _labels(n, c))) for n, c in ((4, 10), (1, 1), (3, 2), (5, 7))),
        Example(cls(), (large, np.array([1, 0], np.int32))),
    )


@dataclass(frozen=True)
class SoftmaxCrossEntropy(Op):
    """loss = sum over rows of (log sum e^(x - max) - (x[label] - max)), divided by the rows.

    Inputs (logits [N, C], label int32 [N]), output a scalar.
    """

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """One number."""
        _check(inputs)
        return (f32(),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Classes ascending, then rows ascending."""
        logits, label = inputs
        largest, e = _rows(logits)
        picked = logits[np.arange(len(label)), label]
        with np.errstate(invalid="ignore"):
            rows = log(sum_in_order(e, (1,))) - (picked - largest)
        return (np.asarray(sum_in_order(rows, (0,)) / rows.dtype.type(len(label))),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """One exponential a logit."""
        return Work("loss", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        kernel = Kernel("poet_softmax_cross_entropy_f32", _FAMILY)
        return (Call(kernel, (*inputs[0].shape, In(0), In(1), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads the logits. The loss is the end of the graph: its own gradient is 1."""
        (dlogits,) = emit(SoftmaxCrossEntropyDx(), *inputs)
        return (dlogits, None)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Usual, single, and logits whose exponential overflows."""
        return _examples(cls)


@dataclass(frozen=True)
class SoftmaxCrossEntropyDx(Op):
    """dlogits = (softmax - [class == label]) / rows; inputs (logits, label)."""

    in_place: ClassVar[tuple[int, ...]] = (0,)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As the logits."""
        logits, _ = _check(inputs)
        return (logits,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The sum over classes ascending."""
        logits, label = inputs
        _, e = _rows(logits)
        real = logits.dtype.type
        hot = np.arange(logits.shape[1]) == label[:, None]
        with np.errstate(invalid="ignore"):
            p = e / sum_in_order(e, (1,))[:, None]
        return (np.asarray((np.where(hot, p - real(1), p)) / real(len(label))),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """One exponential a logit."""
        return Work("loss", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        kernel = Kernel("poet_softmax_cross_entropy_dx_f32", _FAMILY)
        return (Call(kernel, (*inputs[0].shape, In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As the loss's."""
        return _examples(cls)


@dataclass(frozen=True)
class CountCorrect(Op):
    """How many rows have their first largest logit at the label; inputs (logits, label)."""

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """One int32."""
        _check(inputs)
        return (Spec((), "i32"),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The first of equals wins; a NaN never does, unless it comes first."""
        logits, label = inputs
        largest, _ = _rows(logits)
        at = np.argmax(logits == largest[:, None], axis=1)
        return (np.asarray(np.sum(at == label), np.int32),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each logit once."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        kernel = Kernel("poet_count_correct_f32", _FAMILY)
        return (Call(kernel, (*inputs[0].shape, In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Ties, and a NaN at the front and behind it."""
        ties = np.array([[1, 3, 3], [2, 2, 2], [np.nan, 1, 2], [0, np.nan, 1]], np.float32)
        return (
            *_examples(cls),
            *(Example(cls(), (ties, np.full(4, c, np.int32))) for c in range(3)),
        )
