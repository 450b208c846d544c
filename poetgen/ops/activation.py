"""LeakyRelu, Elu, HardSigmoid, HardSwish, Softplus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poetgen.arithmetic import exp, log, sigmoid
from poetgen.op import Array, Emit, Example, OnnxNode, Op, Value, f32
from poetgen.ops.unary import ODD, SPECIAL, Elementwise, WorkKind

Ints = tuple[int, ...]


class _Activation(Elementwise):
    """What all share."""

    family: ClassVar[str] = "activation"


def _pairs(x: Any) -> tuple[Any, Any]:
    return x, f32(*x.shape)


@dataclass(frozen=True)
class LeakyRelu(_Activation, Op):
    """y = x > 0 ? x : alpha x."""

    alpha: float = 0.01

    onnx: ClassVar[str] = "LeakyRelu"
    in_place: ClassVar[Ints] = (0,)
    kernel: ClassVar[str] = "poet_leaky_relu_f32"

    def numbers(self) -> tuple[int | float, ...]:
        """The slope."""
        return (float(self.alpha),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        (x,) = inputs
        with np.errstate(invalid="ignore", under="ignore"):
            return (np.where(x > 0, x, x.dtype.type(self.alpha) * x),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads y, which has x's sign; x where the slope is not positive."""
        assert douts[0] is not None
        return emit(LeakyReluDx(self.alpha), outputs[0] if self.alpha > 0 else inputs[0], douts[0])

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {"alpha": self.alpha}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """One attribute."""
        if node.opset < 6:
            node.take("consumed_inputs", None)
        return cls(float(node.take("alpha", 0.01))), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Slopes of both signs; special."""
        return (*(Example(cls(a), (x,)) for a in (0.01, -0.5) for x in ODD), Example(cls(0.2), (SPECIAL,)))


@dataclass(frozen=True)
class LeakyReluDx(_Activation, Op):
    """dx = x > 0 ? dy : alpha dy; inputs (x or y, dy)."""

    alpha: float

    in_place: ClassVar[Ints] = (1, 0)
    kernel: ClassVar[str] = "poet_leaky_relu_dx_f32"

    def numbers(self) -> tuple[int | float, ...]:
        """The slope."""
        return (float(self.alpha),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        x, dy = inputs
        return (np.where(x > 0, dy, dy.dtype.type(self.alpha) * dy),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(0.2), _pairs(x)) for x in (*ODD, SPECIAL))


@dataclass(frozen=True)
class Elu(_Activation, Op):
    """y = x > 0 ? x : alpha (e^x - 1)."""

    alpha: float = 1.0

    onnx: ClassVar[str] = "Elu"
    in_place: ClassVar[Ints] = (0,)
    kernel: ClassVar[str] = "poet_elu_f32"
    kind: ClassVar[WorkKind] = "loss"

    def numbers(self) -> tuple[int | float, ...]:
        """The factor."""
        return (float(self.alpha),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        (x,) = inputs
        real = x.dtype.type
        with np.errstate(all="ignore"):
            return (np.where(x > 0, x, real(self.alpha) * (exp(x) - real(1))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads y, which has x's sign."""
        assert douts[0] is not None
        return emit(EluDx(self.alpha), outputs[0], douts[0])

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {"alpha": self.alpha}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """One attribute."""
        if node.opset < 6:
            node.take("consumed_inputs", None)
        alpha = float(node.take("alpha", 1.0))
        if alpha <= 0:
            raise node.refuse(f"its alpha is {alpha:g}", "only a positive alpha is supported")
        return cls(alpha), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(a), (x,)) for a, x in ((1.0, ODD[0]), (0.5, ODD[1]), (2.0, SPECIAL)))


