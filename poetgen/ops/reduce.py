"""ReduceSum, ReduceMax, ReduceMin over axes; GlobalMaxPool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poetgen.arithmetic import sum_in_order
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
from poetgen.ops.move import Expand
from poetgen.strides import broadcast_to, collapse

Ints = tuple[int, ...]
_FAMILY = "reduce"


def _normal(axes: Ints, x: Ints) -> Ints:
    if any(not -len(x) <= a < len(x) for a in axes):
        raise ValueError(f"axes {list(axes)} are not all in {list(x)}")
    return tuple(sorted({a % len(x) for a in axes}))


def _kept(axes: Ints, x: Ints) -> Ints:
    """The output's shape with reduced axes of one."""
    gone = _normal(axes, x)
    return tuple(1 if a in gone else n for a, n in enumerate(x))


class _Reducing:
    """What all share."""

    axes: Ints
    keepdims: bool

    def out_shape(self, x: Spec) -> Ints:
        """Without the axes, or with one element there."""
        if x.dtype != "f32":
            raise ValueError(f"it reduces {x.dtype}, not float32")
        gone = _normal(self.axes, x.shape)
        kept = _kept(self.axes, x.shape)
        return kept if self.keepdims else tuple(n for a, n in enumerate(kept) if a not in gone)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", inputs[0].size)

    def attributes(self) -> dict[str, Any]:
        """As ONNX's where axes are one."""
        return {"axes": list(self.axes), "keepdims": int(self.keepdims)}


def _from_onnx(node: OnnxNode, axes_since: int) -> tuple[Ints, bool]:
    """Axes and keepdims; the axes are an attribute below an opset, then a constant. None named are all."""
    x = node.inputs[0]
    assert x is not None
    keepdims = bool(node.take("keepdims", 1))
    axes: Any = ()
    none_is_all = True
    if node.opset < axes_since:
        axes = node.take("axes", ())
    else:
        none_is_all = not node.take("noop_with_empty_axes", 0)
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            axes = node.constants[1]
            if axes is None:
                raise node.refuse(
                    "its axes are computed at run time", "export with fixed axes, so that they are a constant"
                )
    named = tuple(int(a) for a in np.ravel(axes)) if axes is not None else ()
    return named or tuple(range(len(x.shape) if none_is_all else 0)), keepdims


@dataclass(frozen=True)
class ReduceSum(_Reducing, Op):
    """The sum over ``axes``, row-major, from +0."""

    axes: Ints
    keepdims: bool = True

    onnx: ClassVar[str] = "ReduceSum"

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Fewer elements."""
        shape = self.out_shape(inputs[0])
        self._sum(inputs[0]).infer(*inputs)
        return (Spec(shape),)

    def _sum(self, x: Spec) -> SumTo:
        return SumTo(_kept(self.axes, x.shape))

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """In the kernel's order."""
        (x,) = inputs
        y = sum_in_order(x, _normal(self.axes, x.shape))
        return (y.reshape(_kept(self.axes, x.shape)) if self.keepdims else y,)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """As the gradient of an operand that was broadcast."""
        op = self._sum(inputs[0])
        return op.calls(inputs, op.infer(*inputs))

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads neither x nor y."""
        assert douts[0] is not None
        return emit(ReduceSumDx(self.axes, inputs[0].spec.shape), douts[0])

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """Axes are a constant from opset 13 on."""
        return cls(*_from_onnx(node, 13)), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Inner, outer, middle and alternating axes."""
        return tuple(Example(cls(a, k), (f32(*x),), opset=11) for a, k, x in _CASES)


_CASES: tuple[tuple[Ints, bool, Ints], ...] = (
    ((2, 3), True, (2, 3, 5, 7)),
    ((-1,), False, (2, 3, 9)),
    ((0,), False, (4, 5)),
    ((1,), True, (2, 3, 4)),
    ((0, 2), False, (2, 3, 4, 5)),
    ((0, 1), False, (3, 4)),
    ((0,), True, (1,)),
)


