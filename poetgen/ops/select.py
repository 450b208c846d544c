"""Where, Max, Min, PRelu: one operand or the other, with broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poetgen.op import Array, Call, Emit, Example, In, Kernel, Op, Out, Spec, Struct, Value, Work, f32
from poetgen.ops.add import SumTo
from poetgen.strides import broadcast_to, collapse

Ints = tuple[int, ...]
_FAMILY = "select"


def _together(*shapes: Ints) -> Ints:
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise ValueError(f"{' and '.join(str(list(s)) for s in shapes)} do not broadcast") from None


def _call(symbol: str, y: Ints, *operands: Ints) -> Call:
    """A kernel over y's elements, the operands in its order."""
    walks = [broadcast_to(s, y) for s in operands]
    walks += [(0,) * len(y)] * (3 - len(walks))
    sizes, *steps = collapse(y, *walks)
    fields = [(f"size{k}", n) for k, n in enumerate(sizes)]
    for name, step in zip("abc", steps, strict=True):
        fields += [(f"{name}{k}", n) for k, n in enumerate(step)]
    struct = Struct("struct poet_select", tuple(fields))
    return Call(Kernel(symbol, _FAMILY), (struct, *map(In, range(len(operands))), Out(0)))


def _floats(*specs: Spec) -> None:
    if other := [s.dtype for s in specs if s.dtype != "f32"]:
        raise ValueError(f"its operands are {other[0]}, not float32")


class _Selecting:
    """Work, and one call whose operands are the inputs; ``symbol`` is the kernel's."""

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", outputs[0].size)

    def symbol(self) -> str:
        """The kernel."""
        raise NotImplementedError

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        return (_call(self.symbol(), outputs[0].shape, *(s.shape for s in inputs)),)


def _to(emit: Emit, gradient: Value, like: Value) -> Value:
    """The gradient of an operand that was broadcast."""
    if gradient.spec.shape == like.spec.shape:
        return gradient
    return emit(SumTo(like.spec.shape), gradient)[0]


_PAIRS: tuple[tuple[Ints, Ints], ...] = (
    ((2, 3, 4), (2, 3, 4)),
    ((7,), ()),
    ((1,), (1,)),
    ((2, 3, 4), (4,)),
    ((1, 3, 1), (2, 3, 4)),
    ((2, 1, 3, 1), (2, 1, 4)),
)
_TIES = (
    np.array([1, 2, np.nan, 3, np.inf, -np.inf, 0.0], np.float32),
    np.array([1, 3, 1, np.nan, np.inf, 2, -0.0], np.float32),
)


