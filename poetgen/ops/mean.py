"""Mean over axes: ReduceMean, GlobalAveragePool."""

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
    Layout,
    OnnxNode,
    Op,
    Out,
    Spec,
    Struct,
    Value,
    Work,
    f32,
)
from poetgen.strides import broadcast_to, collapse

Ints = tuple[int, ...]


def _normal(axes: Ints, x: Ints) -> Ints:
    if any(not -len(x) <= a < len(x) for a in axes):
        raise ValueError(f"axes {list(axes)} are not all in {list(x)}")
    return tuple(sorted({a % len(x) for a in axes}))


def _kept(axes: Ints, x: Ints) -> Ints:
    """The output's shape with reduced axes of one."""
    return tuple(1 if a in _normal(axes, x) else n for a, n in enumerate(x))


def _struct(axes: Ints, x: Spec, layout: Layout = "dense") -> Struct:
    """Loops over x, row-major, and how far each moves in x and in the mean, which has ``layout``."""
    kept = Spec(_kept(axes, x.shape), layout=layout)
    sizes, *walks = collapse(x.shape, x.strides, broadcast_to(kept.shape, x.shape, kept.strides))
    return Struct(
        "struct poet_mean",
        (
            *((f"size{k}", n) for k, n in enumerate(sizes)),
            *((f"x{k}", n) for k, n in enumerate(walks[0])),
            *((f"y{k}", n) for k, n in enumerate(walks[1])),
            ("outputs", kept.size),
            ("count", x.size // kept.size),
        ),
    )


@dataclass(frozen=True)
class Mean(Op):
    """The sum over ``axes``, row-major, divided by its terms. No axes: x itself."""

    axes: Ints
    keepdims: bool = True

    onnx: ClassVar[str] = "ReduceMean"
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Without the axes, or with one element there."""
        shape = inputs[0].shape
        axes = _normal(self.axes, shape)
        _struct(axes, Spec(shape))  # refuses what four loops cannot walk
        if self.keepdims:
            return (Spec(_kept(axes, shape)),)
        return (Spec(tuple(n for a, n in enumerate(shape) if a not in axes)),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Sum, then divide."""
        (x,) = inputs
        axes = _normal(self.axes, x.shape)
        count = math.prod(x.shape[a] for a in axes)
        y = np.asarray(sum_in_order(x, axes) / x.dtype.type(count))
        return (y.reshape(_kept(axes, x.shape)) if self.keepdims else y,)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """One addition an element."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = _struct(self.axes, inputs[0], outputs[0].layout)
        return (Call(Kernel("poet_mean_f32", "mean"), (s, In(0), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads neither x nor y."""
        assert douts[0] is not None
        return emit(MeanDx(self.axes, inputs[0].spec.shape), douts[0])

    def attributes(self) -> dict[str, Any]:
        """As ONNX's below opset 18."""
        return {"axes": list(self.axes), "keepdims": int(self.keepdims)}

    @classmethod
    def onnx_aliases(cls) -> tuple[str, ...]:
        """The mean over all spatial axes."""
        return ("GlobalAveragePool",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """The axes are an attribute below opset 18, then a constant; none named are all."""
        x = node.inputs[0]
        assert x is not None
        rank = len(x.shape)
        if node.op_type == "GlobalAveragePool":
            return cls(tuple(range(2, rank))), (0,)
        keepdims = bool(node.take("keepdims", 1))
        axes: Any = ()
        nothing_named_is_none = False
        if node.opset < 18:
            axes = node.take("axes", ())
        else:
            nothing_named_is_none = bool(node.take("noop_with_empty_axes", 0))
            if len(node.inputs) > 1 and node.inputs[1] is not None:
                axes = node.constants[1]
                if axes is None:
                    raise node.refuse(
                        "its axes are computed at run time",
                        "export with fixed axes, so that they are a constant",
                    )
        named = tuple(int(a) for a in np.ravel(axes)) if axes is not None else ()
        if not named and not nothing_named_is_none:
            named = tuple(range(rank))
        return cls(named, keepdims), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Inner, outer, middle and alternating axes."""
        return (
            Example(cls((2, 3)), (f32(2, 3, 5, 7),)),
            Example(cls((2,), False), (f32(2, 3, 9),)),
            Example(cls((-1,)), (f32(3, 5),)),
            Example(cls((0,), False), (f32(4, 5),)),
            Example(cls((1,)), (f32(2, 3, 4),)),
            Example(cls((0, 2), False), (f32(2, 3, 4, 5),)),
            Example(cls((0, 1, 2)), (f32(2, 3, 1),)),
            Example(cls((0,)), (f32(1),)),
        )


@dataclass(frozen=True)
class MeanDx(Op):
    """dx = dy / count, repeated along the axes."""

    axes: Ints
    x_shape: Ints

    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x was."""
        if inputs[0].size != math.prod(_kept(self.axes, self.x_shape)):
            raise ValueError(f"dy {list(inputs[0].shape)} is no mean of {list(self.x_shape)}")
        return (Spec(self.x_shape),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Divide, then repeat."""
        (dy,) = inputs
        kept = _kept(self.axes, self.x_shape)
        count = math.prod(self.x_shape) // math.prod(kept)
        share = dy.reshape(kept) / dy.dtype.type(count)
        return (np.array(np.broadcast_to(share, self.x_shape)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", outputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = _struct(self.axes, outputs[0], inputs[0].layout)
        return (Call(Kernel("poet_mean_dx_f32", "mean"), (s, In(0), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Mean's, and no axes at all."""
        found = [Example(cls((), (2, 3)), (f32(2, 3),))]
        for e in Mean.examples():
            (x,) = e.inputs
            assert isinstance(e.op, Mean) and isinstance(x, Spec)
            found.append(Example(cls(e.op.axes, x.shape), e.op.infer(x)))
        return tuple(found)
