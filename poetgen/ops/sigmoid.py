"""Sigmoid and Tanh: what y tells is all that their gradients need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poetgen.arithmetic import sigmoid, tanh
from poetgen.op import Array, Call, Emit, Example, In, Kernel, Op, Out, Spec, Value, Work, f32

_FAMILY = "sigmoid"


class _Elementwise:
    """What all four share; ``kernel`` is the symbol."""

    kernel: ClassVar[str]

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        if len({s.shape for s in inputs}) != 1 or inputs[0].dtype != "f32":
            raise ValueError(f"its operands are {[(s.dtype, list(s.shape)) for s in inputs]}")
        return (inputs[0],)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        operands = tuple(In(i) for i in range(len(inputs)))
        return (Call(Kernel(self.kernel, _FAMILY), (inputs[0].size, *operands, Out(0))),)


_SPECIAL = np.array([np.nan, np.inf, -np.inf, 100, -100, 1e-40, -0.0], np.float32)


@dataclass(frozen=True)
class Sigmoid(_Elementwise, Op):
    """y = 1 / (1 + e^-x)."""

    onnx: ClassVar[str] = "Sigmoid"
    in_place: ClassVar[tuple[int, ...]] = (0,)
    rows: ClassVar[bool] = True
    kernel: ClassVar[str] = "poet_sigmoid_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        return (sigmoid(inputs[0]),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """One exponential an element."""
        return Work("loss", inputs[0].size)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads y, not x."""
        assert douts[0] is not None
        return emit(SigmoidDx(), outputs[0], douts[0])

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(), (x,)) for x in (f32(2, 3, 5), f32(1), _SPECIAL))


@dataclass(frozen=True)
class SigmoidDx(_Elementwise, Op):
    """dx = dy (y (1 - y)); inputs (y, dy)."""

    in_place: ClassVar[tuple[int, ...]] = (1, 0)
    rows: ClassVar[bool] = True
    kernel: ClassVar[str] = "poet_sigmoid_dx_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        y, dy = inputs
        return (np.asarray(dy * (y * (y.dtype.type(1) - y))),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", inputs[0].size)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single."""
        return tuple(Example(cls(), (f32(*s), f32(*s))) for s in ((2, 3, 5), (1,)))


@dataclass(frozen=True)
class Tanh(_Elementwise, Op):
    """y = tanh x."""

    onnx: ClassVar[str] = "Tanh"
    in_place: ClassVar[tuple[int, ...]] = (0,)
    rows: ClassVar[bool] = True
    kernel: ClassVar[str] = "poet_tanh_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        return (tanh(inputs[0]),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """One exponential an element."""
        return Work("loss", inputs[0].size)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads y, not x."""
        assert douts[0] is not None
        return emit(TanhDx(), outputs[0], douts[0])

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(), (x,)) for x in (f32(2, 3, 5), f32(1), _SPECIAL))


@dataclass(frozen=True)
class TanhDx(_Elementwise, Op):
    """dx = dy (1 - y y); inputs (y, dy)."""

    in_place: ClassVar[tuple[int, ...]] = (1, 0)
    rows: ClassVar[bool] = True
    kernel: ClassVar[str] = "poet_tanh_dx_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        y, dy = inputs
        return (np.asarray(dy * (y.dtype.type(1) - y * y)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", inputs[0].size)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single."""
        return tuple(Example(cls(), (f32(*s), f32(*s))) for s in ((2, 3, 5), (1,)))
