"""LayerNormalization: each row over its last axes, float32, one rounding an operation.

mean = S x / F;  var = S (x - mean)^2 / F;  is = 1 / sqrt(var + eps)       features ascending
y = ((x - mean) is) g + b
dx = is ((e - S e / F) - n (S e n / F)),  n = (x - mean) is, e = dy g      features ascending
dg = S dy n, db = S dy                                                     rows ascending
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poetgen.arithmetic import sqrt, sum_in_order
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
    Raw,
    Spec,
    Struct,
    Value,
    Work,
    f32,
)
from poetgen.ops.add import SumTo

Ints = tuple[int, ...]
_FAMILY = "layernorm"


@dataclass(frozen=True)
class Rows:
    """What is normalized: all axes from ``axis`` on, as one row."""

    axis: int = -1
    eps: float = 1e-5

    def sizes(self, shape: Ints) -> tuple[int, int]:
        """Rows, and features in each."""
        if not -len(shape) <= self.axis < len(shape):
            raise ValueError(f"axis {self.axis} is outside {list(shape)}")
        axis = self.axis % len(shape)
        return math.prod(shape[:axis]), math.prod(shape[axis:])

    def parameters(self, shape: Ints) -> Ints:
        """Shape of g and b."""
        return shape[self.axis % len(shape) :]

    def statistics(self, shape: Ints) -> Spec:
        """One number a row."""
        kept = self.axis % len(shape)
        return Spec((*shape[:kept], *(1,) * (len(shape) - kept)))

    def check(self, x: Spec, *vectors: Spec) -> None:
        """Raise ValueError where g or b do not fit."""
        self.sizes(x.shape)
        for v in vectors:
            if v.shape != self.parameters(x.shape):
                raise ValueError(
                    f"a parameter {list(v.shape)} does not fit the features "
                    f"{list(self.parameters(x.shape))} of {list(x.shape)}"
                )

    def struct(self, x: Spec) -> Struct:
        """The kernel's sizes."""
        rows, features = self.sizes(x.shape)
        return Struct(
            "struct poet_layernorm", (("rows", rows), ("features", features), ("eps", float(self.eps)))
        )

    def normal(self, x: Array) -> tuple[Array, Array, Array]:
        """Of [rows, features]: (x - mean) is, mean, is."""
        real = x.dtype.type
        count = real(x.shape[1])
        mean = np.asarray(sum_in_order(x, (1,)) / count)
        d = x - mean[:, None]
        var = sum_in_order(d * d, (1,)) / count
        inverse = np.asarray(real(1) / sqrt(np.asarray(var + real(self.eps))))
        return d * inverse[:, None], mean, inverse

    def forward(self, x: Array, *parameters: Array) -> tuple[Array, Array, Array]:
        """y, mean, is."""
        n, mean, inverse = self.normal(x.reshape(self.sizes(x.shape)))
        y = n * parameters[0].reshape(-1)
        if len(parameters) > 1:
            y = y + parameters[1].reshape(-1)
        one_each = self.statistics(x.shape).shape
        return np.asarray(y).reshape(x.shape), mean.reshape(one_each), inverse.reshape(one_each)


_CASES: tuple[tuple[Rows, Ints], ...] = (
    (Rows(), (2, 3, 8)),
    (Rows(-1, 1e-12), (4, 5)),
    (Rows(1, 1e-3), (2, 3, 4)),
    (Rows(0), (7,)),
    (Rows(-2), (2, 2, 3, 5)),
)


