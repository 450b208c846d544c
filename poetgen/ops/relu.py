"""Relu: y = x < 0 ? 0 : x."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poetgen.op import Array, Call, Emit, Example, In, Kernel, Op, Out, Spec, Value, Work, f32


@dataclass(frozen=True)
class Relu(Op):
    """y = x < 0 ? 0 : x, so that a NaN passes."""

    onnx: ClassVar[str] = "Relu"
    in_place: ClassVar[tuple[int, ...]] = (0,)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        (x,) = inputs
        return (np.where(x < 0, x.dtype.type(0), x),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        return (Call(Kernel("poet_relu_f32", "relu"), (inputs[0].size, In(0), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads y, not x: x need not be kept."""
        assert douts[0] is not None
        return emit(ReluDx(), outputs[0], douts[0])

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Unrolled loop and its rest; NaN, infinities and both zeros."""
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40], np.float32)
        return (
            Example(cls(), (f32(2, 3, 4),)),
            Example(cls(), (f32(7),)),
            Example(cls(), (f32(1),)),
            Example(cls(), (special,)),
        )


@dataclass(frozen=True)
class ReluDx(Op):
    """dx = y <= 0 ? 0 : dy, inputs (y, dy)."""

    in_place: ClassVar[tuple[int, ...]] = (1, 0)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As y."""
        y, dy = inputs
        if y.shape != dy.shape:
            raise ValueError(f"y is {list(y.shape)}, its gradient {list(dy.shape)}")
        return (y,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        y, dy = inputs
        return (np.where(y <= 0, dy.dtype.type(0), dy),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        return (Call(Kernel("poet_relu_dx_f32", "relu"), (inputs[0].size, In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As Relu's."""
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
        return (
            Example(cls(), (f32(2, 3, 4), f32(2, 3, 4))),
            Example(cls(), (f32(7), f32(7))),
            Example(cls(), (f32(1), f32(1))),
            Example(cls(), (special, f32(5))),
        )
