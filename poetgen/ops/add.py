"""Add, Sub, Mul, Div with broadcasting, Neg, and the sums that gradients of broadcast operands are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poetgen.arithmetic import sum_in_order
from poetgen.op import Array, Call, Emit, Example, In, Kernel, Op, Out, Spec, Struct, Value, Work, f32
from poetgen.strides import broadcast_to, collapse

_FAMILY = "add"
Ints = tuple[int, ...]


def _shape(a: Spec, b: Spec) -> Ints:
    try:
        return tuple(np.broadcast_shapes(a.shape, b.shape))
    except ValueError:
        raise ValueError(f"{list(a.shape)} and {list(b.shape)} do not broadcast") from None


def _walk(operand: Spec, over: Spec) -> Ints:
    """How far each axis of ``over`` moves in an operand."""
    return broadcast_to(operand.shape, over.shape, operand.strides)


def _loops(ctype: str, sizes: Ints, **walks: Ints) -> Struct:
    """Four loops, row-major; how far each moves in every operand."""
    walked, *steps = collapse(sizes, *walks.values())
    fields = [(f"size{k}", n) for k, n in enumerate(walked)]
    for name, step in zip(walks, steps, strict=True):
        fields += [(f"{name}{k}", n) for k, n in enumerate(step)]
    return Struct(ctype, tuple(fields))


class _Binary:
    """What the four share; ``kernel`` has a flat and a broadcasting form."""

    in_place: ClassVar[Ints] = (0, 1)
    rows: ClassVar[bool] = True
    kernel: ClassVar[str]

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Broadcast as in numpy."""
        a, b = inputs
        if a.dtype != "f32" or b.dtype != "f32":
            raise ValueError(f"its operands are {a.dtype} and {b.dtype}, not float32")
        shape = _shape(a, b)
        y = Spec(shape, layout=next((s.layout for s in inputs if s.shape == shape), "dense"))
        _loops("", shape, a=_walk(a, y), b=_walk(b, y))  # refuses what four loops cannot walk
        return (y,)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", outputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        a, b = inputs
        (y,) = outputs
        if a.size == b.size == y.size and a.layout == b.layout == y.layout:
            kernel = Kernel(f"poet_{self.kernel}_f32", _FAMILY)
            return (Call(kernel, (a.size, In(0), In(1), Out(0))),)
        axes = (0, 2, 1, 3) if y.layout == "rows" else tuple(range(len(y.shape)))
        sizes, *walks = (tuple(v[k] for k in axes) for v in (y.shape, _walk(a, y), _walk(b, y)))
        s = _loops("struct poet_broadcast", sizes, a=walks[0], b=walks[1])
        kernel = Kernel(f"poet_{self.kernel}_broadcast_f32", _FAMILY)
        return (Call(kernel, (s, In(0), In(1), Out(0))),)


_PAIRS: tuple[tuple[Ints, Ints], ...] = (
    ((2, 3, 4), (2, 3, 4)),
    ((7,), (7,)),
    ((1,), (1,)),
    ((2, 3, 4), (4,)),
    ((2, 3, 4), ()),
    ((1, 3, 1), (2, 3, 4)),
    ((2, 1, 4), (1, 3, 1)),
    ((2, 1, 3, 1), (2, 1, 4)),
    ((2, 1, 2, 1), (1, 3, 1, 3)),
    ((1, 3), (3,)),
)


def _pairs(cls: type[Op], divisor: bool = False) -> tuple[Example, ...]:
    rng = np.random.default_rng(11)
    return tuple(
        Example(cls(), (f32(*a), rng.uniform(0.5, 2, b).astype(np.float32) if divisor else f32(*b)))
        for a, b in _PAIRS
    )


def _to(emit: Emit, gradient: Value, like: Value) -> Value:
    """The gradient of an operand that was broadcast."""
    if gradient.spec.shape == like.spec.shape:
        return gradient
    return emit(SumTo(like.spec.shape), gradient)[0]


