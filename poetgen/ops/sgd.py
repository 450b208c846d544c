"""Stochastic gradient descent, plain and with momentum, as PyTorch defines it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poetgen.op import Array, Call, Example, In, Kernel, Op, Spec, Work, f32


def _check(inputs: Sequence[Spec]) -> None:
    w, dw, lr, *states = inputs
    for what, spec in (("gradient", dw), *(("state", s) for s in states)):
        if spec.shape != w.shape:
            raise ValueError(f"the parameter is {list(w.shape)}, its {what} {list(spec.shape)}")
    if lr.size != 1:
        raise ValueError(f"the learning rate is one number, not {list(lr.shape)}")


@dataclass(frozen=True)
class SgdUpdate(Op):
    """w -= lr g with g = dw + weight_decay w; inputs (w, dw, lr)."""

    weight_decay: float = 0.0

    mutates: ClassVar[tuple[int, ...]] = (0,)
    recomputable: ClassVar[bool] = False

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """No output: w changes in place."""
        _check(inputs)
        return ()

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The new w."""
        w, dw, lr = inputs
        g = dw + dw.dtype.type(self.weight_decay) * w if self.weight_decay else dw
        return (np.asarray(w - lr * g),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each parameter once."""
        return Work("update", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call; no multiplication where there is no decay."""
        n = inputs[0].size
        if self.weight_decay:
            kernel = Kernel("poet_sgd_decay_f32", "sgd")
            return (Call(kernel, (n, In(2), float(self.weight_decay), In(1), In(0))),)
        return (Call(Kernel("poet_sgd_f32", "sgd"), (n, In(2), In(1), In(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """With and without decay."""
        lr = np.array(0.1, np.float32)
        return tuple(
            Example(cls(decay), (f32(*shape), f32(*shape), lr))
            for decay in (0.0, 0.01)
            for shape in ((3, 4), (7,), (1,))
        )


@dataclass(frozen=True)
class MomentumUpdate(Op):
    """v = momentum v + g, then w -= lr v, with g = dw + weight_decay w; inputs (w, dw, lr, v)."""

    momentum: float
    weight_decay: float = 0.0

    mutates: ClassVar[tuple[int, ...]] = (0, 3)
    recomputable: ClassVar[bool] = False

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """No output: w and v change in place."""
        _check(inputs)
        return ()

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The new w and v."""
        w, dw, lr, v = inputs
        real = dw.dtype.type
        g = dw + real(self.weight_decay) * w if self.weight_decay else dw
        v = real(self.momentum) * v + g
        return np.asarray(w - lr * v), np.asarray(v)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each parameter and its velocity."""
        return Work("update", 2 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call; no multiplication where there is no decay."""
        n, momentum, decay = inputs[0].size, float(self.momentum), float(self.weight_decay)
        if decay:
            kernel = Kernel("poet_momentum_decay_f32", "sgd")
            return (Call(kernel, (n, In(2), momentum, decay, In(1), In(0), In(3))),)
        kernel = Kernel("poet_momentum_f32", "sgd")
        return (Call(kernel, (n, In(2), momentum, In(1), In(0), In(3))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """With and without decay."""
        lr = np.array(0.1, np.float32)
        return tuple(
            Example(cls(0.9, decay), (f32(*shape), f32(*shape), lr, f32(*shape)))
            for decay in (0.0, 0.01)
            for shape in ((3, 4), (7,), (1,))
        )
