"""Gelu: x times the normal distribution's integral up to x, or the tanh that comes near it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poetgen.arithmetic import erf, exp, tanh
from poetgen.op import Array, Emit, Example, OnnxNode, Op, Value, f32
from poetgen.ops.unary import ODD, SPECIAL, Elementwise, WorkKind


def _inner(x: Array) -> Array:
    """sqrt(2 / pi) (x + 0.044715 (x (x x)))."""
    real = x.dtype.type
    return np.asarray(real(np.sqrt(2 / np.pi)) * (x + real(0.044715) * (x * (x * x))))


class _Gelu(Elementwise):
    """What both share."""

    family: ClassVar[str] = "gelu"
    kind: ClassVar[WorkKind] = "loss"


@dataclass(frozen=True)
class Gelu(_Gelu, Op):
    """y = (0.5 x) (1 + erf(x / sqrt 2)), the quotient as a product; ``approximate``: see GeluTanh."""

    onnx: ClassVar[str] = "Gelu"
    in_place: ClassVar[tuple[int, ...]] = (0,)
    kernel: ClassVar[str] = "poet_gelu_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        (x,) = inputs
        real = x.dtype.type
        with np.errstate(invalid="ignore"):
            return (np.asarray((real(0.5) * x) * (real(1) + erf(np.asarray(real(np.sqrt(0.5)) * x)))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads x."""
        assert douts[0] is not None
        return emit(GeluDx(), inputs[0], douts[0])

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, tuple[int, ...]]:
        """ONNX's and com.microsoft's, which has the exact form only."""
        form = node.take("approximate", "none")
        form = form.decode() if isinstance(form, bytes) else form
        if form not in ("none", "tanh"):
            raise node.refuse(f"its approximate is {form!r}", "'none' and 'tanh' are supported")
        return (GeluTanh() if form == "tanh" else cls()), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(), (x,), opset=20) for x in (*ODD, SPECIAL))


@dataclass(frozen=True)
class GeluDx(_Gelu, Op):
    """dx = dy (0.5 (1 + erf(x / sqrt 2)) + x (1 / sqrt(2 pi) e^(-0.5 (x x)))); inputs (x, dy)."""

    in_place: ClassVar[tuple[int, ...]] = (1, 0)
    kernel: ClassVar[str] = "poet_gelu_dx_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        x, dy = inputs
        real = x.dtype.type
        with np.errstate(invalid="ignore"):
            below = real(0.5) * (real(1) + erf(np.asarray(real(np.sqrt(0.5)) * x)))
            density = real(1 / np.sqrt(2 * np.pi)) * exp(np.asarray(real(-0.5) * (x * x)))
            return (np.asarray(dy * (below + x * density)),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(), (x, f32(*x.shape))) for x in (*ODD, SPECIAL))


@dataclass(frozen=True)
class GeluTanh(_Gelu, Op):
    """y = (0.5 x) (1 + tanh u), u = sqrt(2 / pi) (x + 0.044715 (x (x x)))."""

    onnx: ClassVar[str] = ""
    in_place: ClassVar[tuple[int, ...]] = (0,)
    kernel: ClassVar[str] = "poet_gelu_tanh_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        (x,) = inputs
        real = x.dtype.type
        with np.errstate(invalid="ignore"):
            return (np.asarray((real(0.5) * x) * (real(1) + tanh(_inner(x)))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads x."""
        assert douts[0] is not None
        return emit(GeluTanhDx(), inputs[0], douts[0])

    def attributes(self) -> dict[str, Any]:
        """As Gelu's."""
        return {"approximate": "tanh"}

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(), (x,), opset=20) for x in (*ODD, SPECIAL))


@dataclass(frozen=True)
class GeluTanhDx(_Gelu, Op):
    """dx = dy (0.5 (1 + t) + (0.5 x) ((1 - t t) v)), t = tanh u, v = sqrt(2 / pi) (1 + 0.134145 (x x))."""

    in_place: ClassVar[tuple[int, ...]] = (1, 0)
    kernel: ClassVar[str] = "poet_gelu_tanh_dx_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise; inputs (x, dy)."""
        x, dy = inputs
        real = x.dtype.type
        half, one = real(0.5), real(1)
        with np.errstate(invalid="ignore"):
            t = tanh(_inner(x))
            v = real(np.sqrt(2 / np.pi)) * (one + real(3 * 0.044715) * (x * x))
            return (np.asarray(dy * (half * (one + t) + (half * x) * ((one - t * t) * v))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(), (x, f32(*x.shape))) for x in (*ODD, SPECIAL))
