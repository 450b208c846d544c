"""Equal, Less, Greater and their like, Not, And, Or: conditions, a byte each, for Where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poetgen.op import Array, Call, Example, In, Kernel, Op, Out, Spec, Struct, Work, f32
from poetgen.strides import broadcast_to, collapse

Ints = tuple[int, ...]
_FAMILY = "compare"
_C: dict[str, str] = {"f32": "f32", "i32": "i32", "u8": "bool"}


class _Pair:
    """What all with two operands share: ``name`` is the kernel's, ``of`` the types it takes."""

    name: ClassVar[str]
    of: ClassVar[tuple[str, ...]] = ("f32", "i32")
    truth: ClassVar[Callable[..., Any]]

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Both broadcast."""
        a, b = inputs
        if a.dtype != b.dtype or a.dtype not in self.of:
            raise ValueError(f"its operands are {a.dtype} and {b.dtype}")
        try:
            shape = tuple(np.broadcast_shapes(a.shape, b.shape))
        except ValueError:
            raise ValueError(f"{list(a.shape)} and {list(b.shape)} do not broadcast") from None
        self._struct(a.shape, b.shape, shape)  # refuses what four loops cannot walk
        return (Spec(shape, "u8"),)

    @staticmethod
    def _struct(a: Ints, b: Ints, y: Ints) -> Struct:
        sizes, *steps = collapse(y, broadcast_to(a, y), broadcast_to(b, y))
        fields = [(f"size{k}", n) for k, n in enumerate(sizes)]
        for which, step in zip("ab", steps, strict=True):
            fields += [(f"{which}{k}", n) for k, n in enumerate(step)]
        return Struct("struct poet_compare", tuple(fields))

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        return (np.asarray(type(self).truth(*inputs)).astype(np.uint8),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", outputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        kernel = Kernel(f"poet_{self.name}_{_C[inputs[0].dtype]}", _FAMILY)
        s = self._struct(inputs[0].shape, inputs[1].shape, outputs[0].shape)
        return (Call(kernel, (s, In(0), In(1), Out(0))),)


_NUMBERS = (
    np.array([1, 2, np.nan, -np.inf, 0.0, 3], np.float32),
    np.array([1, 3, np.nan, np.inf, -0.0, 2], np.float32),
)
_INTS = (np.array([[1, 2, 3], [-4, 5, 2147483647]], np.int32), np.array([1, 5, -2147483648], np.int32))
_TRUTHS = (np.array([[0, 0, 1, 1]], np.uint8), np.array([[0, 1, 0, 1], [1, 1, 0, 0]], np.uint8))


def _numbers(cls: type[Op]) -> tuple[Example, ...]:
    return (
        Example(cls(), _NUMBERS),
        Example(cls(), _INTS),
        Example(cls(), (f32(2, 1, 3), f32(4, 1))),
        Example(cls(), (_INTS[0], np.array(5, np.int32))),
    )


@dataclass(frozen=True)
class Equal(_Pair, Op):
    """y = a == b."""

    onnx: ClassVar[str] = "Equal"
    name: ClassVar[str] = "equal"
    truth: ClassVar[Callable[..., Any]] = np.equal

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Numbers and integers."""
        return _numbers(cls)


@dataclass(frozen=True)
class Less(_Pair, Op):
    """y = a < b."""

    onnx: ClassVar[str] = "Less"
    name: ClassVar[str] = "less"
    truth: ClassVar[Callable[..., Any]] = np.less

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Numbers and integers."""
        return _numbers(cls)


@dataclass(frozen=True)
class LessOrEqual(_Pair, Op):
    """y = a <= b."""

    onnx: ClassVar[str] = "LessOrEqual"
    name: ClassVar[str] = "less_equal"
    truth: ClassVar[Callable[..., Any]] = np.less_equal

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Numbers and integers."""
        return _numbers(cls)


@dataclass(frozen=True)
class Greater(_Pair, Op):
    """y = a > b."""

    onnx: ClassVar[str] = "Greater"
    name: ClassVar[str] = "greater"
    truth: ClassVar[Callable[..., Any]] = np.greater

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Numbers and integers."""
        return _numbers(cls)


@dataclass(frozen=True)
class GreaterOrEqual(_Pair, Op):
    """y = a >= b."""

    onnx: ClassVar[str] = "GreaterOrEqual"
    name: ClassVar[str] = "greater_equal"
    truth: ClassVar[Callable[..., Any]] = np.greater_equal

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Numbers and integers."""
        return _numbers(cls)


@dataclass(frozen=True)
class And(_Pair, Op):
    """y = a and b."""

    onnx: ClassVar[str] = "And"
    name: ClassVar[str] = "and"
    of: ClassVar[tuple[str, ...]] = ("u8",)
    truth: ClassVar[Callable[..., Any]] = np.logical_and

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Each pair."""
        return (Example(cls(), _TRUTHS),)


@dataclass(frozen=True)
class Or(_Pair, Op):
    """y = a or b."""

    onnx: ClassVar[str] = "Or"
    name: ClassVar[str] = "or"
    of: ClassVar[tuple[str, ...]] = ("u8",)
    truth: ClassVar[Callable[..., Any]] = np.logical_or

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Each pair."""
        return (Example(cls(), _TRUTHS),)


@dataclass(frozen=True)
class Not(Op):
    """y = not x."""

    onnx: ClassVar[str] = "Not"
    in_place: ClassVar[Ints] = (0,)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        if inputs[0].dtype != "u8":
            raise ValueError(f"its operand is {inputs[0].dtype}, not boolean")
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        return ((inputs[0] == 0).astype(np.uint8),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        return (Call(Kernel("poet_not_bool", _FAMILY), (inputs[0].size, In(0), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Both."""
        return (Example(cls(), _TRUTHS[1:]),)