@dataclass(frozen=True)
class Add(_Binary, Op):
    """y = a + b."""

    onnx: ClassVar[str] = "Add"
    in_place: ClassVar[Ints] = (0, 1)
    rows: ClassVar[bool] = True
    kernel: ClassVar[str] = "add"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        a, b = inputs
        return (np.asarray(a + b),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads neither operand."""
        a, b = inputs
        assert douts[0] is not None
        return _to(emit, douts[0], a), _to(emit, douts[0], b)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Each way of broadcasting."""
        return _pairs(cls)


@dataclass(frozen=True)
class Sub(_Binary, Op):
    """y = a - b."""

    onnx: ClassVar[str] = "Sub"
    in_place: ClassVar[Ints] = (0, 1)
    rows: ClassVar[bool] = True
    kernel: ClassVar[str] = "sub"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        a, b = inputs
        return (np.asarray(a - b),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads neither operand; db is negated after its sum."""
        a, b = inputs
        assert douts[0] is not None
        return _to(emit, douts[0], a), emit(Neg(), _to(emit, douts[0], b))[0]

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Each way of broadcasting."""
        return _pairs(cls)


@dataclass(frozen=True)
class Mul(_Binary, Op):
    """y = a b."""

    onnx: ClassVar[str] = "Mul"
    in_place: ClassVar[Ints] = (0, 1)
    rows: ClassVar[bool] = True
    kernel: ClassVar[str] = "mul"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        a, b = inputs
        return (np.asarray(a * b),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Each reads the other."""
        a, b = inputs
        dy = douts[0]
        assert dy is not None
        return _to(emit, emit(Mul(), dy, b)[0], a), _to(emit, emit(Mul(), dy, a)[0], b)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Each way of broadcasting."""
        return _pairs(cls)


@dataclass(frozen=True)
class Div(_Binary, Op):
    """y = a / b."""

    onnx: ClassVar[str] = "Div"
    in_place: ClassVar[Ints] = (0, 1)
    rows: ClassVar[bool] = True
    kernel: ClassVar[str] = "div"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        a, b = inputs
        with np.errstate(divide="ignore", invalid="ignore"):
            return (np.asarray(a / b),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads b, and y for db = -(dy / b) y; a need not be kept."""
        a, b = inputs
        dy = douts[0]
        assert dy is not None
        (share,) = emit(Div(), dy, b)
        (moved,) = emit(Mul(), share, outputs[0])
        return _to(emit, share, a), emit(Neg(), _to(emit, moved, b))[0]

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Each way of broadcasting."""
        return _pairs(cls, divisor=True)


@dataclass(frozen=True)
class Neg(Op):
    """y = -x."""

    onnx: ClassVar[str] = "Neg"
    in_place: ClassVar[Ints] = (0,)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        return (np.asarray(-inputs[0]),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        return (Call(Kernel("poet_neg_f32", _FAMILY), (inputs[0].size, In(0), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads nothing."""
        assert douts[0] is not None
        return emit(Neg(), douts[0])

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Odd, single, scalar."""
        return tuple(Example(cls(), (f32(*shape),)) for shape in ((3, 5), (1,), ()))


@dataclass(frozen=True)
class SumTo(Op):
    """The sum over the axes along which ``shape`` was broadcast, row-major, from +0."""

    shape: Ints

    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The operand's shape."""
        y = Spec(self.shape)
        self._struct(inputs[0], y)
        return (y,)

    def _struct(self, x: Spec, y: Spec) -> Struct:
        s = _loops("struct poet_sum_to", x.shape, x=x.strides, y=_walk(y, x))
        return Struct(s.ctype, (*s.fields, ("outputs", y.size)))

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """In the kernel's order."""
        (dy,) = inputs
        padded = (1,) * (dy.ndim - len(self.shape)) + self.shape
        axes = tuple(a for a, n in enumerate(padded) if n == 1)
        return (sum_in_order(dy, axes).reshape(self.shape),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """One addition an element."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = self._struct(inputs[0], outputs[0])
        return (Call(Kernel("poet_sum_to_f32", _FAMILY), (s, In(0), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Inner, outer, alternating and all axes."""
        return tuple(
            Example(cls(to), (f32(*of),))
            for of, to in (
                ((2, 3, 4), (4,)),
                ((2, 3, 4), (2, 3, 1)),
                ((2, 3, 4), (1, 3, 1)),
                ((2, 3, 4), (2, 1, 4)),
                ((2, 3, 4), ()),
                ((1, 3), (3,)),
                ((1,), (1,)),
            )
        )