@dataclass(frozen=True)
class LayerNorm(Op):
    """See the module; inputs (x, g) or (x, g, b), outputs (y, mean, is): the gradient reads all but y."""

    over: Rows
    bias: bool = True

    onnx: ClassVar[str] = "LayerNormalization"
    in_place: ClassVar[Ints] = (0,)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x, and two numbers a row."""
        if len(inputs) != 2 + self.bias:
            raise ValueError(f"it has {len(inputs)} operands, not {2 + self.bias}")
        self.over.check(*inputs)
        one_each = self.over.statistics(inputs[0].shape)
        return inputs[0], one_each, one_each

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Two passes."""
        return self.over.forward(*inputs)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Three passes."""
        return Work("norm", 3 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        b = In(2) if len(inputs) > 2 else Raw("NULL")
        kernel = Kernel("poet_layernorm_f32", _FAMILY)
        return (Call(kernel, (self.over.struct(inputs[0]), In(0), In(1), b, Out(0), Out(1), Out(2))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads x and two numbers a row, not y."""
        x, g = inputs[:2]
        _, mean, inverse = outputs
        dy = douts[0]
        assert dy is not None
        (dx,) = emit(LayerNormDx(self.over), dy, x, g, mean, inverse)
        (dg,) = emit(LayerNormDg(self.over), dy, x, mean, inverse)
        if len(inputs) == 2:
            return dx, dg
        (db,) = emit(SumTo(g.spec.shape), dy)
        return dx, dg, db

    def inference(self) -> tuple[Op, Ints, Ints] | None:
        """Without the two numbers a row."""
        return LayerNormValues(self.over), tuple(range(2 + self.bias)), (0,)

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {"axis": self.over.axis, "epsilon": self.over.eps}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """Y alone; stash_type says in which precision ONNX computes: float32, as here."""
        if node.output_count > 1:
            raise node.refuse("its Mean or InvStdDev output is used", "only Y is supported")
        node.take("stash_type", 1)
        over = Rows(int(node.take("axis", -1)), float(node.take("epsilon", 1e-5)))
        operands = tuple(i for i, spec in enumerate(node.inputs) if spec is not None)
        return cls(over, len(operands) > 2), operands

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """One axis and several; with and without b."""
        return tuple(
            Example(cls(over, bias), (f32(*s), *(f32(*over.parameters(s)),) * (1 + bias)))
            for over, s in _CASES
            for bias in (False, True)
        )


@dataclass(frozen=True)
class LayerNormValues(Op):
    """LayerNorm's y alone, for inference."""

    over: Rows

    in_place: ClassVar[Ints] = (0,)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        self.over.check(*inputs)
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """As LayerNorm's."""
        return self.over.forward(*inputs)[:1]

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Three passes."""
        return Work("norm", 3 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """The same kernel, with nowhere to put the two numbers."""
        b = In(2) if len(inputs) > 2 else Raw("NULL")
        kernel, null = Kernel("poet_layernorm_f32", _FAMILY), Raw("NULL")
        return (Call(kernel, (self.over.struct(inputs[0]), In(0), In(1), b, Out(0), null, null)),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """LayerNorm's."""
        return tuple(Example(cls(o), (f32(*s), *(f32(*o.parameters(s)),) * 2)) for o, s in _CASES)


@dataclass(frozen=True)
class LayerNormDx(Op):
    """See the module; inputs (dy, x, g, mean, is)."""

    over: Rows

    in_place: ClassVar[Ints] = (0, 1)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        dy, x, g, *_ = inputs
        self.over.check(x, g)
        if dy.shape != x.shape:
            raise ValueError(f"dy is {list(dy.shape)}, x {list(x.shape)}")
        return (x,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Two sums a row, then elementwise."""
        dy, x, g, mean, inverse = inputs
        sizes = self.over.sizes(x.shape)
        count = x.dtype.type(sizes[1])
        mean, inverse = mean.reshape(-1, 1), inverse.reshape(-1, 1)
        n = (x.reshape(sizes) - mean) * inverse
        e = dy.reshape(sizes) * g.reshape(-1)
        first = (sum_in_order(e, (1,)) / count)[:, None]
        second = (sum_in_order(e * n, (1,)) / count)[:, None]
        return (np.asarray(inverse * ((e - first) - n * second)).reshape(x.shape),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Two passes."""
        return Work("norm", 2 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        kernel = Kernel("poet_layernorm_dx_f32", _FAMILY)
        return (Call(kernel, (self.over.struct(inputs[0]), *map(In, range(5)), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """LayerNorm's."""
        return tuple(
            Example(cls(o), (f32(*s), f32(*s), f32(*o.parameters(s)), *(o.statistics(s),) * 2))
            for o, s in _CASES
        )


@dataclass(frozen=True)
class LayerNormDg(Op):
    """dg = sum of dy ((x - mean) is), rows ascending; inputs (dy, x, mean, is)."""

    over: Rows

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As g."""
        dy, x, *_ = inputs
        if dy.shape != x.shape:
            raise ValueError(f"dy is {list(dy.shape)}, x {list(x.shape)}")
        return (Spec(self.over.parameters(x.shape)),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """In the kernel's order."""
        dy, x, mean, inverse = inputs
        sizes = self.over.sizes(x.shape)
        n = (x.reshape(sizes) - mean.reshape(-1, 1)) * inverse.reshape(-1, 1)
        return (sum_in_order(dy.reshape(sizes) * n, (0,)).reshape(self.over.parameters(x.shape)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("norm", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        kernel = Kernel("poet_layernorm_dg_f32", _FAMILY)
        return (Call(kernel, (self.over.struct(inputs[0]), *map(In, range(4)), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """LayerNorm's."""
        return tuple(Example(cls(o), (f32(*s), f32(*s), *(o.statistics(s),) * 2)) for o, s in _CASES)
