"""Mean squared error: the mean over all elements, as in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poetgen.arithmetic import sum_in_order
from poetgen.op import Array, Call, Emit, Example, In, Kernel, Op, Out, Spec, Value, Work, f32


def _check(inputs: Sequence[Spec]) -> Spec:
    x, target = inputs
    if x.shape != target.shape or target.dtype != "f32":
        raise ValueError(
            f"it needs a float32 target of shape {list(x.shape)}, not {target.dtype} {list(target.shape)}"
        )
    return x


_SHAPES = ((4, 3), (7,), (1, 1), (2, 3, 5))


@dataclass(frozen=True)
class MeanSquaredError(Op):
    """loss = sum of (x - target)^2, row-major, divided by the elements; inputs (x, target)."""

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """One number."""
        _check(inputs)
        return (f32(),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """In the kernel's order."""
        x, target = inputs
        d = (x - target).reshape(-1)
        return (np.asarray(sum_in_order(d * d, (0,)) / d.dtype.type(d.size)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        kernel = Kernel("poet_mean_squared_error_f32", "mse")
        return (Call(kernel, (inputs[0].size, In(0), In(1), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads x and the target. The loss is the end of the graph: its own gradient is 1."""
        (dx,) = emit(MeanSquaredErrorDx(), *inputs)
        return dx, None

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single."""
        return tuple(Example(cls(), (f32(*s), f32(*s))) for s in _SHAPES)


@dataclass(frozen=True)
class MeanSquaredErrorDx(Op):
    """dx = (x - target) (2 / elements), the factor formed in double; inputs (x, target)."""

    in_place: ClassVar[tuple[int, ...]] = (0,)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        return (_check(inputs),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        x, target = inputs
        return (np.asarray((x - target) * x.dtype.type(2 / x.size)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        n = inputs[0].size
        kernel = Kernel("poet_mean_squared_error_dx_f32", "mse")
        return (Call(kernel, (n, 2 / n, In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single."""
        return tuple(Example(cls(), (f32(*s), f32(*s))) for s in _SHAPES)
