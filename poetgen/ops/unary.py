"""Functions of one number: Erf, Sqrt, Exp, Log, Abs, Reciprocal, Pow by a constant; and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from poetgen.arithmetic import erf, exp, log, sqrt
from poetgen.op import Array, Call, Emit, Example, In, Kernel, OnnxNode, Op, Out, Spec, Value, Work, f32
from poetgen.ops.add import Div, Mul

WorkKind = Literal["elementwise", "loss"]
SPECIAL = np.array([np.nan, np.inf, -np.inf, 100, -100, 1e-40, 0.0, -0.0], np.float32)
POSITIVE = np.random.default_rng(3).uniform(0.2, 4, (2, 3, 2, 5)).astype(np.float32)
ODD = (f32(2, 3, 2, 5), f32(1))


class Elementwise:
    """One kernel over all elements; ``kernel`` and ``family`` name it, ``numbers`` are its constants."""

    kernel: ClassVar[str]
    rows: ClassVar[bool] = True
    family: ClassVar[str] = "unary"
    kind: ClassVar[WorkKind] = "elementwise"
    """loss: one exponential or so an element."""

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        if len({s.shape for s in inputs}) != 1 or any(s.dtype != "f32" for s in inputs):
            raise ValueError(f"its operands are {[(s.dtype, list(s.shape)) for s in inputs]}")
        return (inputs[0],)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work(self.kind, inputs[0].size)

    def numbers(self) -> tuple[int | float, ...]:
        """The kernel's constants, after the count."""
        return ()

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        operands = tuple(In(i) for i in range(len(inputs)))
        kernel = Kernel(self.kernel, self.family)
        return (Call(kernel, (inputs[0].size, *self.numbers(), *operands, Out(0))),)


@dataclass(frozen=True)
class Erf(Elementwise, Op):
    """y = erf x."""

    onnx: ClassVar[str] = "Erf"
    in_place: ClassVar[tuple[int, ...]] = (0,)
    kernel: ClassVar[str] = "poet_erf_f32"
    kind: ClassVar[WorkKind] = "loss"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        return (erf(inputs[0]),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads x."""
        assert douts[0] is not None
        return emit(ErfDx(), inputs[0], douts[0])

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(), (x,)) for x in (*ODD, SPECIAL))


@dataclass(frozen=True)
class ErfDx(Elementwise, Op):
    """dx = dy (2 / sqrt(pi) e^-(x x)); inputs (x, dy)."""

    in_place: ClassVar[tuple[int, ...]] = (1, 0)
    kernel: ClassVar[str] = "poet_erf_dx_f32"
    kind: ClassVar[WorkKind] = "loss"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        x, dy = inputs
        return (np.asarray(dy * (x.dtype.type(2 / np.sqrt(np.pi)) * exp(-(x * x)))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(), (x, f32(*x.shape))) for x in (*ODD, SPECIAL))


@dataclass(frozen=True)
class Sqrt(Elementwise, Op):
    """y = sqrt x; NaN below 0."""

    onnx: ClassVar[str] = "Sqrt"
    in_place: ClassVar[tuple[int, ...]] = (0,)
    kernel: ClassVar[str] = "poet_sqrt_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        return (sqrt(inputs[0]),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads y, not x."""
        assert douts[0] is not None
        return emit(SqrtDx(), outputs[0], douts[0])

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Positive, special."""
        return tuple(Example(cls(), (x,)) for x in (POSITIVE, SPECIAL))


@dataclass(frozen=True)
class SqrtDx(Elementwise, Op):
    """dx = dy / (y + y); inputs (y, dy)."""

    in_place: ClassVar[tuple[int, ...]] = (1, 0)
    kernel: ClassVar[str] = "poet_sqrt_dx_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        y, dy = inputs
        with np.errstate(all="ignore"):
            return (np.asarray(dy / (y + y)),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Positive, special."""
        return tuple(Example(cls(), (x, f32(*x.shape))) for x in (POSITIVE, SPECIAL))


@dataclass(frozen=True)
class Exp(Elementwise, Op):
    """y = e^x."""

    onnx: ClassVar[str] = "Exp"
    in_place: ClassVar[tuple[int, ...]] = (0,)
    kernel: ClassVar[str] = "poet_exp_f32"
    kind: ClassVar[WorkKind] = "loss"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        return (exp(inputs[0]),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """dy y: reads y, not x."""
        assert douts[0] is not None
        return emit(Mul(), douts[0], outputs[0])

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(), (x,)) for x in (*ODD, SPECIAL))


@dataclass(frozen=True)
class Log(Elementwise, Op):
    """y = log x; -inf at 0, NaN below."""

    onnx: ClassVar[str] = "Log"
    in_place: ClassVar[tuple[int, ...]] = (0,)
    kernel: ClassVar[str] = "poet_log_f32"
    kind: ClassVar[WorkKind] = "loss"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        return (log(inputs[0]),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """dy / x."""
        assert douts[0] is not None
        return emit(Div(), douts[0], inputs[0])

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Positive, special."""
        return tuple(Example(cls(), (x,)) for x in (POSITIVE, SPECIAL))


@dataclass(frozen=True)
class Abs(Elementwise, Op):
    """y = x < 0 ? -x : x."""

    onnx: ClassVar[str] = "Abs"
    in_place: ClassVar[tuple[int, ...]] = (0,)
    kernel: ClassVar[str] = "poet_abs_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        (x,) = inputs
        return (np.where(x < 0, -x, x),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads x."""
        assert douts[0] is not None
        return emit(AbsDx(), inputs[0], douts[0])

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(), (x,)) for x in (*ODD, SPECIAL))