@dataclass(frozen=True)
class ReduceSumDx(Op):
    """dx = dy, repeated along the axes."""

    axes: Ints
    x_shape: Ints

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x was."""
        if inputs[0].size != math.prod(_kept(self.axes, self.x_shape)):
            raise ValueError(f"dy {list(inputs[0].shape)} is no sum of {list(self.x_shape)}")
        return (Spec(self.x_shape),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Copies."""
        kept = inputs[0].reshape(_kept(self.axes, self.x_shape))
        return (np.array(np.broadcast_to(kept, self.x_shape)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each byte once."""
        return Work("move", outputs[0].nbytes)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """As Expand's."""
        return Expand(self.x_shape).calls((Spec(_kept(self.axes, self.x_shape)),), outputs)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """ReduceSum's."""
        return tuple(Example(cls(a, x), ReduceSum(a, k).infer(f32(*x))) for a, k, x in _CASES)


class _Extreme(_Reducing):
    """What ReduceMax and ReduceMin share; ``sign`` is -1 for the smallest."""

    sign: ClassVar[int]
    kernel: ClassVar[str]

    def struct(self, x: Ints) -> Struct:
        """The kernel's loops."""
        kept = _kept(self.axes, x)
        sizes, steps = collapse(x, broadcast_to(kept, x))
        fields = [(f"size{k}", n) for k, n in enumerate(sizes)]
        fields += [(f"y{k}", n) for k, n in enumerate(steps)]
        return Struct("struct poet_reduce", (*fields, ("outputs", math.prod(kept))))

    def extreme(self, x: Array) -> tuple[Array, Array]:
        """The first one, or the first NaN, and where in x it lies; -1 where all are infinitely far."""
        gone = _normal(self.axes, x.shape)
        order = (*(a for a in range(x.ndim) if a not in gone), *gone)
        count = math.prod(x.shape[a] for a in gone)
        values = x.transpose(order).reshape(-1, count)
        places = np.arange(x.size).reshape(x.shape).transpose(order).reshape(-1, count)
        y = np.full(len(values), -self.sign * np.inf, x.dtype)
        index = np.full(len(values), -1, np.int32)
        for k in range(count):
            here = values[:, k]
            beaten = ~(self.sign * here <= self.sign * y) & (y == y)
            y = np.where(beaten, here, y)
            index = np.where(beaten, places[:, k], index)
        shape = self.out_shape(Spec(tuple(x.shape)))
        return y.reshape(shape), index.astype(np.int32).reshape(shape)


def _examples(cls: Any) -> tuple[Example, ...]:
    special = np.array([[np.nan, 1, np.nan], [-np.inf, np.inf, 3], [2, 2, 1]], np.float32)
    return (
        *(Example(cls(a, k), (f32(*x),), opset=13) for a, k, x in _CASES),
        *(Example(cls((a,)), (special,), opset=13) for a in (0, 1)),
        Example(cls((0,)), (np.full(3, cls.sign * -np.inf, np.float32),), opset=13),
    )


@dataclass(frozen=True)
class ReduceMax(_Extreme, Op):
    """Largest over ``axes`` (the first NaN is larger), and where it lies: all that the gradient needs."""

    axes: Ints
    keepdims: bool = True

    onnx: ClassVar[str] = "ReduceMax"
    sign: ClassVar[int] = 1
    kernel: ClassVar[str] = "poet_reduce_max_f32"

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The values and their places."""
        shape = self.out_shape(inputs[0])
        self.struct(inputs[0].shape)  # refuses what four loops cannot walk
        return Spec(shape), Spec(shape, "i32")

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Row-major; the first one wins."""
        return self.extreme(inputs[0])

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = self.struct(inputs[0].shape)
        return (Call(Kernel(self.kernel, _FAMILY), (s, In(0), Out(0), Out(1))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads the places, neither x nor y."""
        assert douts[0] is not None
        return emit(ExtremeDx(inputs[0].spec.shape), douts[0], outputs[1])

    def inference(self) -> tuple[Op, Ints, Ints] | None:
        """Without the places."""
        return MaxValues(self.axes, self.keepdims), (0,), (0,)

    @classmethod
    def onnx_aliases(cls) -> tuple[str, ...]:
        """The largest over all spatial axes."""
        return ("GlobalMaxPool",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """Axes are a constant from opset 18 on."""
        if node.op_type == "GlobalMaxPool":
            assert node.inputs[0] is not None
            return cls(tuple(range(2, len(node.inputs[0].shape)))), (0,)
        return cls(*_from_onnx(node, 18)), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Inner, outer, middle and alternating axes; ties, NaN, infinities."""
        return _examples(cls)


@dataclass(frozen=True)
class ReduceMin(ReduceMax):
    """Smallest over ``axes`` (the first NaN is smaller)."""

    onnx: ClassVar[str] = "ReduceMin"
    sign: ClassVar[int] = -1
    kernel: ClassVar[str] = "poet_reduce_min_f32"

    def inference(self) -> tuple[Op, Ints, Ints] | None:
        """Without the places."""
        return MinValues(self.axes, self.keepdims), (0,), (0,)

    @classmethod
    def onnx_aliases(cls) -> tuple[str, ...]:
        """None."""
        return ()

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As ReduceMax's."""
        return _examples(cls)


@dataclass(frozen=True)
class MaxValues(_Extreme, Op):
    """ReduceMax without the places, for inference."""

    axes: Ints
    keepdims: bool = True

    sign: ClassVar[int] = 1
    kernel: ClassVar[str] = "poet_reduce_max_f32"

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The values."""
        return (Spec(self.out_shape(inputs[0])),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """As with the places."""
        return self.extreme(inputs[0])[:1]

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """The same kernel, with nowhere to put the places."""
        s = self.struct(inputs[0].shape)
        return (Call(Kernel(self.kernel, _FAMILY), (s, In(0), Out(0), Raw("NULL"))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As with the places."""
        return _examples(cls)


@dataclass(frozen=True)
class MinValues(MaxValues):
    """ReduceMin without the places, for inference."""

    sign: ClassVar[int] = -1
    kernel: ClassVar[str] = "poet_reduce_min_f32"

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As with the places."""
        return _examples(cls)


@dataclass(frozen=True)
class ExtremeDx(Op):
    """dx = dy at the places, 0 elsewhere; inputs (dy, places)."""

    x_shape: Ints

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x was."""
        if inputs[0].shape != inputs[1].shape:
            raise ValueError(f"dy is {list(inputs[0].shape)}, its places {list(inputs[1].shape)}")
        return (Spec(self.x_shape),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Each place is one output's."""
        dy, index = inputs
        dx = np.zeros(math.prod(self.x_shape), dy.dtype)
        at = index.reshape(-1)
        dx[at[at >= 0]] = dy.reshape(-1)[at >= 0]
        return (dx.reshape(self.x_shape),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", outputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        sizes = inputs[0].size, outputs[0].size
        return (Call(Kernel("poet_reduce_place_f32", _FAMILY), (*sizes, In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """ReduceMax's, with the places it gives."""
        found = []
        for e in ReduceMax.examples():
            (x,) = e.arrays(3)
            y, index = e.op.reference(x)
            found.append(Example(cls(x.shape), (f32(*y.shape), index)))
        return tuple(found)
