"""Batch norm with frozen statistics and the Relu behind it in one pass; a shortcut may be added between.

poetgen.fuse makes these from BatchNormalization, Add and Relu nodes. Each element goes through the same
scalar operations as in the separate ops, so the bits are theirs; what is saved is memory traffic, and
that the mask comes from x: y need not be kept for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poetgen.arithmetic import sqrt, sum_in_order
from poetgen.op import (
    Arg,
    Array,
    Call,
    Emit,
    Example,
    In,
    Kernel,
    Op,
    Out,
    Raw,
    Spec,
    Struct,
    Value,
    Work,
    f32,
)

Ints = tuple[int, ...]
_FAMILY = "batchnorm_relu"


def _check(x: Spec, *vectors: Spec) -> None:
    if len(x.shape) < 2:
        raise ValueError(f"batch norm needs [N, C, ...], not {list(x.shape)}")
    for v in vectors:
        if v.shape != x.shape[1:2]:
            raise ValueError(f"x {list(x.shape)} has {x.shape[1]} channels, a parameter {list(v.shape)}")


def _struct(x: Spec, eps: float) -> Struct:
    batch, channels, size = x.planes()
    fields = (("batch", batch), ("channels", channels), ("size", size), ("eps", float(eps)))
    return Struct("struct poet_batchnorm", fields)


def _each(vector: Array, x: Array) -> Array:
    return vector.reshape(-1, *(1,) * (x.ndim - 2))


def _scale_shift(operands: Sequence[Array], eps: float) -> tuple[Array, Array, Array]:
    _, g, b, mean, var = operands
    real = g.dtype.type
    inverse = np.asarray(real(1) / sqrt(var + real(eps)))
    scale = g * inverse
    return inverse, scale, b - mean * scale


def _relu(x: Array) -> Array:
    return np.asarray(np.where(x < 0, x.dtype.type(0), x))


def _over(x: Array) -> Ints:
    return (0, *range(2, x.ndim))


_SHAPES: tuple[Ints, ...] = ((2, 3, 4, 5), (3, 2, 7), (4, 5), (1, 1, 1))


def _var(channels: int) -> Array:
    return np.linspace(0.3, 1.7, channels).astype(np.float32)


@dataclass(frozen=True)
class BatchNormRelu(Op):
    """y = relu(x sc + sh); inputs (x, g, b, mean, var)."""

    eps: float = 1e-5

    in_place: ClassVar[Ints] = (0,)
    statistics: ClassVar[Ints] = (3, 4)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        _check(*inputs)
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        x = inputs[0]
        _, scale, shift = _scale_shift(inputs, self.eps)
        return (_relu(x * _each(scale, x) + _each(shift, x)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("norm", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = _struct(inputs[0], self.eps)
        return (Call(Kernel("poet_batchnorm_relu_f32", _FAMILY), (s, *map(In, range(5)), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """One node, which reads x and not y."""
        assert douts[0] is not None
        dx, dg, db = emit(BatchNormReluDx(self.eps), douts[0], *inputs)
        return dx, dg, db, None, None

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Images, sequences, rows, one element."""
        return tuple(Example(cls(), (f32(*s), f32(s[1]), f32(s[1]), f32(s[1]), _var(s[1]))) for s in _SHAPES)


@dataclass(frozen=True)
class BatchNormReluDx(Op):
    """Inputs (dy, x, g, b, mean, var), outputs (dx, dg, db); the mask is formed from x."""

    eps: float = 1e-5

    in_place: ClassVar[Ints] = (0, 1)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x, and two numbers a channel."""
        dy, x, g, *rest = inputs
        _check(x, g, *rest)
        if dy.shape != x.shape:
            raise ValueError(f"dy is {list(dy.shape)}, x {list(x.shape)}")
        return x, g, g

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Sums over n, then row-major."""
        dy, x, _, _, mean, _ = inputs
        inverse, scale, shift = _scale_shift(inputs[1:], self.eps)
        dz = np.where(x * _each(scale, x) + _each(shift, x) <= 0, dy.dtype.type(0), dy)
        normal = (x - _each(mean, x)) * _each(inverse, x)
        return (
            np.asarray(dz * _each(scale, x)),
            sum_in_order(dz * normal, _over(x)),
            sum_in_order(dz, _over(x)),
        )

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once, with two sums."""
        return Work("norm", 2 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        kernel = Kernel("poet_batchnorm_relu_dx_f32", _FAMILY)
        start = Raw("POET_START_ZERO")
        s = _struct(inputs[1], self.eps)
        return (Call(kernel, (s, start, *map(In, range(6)), Out(0), Out(1), Out(2))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As forward."""
        return tuple(
            Example(cls(), (f32(*s), f32(*s), f32(s[1]), f32(s[1]), f32(s[1]), _var(s[1]))) for s in _SHAPES
        )