@dataclass(frozen=True)
class AbsDx(Elementwise, Op):
    """dx = x > 0 ? dy : x < 0 ? -dy : 0; inputs (x, dy)."""

    in_place: ClassVar[tuple[int, ...]] = (1, 0)
    kernel: ClassVar[str] = "poet_abs_dx_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        x, dy = inputs
        return (np.where(x > 0, dy, np.where(x < 0, -dy, dy.dtype.type(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(), (x, f32(*x.shape))) for x in (*ODD, SPECIAL))


@dataclass(frozen=True)
class Reciprocal(Elementwise, Op):
    """y = 1 / x."""

    onnx: ClassVar[str] = "Reciprocal"
    in_place: ClassVar[tuple[int, ...]] = (0,)
    kernel: ClassVar[str] = "poet_reciprocal_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        with np.errstate(all="ignore"):
            return (np.asarray(inputs[0].dtype.type(1) / inputs[0]),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads y, not x."""
        assert douts[0] is not None
        return emit(ReciprocalDx(), outputs[0], douts[0])

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Positive, special."""
        return tuple(Example(cls(), (x,)) for x in (POSITIVE, SPECIAL))


@dataclass(frozen=True)
class ReciprocalDx(Elementwise, Op):
    """dx = -dy (y y); inputs (y, dy)."""

    in_place: ClassVar[tuple[int, ...]] = (1, 0)
    kernel: ClassVar[str] = "poet_reciprocal_dx_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        y, dy = inputs
        with np.errstate(invalid="ignore"):
            return (np.asarray(-dy * (y * y)),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(), (x, f32(*x.shape))) for x in (*ODD, SPECIAL))


LARGEST_POWER = 64
"""Whole exponents up to it are products; others go through the logarithm."""


def _whole(exponent: float) -> bool:
    return exponent == int(exponent) and abs(exponent) <= LARGEST_POWER


def power(x: Array, exponent: float) -> Array:
    """x^exponent as poet_pow_f32 does it.

    A whole exponent is the product of squares, its lowest bit first, and one division where it is negative;
    any other is e^(exponent log x).
    """
    with np.errstate(all="ignore"):
        if not _whole(exponent):
            return exp(np.asarray(x.dtype.type(exponent) * log(x)))
        y, square, n = np.ones_like(x), x, abs(int(exponent))
        while n:
            if n & 1:
                y = np.asarray(y * square)
            n >>= 1
            if n:
                square = square * square
        return np.asarray(x.dtype.type(1) / y) if exponent < 0 else y


class _Power(Elementwise):
    """What both share."""

    exponent: float

    def _numbers(self, exponent: float) -> tuple[int | float, ...]:
        return (int(exponent), 0.0) if _whole(exponent) else (LARGEST_POWER + 1, float(exponent))


_EXPONENTS = (2.0, 3.0, 0.0, 1.0, -1.0, -2.0, 5.0, 0.5, 1.5, -0.75)


@dataclass(frozen=True)
class Pow(_Power, Op):
    """y = x^exponent, a constant; see ``power``."""

    exponent: float

    onnx: ClassVar[str] = "Pow"
    in_place: ClassVar[tuple[int, ...]] = (0,)
    kernel: ClassVar[str] = "poet_pow_f32"
    kind: ClassVar[WorkKind] = "loss"

    def numbers(self) -> tuple[int | float, ...]:
        """The exponent as an integer, or beyond the largest one and as a float."""
        return self._numbers(self.exponent)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        return (power(inputs[0], self.exponent),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads x."""
        assert douts[0] is not None
        return emit(PowDx(self.exponent), inputs[0], douts[0])

    def onnx_constants(self) -> dict[int, Array]:
        """The exponent."""
        return {1: np.array(self.exponent, np.float32)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, tuple[int, ...]]:
        """The exponent is a constant of one element."""
        exponent: Any = node.constants[1]
        if exponent is None or np.size(exponent) != 1:
            raise node.refuse(
                "its exponent is no constant of one element", "export with a fixed exponent, or as Mul"
            )
        assert node.inputs[0] is not None
        if np.ndim(exponent) > len(node.inputs[0].shape):
            raise node.refuse("its exponent has more axes than its base")
        value = float(np.ravel(exponent)[0])
        return (Sqrt() if value == 0.5 else cls(value)), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Whole, negative and broken exponents; special."""
        return (
            *(Example(cls(p), (POSITIVE,)) for p in _EXPONENTS),
            *(Example(cls(p), (f32(7),)) for p in (2.0, 3.0, -1.0)),
            *(Example(cls(p), (SPECIAL,)) for p in (2.0, -3.0, 1.5)),
        )


@dataclass(frozen=True)
class PowDx(_Power, Op):
    """dx = dy (exponent x^(exponent - 1)); inputs (x, dy)."""

    exponent: float

    in_place: ClassVar[tuple[int, ...]] = (1, 0)
    kernel: ClassVar[str] = "poet_pow_dx_f32"
    kind: ClassVar[WorkKind] = "loss"

    def numbers(self) -> tuple[int | float, ...]:
        """The factor, and exponent - 1 as Pow's."""
        return (float(self.exponent), *self._numbers(self.exponent - 1))

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        x, dy = inputs
        with np.errstate(invalid="ignore"):
            return (np.asarray(dy * (x.dtype.type(self.exponent) * power(x, self.exponent - 1))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Pow's."""
        return tuple(
            Example(cls(e.op.exponent), (x, f32(*x.shape)))
            for e in Pow.examples()
            for x in e.inputs
            if isinstance(e.op, Pow)
        )