@dataclass(frozen=True)
class EluDx(_Activation, Op):
    """dx = y > 0 ? dy : dy (y + alpha); inputs (y, dy)."""

    alpha: float

    in_place: ClassVar[Ints] = (1, 0)
    kernel: ClassVar[str] = "poet_elu_dx_f32"

    def numbers(self) -> tuple[int | float, ...]:
        """The factor."""
        return (float(self.alpha),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        y, dy = inputs
        with np.errstate(invalid="ignore"):
            return (np.where(y > 0, dy, dy * (y + y.dtype.type(self.alpha))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(0.5), _pairs(x)) for x in (*ODD, SPECIAL))


@dataclass(frozen=True)
class HardSigmoid(_Activation, Op):
    """y = alpha x + beta, held between 0 and 1; a NaN passes."""

    alpha: float = 0.2
    beta: float = 0.5

    onnx: ClassVar[str] = "HardSigmoid"
    in_place: ClassVar[Ints] = (0,)
    kernel: ClassVar[str] = "poet_hard_sigmoid_f32"

    def numbers(self) -> tuple[int | float, ...]:
        """Slope and offset."""
        return float(self.alpha), float(self.beta)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        (x,) = inputs
        return (_ramp(x, self.alpha, self.beta),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads y, not x."""
        assert douts[0] is not None
        return emit(HardSigmoidDx(self.alpha), outputs[0], douts[0])

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {"alpha": self.alpha, "beta": self.beta}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """Two attributes."""
        if node.opset < 6:
            node.take("consumed_inputs", None)
        return cls(float(node.take("alpha", 0.2)), float(node.take("beta", 0.5))), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(*n), (x,)) for n in ((0.2, 0.5), (1 / 6, 0.5)) for x in (*ODD, SPECIAL))


def _ramp(x: Array, alpha: float, beta: float) -> Array:
    real = x.dtype.type
    with np.errstate(invalid="ignore", under="ignore"):
        y = real(alpha) * x + real(beta)
    y = np.where(y < 0, real(0), y)
    return np.asarray(np.where(y > 1, real(1), y))


@dataclass(frozen=True)
class HardSigmoidDx(_Activation, Op):
    """dx = alpha dy where y lies strictly between 0 and 1, else 0; inputs (y, dy)."""

    alpha: float

    in_place: ClassVar[Ints] = (1, 0)
    kernel: ClassVar[str] = "poet_hard_sigmoid_dx_f32"

    def numbers(self) -> tuple[int | float, ...]:
        """The slope."""
        return (float(self.alpha),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        y, dy = inputs
        real = dy.dtype.type
        return (np.where((y <= 0) | (y >= 1), real(0), real(self.alpha) * dy),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(0.2), _pairs(x)) for x in (*ODD, SPECIAL))


@dataclass(frozen=True)
class HardSwish(_Activation, Op):
    """y = x h, h = x / 6 + 0.5 held between 0 and 1, the quotient as a product."""

    onnx: ClassVar[str] = "HardSwish"
    in_place: ClassVar[Ints] = (0,)
    kernel: ClassVar[str] = "poet_hard_swish_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        (x,) = inputs
        with np.errstate(invalid="ignore", under="ignore"):
            return (np.asarray(x * _ramp(x, 1 / 6, 0.5)),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads x."""
        assert douts[0] is not None
        return emit(HardSwishDx(), inputs[0], douts[0])

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special, both ends."""
        ends = np.array([-3.5, -2.5, 2.5, 3.5], np.float32)
        return tuple(Example(cls(), (x,)) for x in (*ODD, SPECIAL, ends))


@dataclass(frozen=True)
class HardSwishDx(_Activation, Op):
    """dx = x <= -3 ? 0 : x < 3 ? dy (x / 3 + 0.5) : dy, the quotient as a product; inputs (x, dy)."""

    in_place: ClassVar[Ints] = (1, 0)
    kernel: ClassVar[str] = "poet_hard_swish_dx_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        x, dy = inputs
        real = x.dtype.type
        with np.errstate(invalid="ignore", under="ignore"):
            middle = dy * (real(1 / 3) * x + real(0.5))
        return (np.where(x <= -3, real(0), np.where(x < 3, middle, dy)),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special, both ends."""
        ends = np.array([-3.5, -3, -2.5, 2.5, 3, 3.5], np.float32)
        return tuple(Example(cls(), _pairs(x)) for x in (*ODD, SPECIAL, ends))


@dataclass(frozen=True)
class Softplus(_Activation, Op):
    """y = log(1 + e^x), as x + log(1 + e^-x) above 0."""

    onnx: ClassVar[str] = "Softplus"
    in_place: ClassVar[Ints] = (0,)
    kernel: ClassVar[str] = "poet_softplus_f32"
    kind: ClassVar[WorkKind] = "loss"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        (x,) = inputs
        rest = log(x.dtype.type(1) + exp(np.where(x > 0, -x, x)))
        with np.errstate(invalid="ignore"):
            return (np.where(x > 0, x + rest, rest),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads x."""
        assert douts[0] is not None
        return emit(SoftplusDx(), inputs[0], douts[0])

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(), (x,)) for x in (*ODD, SPECIAL))


@dataclass(frozen=True)
class SoftplusDx(_Activation, Op):
    """dx = dy sigmoid x; inputs (x, dy)."""

    in_place: ClassVar[Ints] = (1, 0)
    kernel: ClassVar[str] = "poet_softplus_dx_f32"
    kind: ClassVar[WorkKind] = "loss"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        x, dy = inputs
        return (np.asarray(dy * sigmoid(x)),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, special."""
        return tuple(Example(cls(), _pairs(x)) for x in (*ODD, SPECIAL))