@dataclass(frozen=True)
class Where(_Selecting, Op):
    """y = condition ? a : b; inputs (condition, a, b), the condition bytes."""

    onnx: ClassVar[str] = "Where"

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """All three broadcast."""
        condition, a, b = inputs
        _floats(a, b)
        if condition.dtype != "u8":
            raise ValueError(f"its condition is {condition.dtype}, not boolean")
        shape = _together(condition.shape, a.shape, b.shape)
        _call("", shape, condition.shape, a.shape, b.shape)  # refuses what four loops cannot walk
        return (Spec(shape),)

    def symbol(self) -> str:
        """The kernel."""
        return "poet_where_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        condition, a, b = inputs
        return (np.where(condition != 0, a, b),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads the condition alone."""
        condition, a, b = inputs
        dy = douts[0]
        assert dy is not None
        (da,) = emit(WhereDx(True), condition, dy)
        (db,) = emit(WhereDx(False), condition, dy)
        return None, _to(emit, da, a), _to(emit, db, b)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Each way of broadcasting."""
        return tuple(
            Example(cls(), (_condition(c), f32(*a), f32(*b)))
            for c, a, b in (
                ((2, 3, 4), (2, 3, 4), (2, 3, 4)),
                ((2, 1, 1, 4), (2, 3, 5, 4), ()),
                ((3, 1), (4,), (2, 1, 1)),
                ((1,), (1,), (1,)),
            )
        )


def _condition(shape: Ints) -> Array:
    return np.random.default_rng(2).integers(0, 2, shape).astype(np.bool_).view(np.uint8)


@dataclass(frozen=True)
class WhereDx(_Selecting, Op):
    """dx = dy where the condition is as given, else 0; inputs (condition, dy)."""

    given: bool

    in_place: ClassVar[Ints] = (1,)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As dy."""
        return (inputs[1],)

    def symbol(self) -> str:
        """One for each side."""
        return "poet_where_true_f32" if self.given else "poet_where_false_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        condition, dy = inputs
        return (np.where((condition != 0) == self.given, dy, dy.dtype.type(0)),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Both sides."""
        return tuple(
            Example(cls(g), (_condition(c), f32(*x)))
            for g in (True, False)
            for c, x in (((3, 1), (2, 3, 4)), ((7,), (7,)))
        )


class _Extreme(_Selecting):
    """What Max and Min share; ``largest`` says which."""

    largest: ClassVar[bool]

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Both broadcast."""
        if len(inputs) != 2:
            raise ValueError(f"it has {len(inputs)} operands, not two")
        _floats(*inputs)
        shape = _together(*(s.shape for s in inputs))
        _call("", shape, *(s.shape for s in inputs))
        return (Spec(shape),)

    def symbol(self) -> str:
        """The kernel."""
        return "poet_max_f32" if self.largest else "poet_min_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise; a where they are equal, a NaN where there is one."""
        a, b = inputs
        first = (a >= b) if self.largest else (a <= b)
        return (np.where(first | (a != a), a, b),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Each reads both."""
        a, b = inputs
        dy = douts[0]
        assert dy is not None
        (da,) = emit(ExtremeOfTwoDx(self.largest), a, b, dy)
        (db,) = emit(ExtremeOfTwoDx(self.largest), b, a, dy)
        return _to(emit, da, a), _to(emit, db, b)


@dataclass(frozen=True)
class Max(_Extreme, Op):
    """y = the larger of a and b; a NaN where there is one."""

    onnx: ClassVar[str] = "Max"
    largest: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Each way of broadcasting; ties, NaN."""
        return (*(Example(cls(), (f32(*a), f32(*b))) for a, b in _PAIRS), Example(cls(), _TIES))


@dataclass(frozen=True)
class Min(_Extreme, Op):
    """y = the smaller of a and b; a NaN where there is one."""

    onnx: ClassVar[str] = "Min"
    largest: ClassVar[bool] = False

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Each way of broadcasting; ties, NaN."""
        return (*(Example(cls(), (f32(*a), f32(*b))) for a, b in _PAIRS), Example(cls(), _TIES))


@dataclass(frozen=True)
class ExtremeOfTwoDx(_Selecting, Op):
    """dy where the first operand won, half of it at a tie, else 0; inputs (first, second, dy)."""

    largest: bool

    in_place: ClassVar[Ints] = (2,)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As dy."""
        return (inputs[2],)

    def symbol(self) -> str:
        """The kernel."""
        return "poet_max_dx_f32" if self.largest else "poet_min_dx_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        a, b, dy = inputs
        won = (a > b) if self.largest else (a < b)
        real = dy.dtype.type
        return (np.where(won, dy, np.where(a == b, real(0.5) * dy, real(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Each way of broadcasting; ties, NaN."""
        found = []
        for largest in (True, False):
            found += [Example(cls(largest), (f32(*a), f32(*b), f32(*_together(a, b)))) for a, b in _PAIRS]
            found.append(Example(cls(largest), (*_TIES, f32(*_TIES[0].shape))))
        return tuple(found)


_SLOPES: tuple[tuple[Ints, Ints], ...] = (
    ((2, 3, 4, 5), (3, 1, 1)),
    ((2, 3, 4), (2, 3, 4)),
    ((4, 5), (1,)),
    ((1, 3, 4), (4,)),
)


@dataclass(frozen=True)
class PRelu(_Selecting, Op):
    """y = x > 0 ? x : slope x; inputs (x, slope), the slope broadcast to x."""

    onnx: ClassVar[str] = "PRelu"
    in_place: ClassVar[Ints] = (0,)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        x, slope = inputs
        _floats(x, slope)
        _call("", x.shape, x.shape, slope.shape)
        return (x,)

    def symbol(self) -> str:
        """The kernel."""
        return "poet_prelu_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        x, slope = inputs
        return (np.where(x > 0, x, slope * x),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Both read x."""
        x, slope = inputs
        dy = douts[0]
        assert dy is not None
        (dx,) = emit(PReluDx(), x, slope, dy)
        (ds,) = emit(PReluDs(), x, dy)
        return dx, _to(emit, ds, slope)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """A slope a channel, an element, one for all."""
        return tuple(Example(cls(), (f32(*x), f32(*s))) for x, s in _SLOPES)


@dataclass(frozen=True)
class PReluDx(_Selecting, Op):
    """dx = x > 0 ? dy : slope dy; inputs (x, slope, dy)."""

    in_place: ClassVar[Ints] = (2, 0)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        return (inputs[0],)

    def symbol(self) -> str:
        """The kernel."""
        return "poet_prelu_dx_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        x, slope, dy = inputs
        return (np.where(x > 0, dy, slope * dy),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """PRelu's."""
        return tuple(Example(cls(), (f32(*x), f32(*s), f32(*x))) for x, s in _SLOPES)


@dataclass(frozen=True)
class PReluDs(_Selecting, Op):
    """Each element's part in the slope's gradient: x > 0 ? 0 : x dy; inputs (x, dy)."""

    in_place: ClassVar[Ints] = (1, 0)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        return (inputs[0],)

    def symbol(self) -> str:
        """The kernel."""
        return "poet_prelu_ds_f32"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        x, dy = inputs
        return (np.where(x > 0, dy.dtype.type(0), x * dy),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """PRelu's."""
        return tuple(Example(cls(), (f32(*x), f32(*x))) for x, _ in _SLOPES)
