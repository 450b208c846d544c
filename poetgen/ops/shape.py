"""Reshape, Flatten, Squeeze, Unsqueeze, Identity: the same bytes under another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from poetgen.op import Array, Call, Emit, Example, OnnxNode, Op, Spec, Value, Work, f32


class _Inferring(Protocol):
    def infer(self, *inputs: Spec) -> tuple[Spec, ...]: ...


class _View:
    """What all of them share: no kernel, no work, and a gradient that is a view back."""

    def reference(self: _Inferring, *inputs: Array) -> tuple[Array, ...]:
        """The same numbers."""
        (spec,) = self.infer(Spec(tuple(inputs[0].shape)))
        return (inputs[0].reshape(spec.shape),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """None."""
        return Work("move", 0)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """None."""
        return ()

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """A view back."""
        assert douts[0] is not None
        return emit(Reshape(inputs[0].spec.shape), douts[0])


def _constant_or_attribute(node: OnnxNode, attribute: str, since: int) -> tuple[int, ...] | None:
    """Integers that were an attribute below opset ``since`` and are a constant input from it on."""
    if node.opset < since:
        values = node.take(attribute, None)
    elif len(node.inputs) < 2 or node.inputs[1] is None:
        values = None
    else:
        values = node.constants[1]
        if values is None:
            raise node.refuse(
                f"its {attribute} input is computed at run time",
                "export with fixed shapes, so that it is a constant",
            )
    return None if values is None else tuple(int(v) for v in np.ravel(values))


@dataclass(frozen=True)
class Reshape(_View, Op):
    """To ``shape``, where -1 takes what is left and 0 keeps the input's (unless ``allowzero``)."""

    shape: tuple[int, ...]
    allowzero: bool = False

    onnx: ClassVar[str] = "Reshape"
    view: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Resolve 0 and -1."""
        (x,) = inputs
        shape = list(self.shape)
        for i, n in enumerate(shape):
            if n == 0 and not self.allowzero:
                if i >= len(x.shape):
                    raise ValueError(f"{list(self.shape)} copies axis {i}, which {_of(x)} lacks")
                shape[i] = x.shape[i]
        if shape.count(-1) > 1 or any(n < -1 for n in shape):
            raise ValueError(f"{list(self.shape)} is no shape")
        if -1 in shape:
            known = math.prod(n for n in shape if n != -1)
            if known == 0 or x.size % known:
                raise ValueError(f"{_of(x)} does not fit into {list(self.shape)}")
            shape[shape.index(-1)] = x.size // known
        if math.prod(shape) != x.size:
            raise ValueError(f"{_of(x)} does not fit into {list(self.shape)}")
        return (Spec(tuple(shape), x.dtype),)

    def attributes(self) -> dict[str, Any]:
        """The shape is an input."""
        return {"allowzero": 1} if self.allowzero else {}

    def onnx_constants(self) -> dict[int, Array]:
        """The shape."""
        return {1: np.array(self.shape, np.int64)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, tuple[int, ...]]:
        """The shape is an attribute below opset 5, then a constant."""
        shape = _constant_or_attribute(node, "shape", 5)
        if shape is None:
            raise node.refuse("it has no shape")
        allowzero = bool(node.take("allowzero", 0)) if node.opset >= 14 else False
        return cls(shape, allowzero), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """-1, 0 and plain."""
        return tuple(Example(cls(shape), (f32(2, 3, 4),)) for shape in ((6, 4), (0, -1), (-1,), (2, 1, 12)))


def _of(x: Spec) -> str:
    return f"{list(x.shape)} ({x.size} elements)"


@dataclass(frozen=True)
class Flatten(_View, Op):
    """To two axes: those before ``axis`` and those from it on."""

    axis: int = 1

    onnx: ClassVar[str] = "Flatten"
    view: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Two axes."""
        (x,) = inputs
        rank = len(x.shape)
        if not -rank <= self.axis <= rank:
            raise ValueError(f"axis {self.axis} is outside {list(x.shape)}")
        axis = self.axis if self.axis >= 0 else self.axis + rank
        rows = math.prod(x.shape[:axis])
        return (Spec((rows, math.prod(x.shape[axis:])), x.dtype),)

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {"axis": self.axis}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, tuple[int, ...]]:
        """One attribute."""
        return cls(int(node.take("axis", 1))), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Each axis."""
        return tuple(Example(cls(axis), (f32(2, 3, 4),)) for axis in (0, 1, 2, 3, -1))


@dataclass(frozen=True)
class Squeeze(_View, Op):
    """Without ``axes``, which have one element each; without any such axis if None."""

    axes: tuple[int, ...] | None = None

    onnx: ClassVar[str] = "Squeeze"
    view: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Fewer axes."""
        (x,) = inputs
        rank = len(x.shape)
        if self.axes is None:
            gone = {a for a, n in enumerate(x.shape) if n == 1}
        else:
            gone = {_axis(a, rank, x) for a in self.axes}
        for a in gone:
            if x.shape[a] != 1:
                raise ValueError(f"axis {a} of {list(x.shape)} has {x.shape[a]} elements, not 1")
        return (Spec(tuple(n for a, n in enumerate(x.shape) if a not in gone), x.dtype),)

    def onnx_constants(self) -> dict[int, Array]:
        """The axes."""
        return {} if self.axes is None else {1: np.array(self.axes, np.int64)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, tuple[int, ...]]:
        """The axes are an attribute below opset 13, then a constant."""
        return cls(_constant_or_attribute(node, "axes", 13)), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Named, negative and all."""
        return tuple(Example(cls(axes), (f32(2, 1, 4, 1),)) for axes in ((1,), (-1, 1), None))


def _axis(axis: int, rank: int, x: Spec) -> int:
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is outside {list(x.shape)}")
    return axis % rank


@dataclass(frozen=True)
class Unsqueeze(_View, Op):
    """With axes of one element at ``axes`` of the output."""

    axes: tuple[int, ...]

    onnx: ClassVar[str] = "Unsqueeze"
    view: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """More axes."""
        (x,) = inputs
        rank = len(x.shape) + len(self.axes)
        new = {_axis(a, rank, Spec((1,) * rank)) for a in self.axes}
        if len(new) != len(self.axes):
            raise ValueError(f"axes {list(self.axes)} name one axis twice")
        rest = iter(x.shape)
        return (Spec(tuple(1 if a in new else next(rest) for a in range(rank)), x.dtype),)

    def onnx_constants(self) -> dict[int, Array]:
        """The axes."""
        return {1: np.array(self.axes, np.int64)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, tuple[int, ...]]:
        """The axes are an attribute below opset 13, then a constant."""
        axes = _constant_or_attribute(node, "axes", 13)
        if axes is None:
            raise node.refuse("it has no axes")
        return cls(axes), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Front, middle and end."""
        return tuple(Example(cls(axes), (f32(2, 3),)) for axes in ((0,), (1, 2), (-1,), (0, 3)))


@dataclass(frozen=True)
class Identity(_View, Op):
    """The input itself."""

    onnx: ClassVar[str] = "Identity"
    view: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        return (inputs[0],)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """One."""
        return (Example(cls(), (f32(2, 3),)),)
