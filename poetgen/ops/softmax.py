"""Softmax and LogSoftmax along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poetgen.arithmetic import exp, log, sum_in_order
from poetgen.op import (
    Array,
    Call,
    Emit,
    Example,
    In,
    Kernel,
    OnnxNode,
    Op,
    Out,
    Spec,
    Value,
    Work,
    f32,
)

_FAMILY = "softmax"
Ints = tuple[int, ...]


@dataclass(frozen=True)
class Along:
    """Where sums run: one axis; below opset 13 (``to_end``) all axes from it to the last as one."""

    axis: int
    to_end: bool = False

    def sizes(self, shape: Ints) -> tuple[int, int, int]:
        """Rows, elements that share a sum, elements between them."""
        if not -len(shape) <= self.axis < len(shape):
            raise ValueError(f"axis {self.axis} is outside {list(shape)}")
        axis = self.axis % len(shape)
        after = math.prod(shape[axis + 1 :])
        if self.to_end:
            return math.prod(shape[:axis]), shape[axis] * after, 1
        return math.prod(shape[:axis]), shape[axis], after

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Along:
        """The default axis is the last from opset 13 on, the second below."""
        if node.opset < 13:
            return cls(int(node.take("axis", 1)), True)
        return cls(int(node.take("axis", -1)))


def _exponentials(x: Array) -> tuple[Array, Array, Array]:
    """Of [rows, n, inner]: x - max, e^that, and its sum along n."""
    largest = x[:, 0]
    for k in range(1, x.shape[1]):
        largest = np.where(x[:, k] > largest, x[:, k], largest)
    with np.errstate(invalid="ignore"):  # inf - inf is the NaN that the loss is to show
        d = x - largest[:, None]
    e = exp(d)
    return d, e, sum_in_order(e, (1,))


class _Along:
    """What all four share."""

    along: Along

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        if len({s.shape for s in inputs}) != 1:
            raise ValueError(f"its operands differ: {[list(s.shape) for s in inputs]}")
        self.along.sizes(inputs[0].shape)
        return (inputs[0],)


_CASES: tuple[tuple[Along, Ints], ...] = (
    (Along(-1), (4, 10)),
    (Along(-1), (3, 1)),
    (Along(1), (2, 3, 4)),
    (Along(0), (5,)),
    (Along(1, True), (2, 3, 4)),
    (Along(1, True), (2, 7)),
)


def _opset(along: Along) -> int:
    return 11 if along.to_end else 17


@dataclass(frozen=True)
class Softmax(_Along, Op):
    """y = e / sum e, e = e^(x - max), along an axis."""

    along: Along

    onnx: ClassVar[str] = "Softmax"
    in_place: ClassVar[Ints] = (0,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Axis ascending."""
        (x,) = inputs
        _, e, total = _exponentials(x.reshape(self.along.sizes(x.shape)))
        with np.errstate(invalid="ignore"):
            return ((e / total[:, None]).reshape(x.shape),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """One exponential an element."""
        return Work("loss", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        sizes = self.along.sizes(inputs[0].shape)
        return (Call(Kernel("poet_softmax_f32", _FAMILY), (*sizes, In(0), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads y, not x."""
        assert douts[0] is not None
        return emit(SoftmaxDx(self.along), outputs[0], douts[0])

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {"axis": self.along.axis}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """See Along."""
        return cls(Along.from_onnx(node)), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Last, first, middle axis; both rules; exponentials that overflow."""
        large = np.array([[90.0, -90.0, 3.0], [1e4, 0.0, np.inf]], np.float32)
        return (
            *(Example(cls(a), (f32(*s),), _opset(a)) for a, s in _CASES),
            Example(cls(Along(-1)), (large,)),
        )


@dataclass(frozen=True)
class SoftmaxDx(_Along, Op):
    """dx = y (dy - t), t = sum dy y along the axis; inputs (y, dy)."""

    along: Along

    in_place: ClassVar[Ints] = (1, 0)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Axis ascending."""
        y, dy = (a.reshape(self.along.sizes(a.shape)) for a in inputs)
        total = sum_in_order(dy * y, (1,))
        return ((y * (dy - total[:, None])).reshape(inputs[0].shape),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Two visits an element."""
        return Work("elementwise", 2 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        sizes = self.along.sizes(inputs[0].shape)
        return (Call(Kernel("poet_softmax_dx_f32", _FAMILY), (*sizes, In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Softmax's."""
        return tuple(Example(cls(a), (f32(*s), f32(*s))) for a, s in _CASES)


@dataclass(frozen=True)
class LogSoftmax(_Along, Op):
    """y = (x - max) - log sum e^(x - max), along an axis."""

    along: Along

    onnx: ClassVar[str] = "LogSoftmax"
    in_place: ClassVar[Ints] = (0,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Axis ascending."""
        (x,) = inputs
        d, _, total = _exponentials(x.reshape(self.along.sizes(x.shape)))
        with np.errstate(invalid="ignore"):
            return ((d - log(total)[:, None]).reshape(x.shape),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """One exponential an element."""
        return Work("loss", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        sizes = self.along.sizes(inputs[0].shape)
        return (Call(Kernel("poet_log_softmax_f32", _FAMILY), (*sizes, In(0), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads y, not x."""
        assert douts[0] is not None
        return emit(LogSoftmaxDx(self.along), outputs[0], douts[0])

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {"axis": self.along.axis}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """See Along."""
        return cls(Along.from_onnx(node)), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Softmax's."""
        return tuple(Example(cls(a), (f32(*s),), _opset(a)) for a, s in _CASES)


@dataclass(frozen=True)
class LogSoftmaxDx(_Along, Op):
    """dx = dy - e^y t, t = sum dy along the axis; inputs (y, dy)."""

    along: Along

    in_place: ClassVar[Ints] = (1, 0)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Axis ascending."""
        y, dy = (a.reshape(self.along.sizes(a.shape)) for a in inputs)
        total = sum_in_order(dy, (1,))
        return ((dy - exp(y) * total[:, None]).reshape(inputs[0].shape),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """One exponential an element."""
        return Work("loss", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        sizes = self.along.sizes(inputs[0].shape)
        return (Call(Kernel("poet_log_softmax_dx_f32", _FAMILY), (*sizes, In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Softmax's."""
        return tuple(Example(cls(a), (f32(*s), f32(*s))) for a, s in _CASES)
