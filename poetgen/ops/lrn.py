"""LRN: each element divided by a power of the squares of the channels around it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poetgen.arithmetic import exp, log
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
    Struct,
    Value,
    Work,
    Workspace,
    f32,
)

Ints = tuple[int, ...]
_FAMILY = "lrn"


@dataclass(frozen=True)
class Around:
    """``size`` channels around each, and the constants."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    @property
    def before(self) -> int:
        """Channels before it; the rest, one more where size is even, come after."""
        return (self.size - 1) // 2

    def check(self, *specs: Spec) -> None:
        """Raise ValueError for what is no image."""
        if len(specs[0].shape) < 2 or any(s.shape != specs[0].shape for s in specs) or self.size < 1:
            raise ValueError(f"{self.size} channels around each of {[list(s.shape) for s in specs]}")

    def struct(self, x: Spec) -> Struct:
        """The kernel's sizes; the factors are formed in double."""
        return Struct(
            "struct poet_lrn",
            (
                ("batch", x.shape[0]),
                ("channels", x.shape[1]),
                ("inner", math.prod(x.shape[2:])),
                ("before", self.before),
                ("after", self.size - 1 - self.before),
                ("factor", float(self.alpha) / self.size),
                ("beta", float(self.beta)),
                ("bias", float(self.bias)),
                ("twice", 2 * float(self.alpha) * float(self.beta) / self.size),
            ),
        )

    def powers(self, x: Array) -> tuple[Array, Array]:
        """s and s^-beta, s = bias + factor S x x; channels ascending."""
        real = x.dtype.type
        s = np.zeros_like(x)
        for c in range(x.shape[1]):
            for k in range(max(0, c - self.before), min(x.shape[1], c + self.size - self.before)):
                s[:, c] += x[:, k] * x[:, k]
        s = np.asarray(real(self.bias) + real(self.alpha / self.size) * s)
        return s, exp(np.asarray(real(-self.beta) * log(s)))


_CASES: tuple[tuple[Around, Ints], ...] = (
    (Around(5), (2, 7, 3, 4)),
    (Around(3, 0.5, 0.5, 2.0), (1, 4, 5, 1)),
    (Around(9, 0.1), (2, 3, 2, 1)),
    (Around(5, 1.5, 1.25, 0.5), (2, 6, 2, 2)),
    (Around(1), (1, 1, 1, 1)),
)
_EVEN: tuple[tuple[Around, Ints], ...] = ((Around(4, 1.5, 1.25, 0.5), (2, 6, 3)),)
"""Which ONNX Runtime does not take."""


@dataclass(frozen=True)
class Lrn(Op):
    """y = x s^-beta, s = bias + alpha / size S x x over the channels around; s^-beta = e^(-beta log s)."""

    around: Around

    onnx: ClassVar[str] = "LRN"

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        self.around.check(*inputs)
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Channels ascending."""
        (x,) = inputs
        return (np.asarray(x * self.around.powers(x)[1]),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """A window and two functions an element."""
        return Work("loss", inputs[0].size * 2)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        return (Call(Kernel("poet_lrn_f32", _FAMILY), (self.around.struct(inputs[0]), In(0), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads x."""
        assert douts[0] is not None
        return emit(LrnDx(self.around), inputs[0], douts[0])

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        a = self.around
        return {"size": a.size, "alpha": a.alpha, "beta": a.beta, "bias": a.bias}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """Four attributes."""
        return cls(
            Around(
                int(node.take("size", 0)),
                float(node.take("alpha", 1e-4)),
                float(node.take("beta", 0.75)),
                float(node.take("bias", 1.0)),
            )
        ), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, larger than the channels, one."""
        return tuple(Example(cls(a), (f32(*x),)) for a, x in _CASES)


@dataclass(frozen=True)
class LrnDx(Op):
    """dx = dy p - (twice x) S t, p = s^-beta, t = ((dy x) p) / s over the channels that x is around.

    Channels ascending; inputs (x, dy), twice = 2 alpha beta / size.
    """

    around: Around

    in_place: ClassVar[Ints] = ()

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        self.around.check(*inputs)
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """In the kernel's order."""
        x, dy = inputs
        a, real = self.around, x.dtype.type
        s, p = a.powers(x)
        t = ((dy * x) * p) / s
        total = np.zeros_like(x)
        for c in range(x.shape[1]):
            for k in range(max(0, c + a.before + 1 - a.size), min(x.shape[1], c + a.before + 1)):
                total[:, c] += t[:, k]
        twice = real(2 * a.alpha * a.beta / a.size)
        return (np.asarray(dy * p - (twice * x) * total),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Two windows and two functions an element."""
        return Work("loss", inputs[0].size * 3)

    def workspace_bytes(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> int:
        """t of one position's channels."""
        return 4 * inputs[0].shape[1]

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        kernel = Kernel("poet_lrn_dx_f32", _FAMILY)
        return (Call(kernel, (self.around.struct(inputs[0]), In(0), In(1), Workspace(), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Lrn's, and even ones."""
        return tuple(Example(cls(a), (f32(*x), f32(*x))) for a, x in (*_CASES, *_EVEN))
