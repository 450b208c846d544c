"""Binary cross entropy of logits: sigmoid and loss in one, the mean over all elements as in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poetgen.arithmetic import exp, log, sigmoid, sum_in_order
from poetgen.op import Array, Call, Emit, Example, In, Kernel, Op, Out, Spec, Value, Work, f32


def _check(inputs: Sequence[Spec]) -> Spec:
    x, target = inputs
    if x.shape != target.shape or target.dtype != "f32":
        raise ValueError(
            f"it needs a float32 target of shape {list(x.shape)}, not {target.dtype} {list(target.shape)}"
        )
    return x


def _examples(cls: type[Op]) -> tuple[Example, ...]:
    rng = np.random.default_rng(4)
    large = np.array([200, -200, 90, -90], np.float32)
    return (
        *(
            Example(cls(), (f32(*s), rng.integers(0, 2, s).astype(np.float32)))
            for s in ((4, 3), (7,), (1, 1))
        ),
        Example(cls(), (large, np.array([0, 1, 1, 0.25], np.float32))),
    )


@dataclass(frozen=True)
class BinaryCrossEntropy(Op):
    """loss = sum of (max(x, 0) - x t) + log(1 + e^-|x|), row-major, divided by the elements.

    Inputs (logits, target in 0 .. 1).
    """

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """One number."""
        _check(inputs)
        return (f32(),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """In the kernel's order."""
        x, t = (a.reshape(-1) for a in inputs)
        real = x.dtype.type
        linear = np.where(x < 0, real(0), x) - x * t
        terms = linear + log(real(1) + exp(np.where(x < 0, x, -x)))
        return (np.asarray(sum_in_order(terms, (0,)) / real(x.size)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """One exponential and one logarithm an element."""
        return Work("loss", 2 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        kernel = Kernel("poet_binary_cross_entropy_f32", "bce")
        return (Call(kernel, (inputs[0].size, In(0), In(1), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads logits and target. The loss is the end of the graph: its own gradient is 1."""
        (dx,) = emit(BinaryCrossEntropyDx(), *inputs)
        return dx, None

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, and logits whose exponential overflows."""
        return _examples(cls)


@dataclass(frozen=True)
class BinaryCrossEntropyDx(Op):
    """dx = (sigmoid x - t) (1 / elements), the factor formed in double; inputs (logits, target)."""

    in_place: ClassVar[tuple[int, ...]] = (0,)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As the logits."""
        return (_check(inputs),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        x, t = inputs
        return (np.asarray((sigmoid(x) - t) * x.dtype.type(1 / x.size)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """One exponential an element."""
        return Work("loss", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        n = inputs[0].size
        kernel = Kernel("poet_binary_cross_entropy_dx_f32", "bce")
        return (Call(kernel, (n, 1 / n, In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As the loss's."""
        return _examples(cls)