@dataclass(frozen=True)
class BatchNormAddRelu(Op):
    """y = relu((x sc + sh) + shortcut); inputs (x, g, b, mean, var, shortcut)."""

    eps: float = 1e-5

    in_place: ClassVar[Ints] = (0, 5)
    statistics: ClassVar[Ints] = (3, 4)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        _check(*inputs[:5])
        if inputs[5].shape != inputs[0].shape:
            raise ValueError(f"x is {list(inputs[0].shape)}, the shortcut {list(inputs[5].shape)}")
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        x, shortcut = inputs[0], inputs[5]
        _, scale, shift = _scale_shift(inputs[:5], self.eps)
        return (_relu((x * _each(scale, x) + _each(shift, x)) + shortcut),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("norm", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = _struct(inputs[0], self.eps)
        return (Call(Kernel("poet_batchnorm_add_relu_f32", _FAMILY), (s, *map(In, range(6)), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """One node: x for dg, y for the mask (as many bytes as the shortcut, which may be gone)."""
        x, g, _, mean, var, _ = inputs
        assert douts[0] is not None
        dx, dg, db, ds = emit(BatchNormAddReluDx(self.eps), douts[0], outputs[0], x, g, mean, var)
        return dx, dg, db, None, None, ds

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Images, sequences, rows, one element."""
        return tuple(
            Example(cls(), (f32(*s), f32(s[1]), f32(s[1]), f32(s[1]), _var(s[1]), f32(*s))) for s in _SHAPES
        )


@dataclass(frozen=True)
class BatchNormAddReluDx(Op):
    """Inputs (dy, y, x, g, mean, var), outputs (dx, dg, db, dshortcut); the mask is y's sign."""

    eps: float = 1e-5

    in_place: ClassVar[Ints] = (0, 1, 2)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x, two numbers a channel, as x."""
        dy, y, x, g, *rest = inputs
        _check(x, g, *rest)
        if dy.shape != x.shape or y.shape != x.shape:
            raise ValueError(f"dy is {list(dy.shape)}, y {list(y.shape)}, x {list(x.shape)}")
        return x, g, g, x

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Sums over n, then row-major."""
        dy, y, x, g, mean, var = inputs
        inverse, scale, _ = _scale_shift((x, g, np.zeros_like(g), mean, var), self.eps)
        dz = np.asarray(np.where(y <= 0, dy.dtype.type(0), dy))
        normal = (x - _each(mean, x)) * _each(inverse, x)
        dg, db = sum_in_order(dz * normal, _over(x)), sum_in_order(dz, _over(x))
        return np.asarray(dz * _each(scale, x)), dg, db, dz

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once, with two sums."""
        return Work("norm", 2 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        kernel = Kernel("poet_batchnorm_add_relu_dx_f32", _FAMILY)
        start = Raw("POET_START_ZERO")
        s = _struct(inputs[2], self.eps)
        return (Call(kernel, (s, start, *map(In, range(6)), *map(Out, range(4)))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As forward."""
        return tuple(
            Example(cls(), (f32(*s), f32(*s), f32(*s), f32(s[1]), f32(s[1]), _var(s[1]))) for s in _SHAPES
        )


@dataclass(frozen=True)
class AddRelu(Op):
    """y = relu(a + b), of one shape."""

    in_place: ClassVar[Ints] = (0, 1)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As both."""
        a, b = inputs
        if a.shape != b.shape:
            raise ValueError(f"a is {list(a.shape)}, b {list(b.shape)}")
        return (a,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        return (_relu(inputs[0] + inputs[1]),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        return (Call(Kernel("poet_add_relu_f32", _FAMILY), (inputs[0].size, In(0), In(1), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Both have one gradient: dy where y > 0."""
        assert douts[0] is not None
        (dz,) = emit(AddReluDx(), outputs[0], douts[0])
        return dz, dz

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd and single sizes."""
        return tuple(Example(cls(), (f32(*s), f32(*s))) for s in _SHAPES)


@dataclass(frozen=True)
class AddReluDx(Op):
    """dz = y <= 0 ? 0 : dy, inputs (y, dy)."""

    in_place: ClassVar[Ints] = (1, 0)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As y."""
        if inputs[0].shape != inputs[1].shape:
            raise ValueError(f"y is {list(inputs[0].shape)}, dy {list(inputs[1].shape)}")
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        y, dy = inputs
        return (np.where(y <= 0, dy.dtype.type(0), dy),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """Relu's kernel."""
        return (Call(Kernel("poet_relu_dx_f32", "relu"), (inputs[0].size, In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As forward."""
        return tuple(Example(cls(), (f32(*s), f32(*s))) for s in _SHAPES)


# Gradients that first add what two readers of the output gave. poetgen.autodiff makes them from an Add and
# the node behind it; the sum takes dx's place for a moment and is never a tensor.


def _add(size: int, *operands: int) -> Call:
    return Call(Kernel("poet_add_f32", "add"), (size, *map(In, operands), Out(0)))


@dataclass(frozen=True)
class BatchNormReluDxOfSum(Op):
    """BatchNormReluDx of dy + other; inputs (dy, other, x, g, b, mean, var), outputs (dx, dg, db)."""

    eps: float = 1e-5

    in_place: ClassVar[Ints] = (0, 1)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x, and two numbers a channel."""
        dy, other, *rest = inputs
        _same(dy, other)
        return BatchNormReluDx(self.eps).infer(dy, *rest)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Add, then as it does."""
        dy, other, *rest = inputs
        return BatchNormReluDx(self.eps).reference(np.asarray(dy + other), *rest)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once, with two sums."""
        return Work("norm", 2 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """Two calls."""
        kernel = Kernel("poet_batchnorm_relu_dx_f32", _FAMILY)
        args: tuple[Arg, ...] = (
            _struct(inputs[2], self.eps),
            Raw("POET_START_ZERO"),
            Out(0),
            *map(In, range(2, 7)),
        )
        return _add(inputs[0].size, 0, 1), Call(kernel, (*args, Out(0), Out(1), Out(2)))

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As without a sum."""
        return tuple(
            Example(cls(), (f32(*s), f32(*s), f32(*s), f32(s[1]), f32(s[1]), f32(s[1]), _var(s[1])))
            for s in _SHAPES
        )


@dataclass(frozen=True)
class BatchNormAddReluDxOfSum(Op):
    """BatchNormAddReluDx of dy + other; inputs (dy, other, y, x, g, mean, var), outputs (dx, dg, db, ds)."""

    eps: float = 1e-5

    in_place: ClassVar[Ints] = (0, 1)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x, two numbers a channel, as x."""
        dy, other, *rest = inputs
        _same(dy, other)
        return BatchNormAddReluDx(self.eps).infer(dy, *rest)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Add, then as it does."""
        dy, other, *rest = inputs
        return BatchNormAddReluDx(self.eps).reference(np.asarray(dy + other), *rest)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once, with two sums."""
        return Work("norm", 2 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """Two calls."""
        kernel = Kernel("poet_batchnorm_add_relu_dx_f32", _FAMILY)
        args: tuple[Arg, ...] = (
            _struct(inputs[3], self.eps),
            Raw("POET_START_ZERO"),
            Out(0),
            *map(In, range(2, 7)),
        )
        return _add(inputs[0].size, 0, 1), Call(kernel, (*args, *map(Out, range(4))))

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As without a sum."""
        return tuple(
            Example(cls(), (f32(*s), f32(*s), f32(*s), f32(*s), f32(s[1]), f32(s[1]), _var(s[1])))
            for s in _SHAPES
        )


@dataclass(frozen=True)
class ReluDxOfSum(Op):
    """dx = y <= 0 ? 0 : dy + other, inputs (y, dy, other); also behind an Add."""

    in_place: ClassVar[Ints] = (1, 2)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As y."""
        _same(*inputs)
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        y, dy, other = inputs
        return (np.where(y <= 0, dy.dtype.type(0), dy + other),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", 2 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """Two calls."""
        size = inputs[0].size
        return (
            _add(size, 1, 2),
            Call(Kernel("poet_relu_dx_f32", "relu"), (size, In(0), Out(0), Out(0))),
        )

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As forward."""
        return tuple(Example(cls(), (f32(*s), f32(*s), f32(*s))) for s in _SHAPES)


def _same(*specs: Spec) -> None:
    if len({s.shape for s in specs}) != 1:
        raise ValueError(f"its operands are {[list(s.shape) for s in specs]}")
