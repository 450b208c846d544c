"""MatMul of stacks of matrices: leading axes broadcast as in numpy, an operand of one axis is a vector.

An operand may be read, and the product written, through a permutation of axes: the transpositions of
attention cost no copy. Every sum goes over the inner axis ascending from +0; the gradient of an operand
that was broadcast sums over the stack, row-major, and for each matrix over its inner axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poetgen.op import (
    Array,
    Call,
    Emit,
    Example,
    In,
    Kernel,
    Op,
    Out,
    Spec,
    Struct,
    Value,
    Work,
    f32,
)
from poetgen.strides import collapse, row_major

Ints = tuple[int, ...]
_MATMUL = Kernel("poet_matmul_f32", "matmul")


@dataclass(frozen=True)
class Stack:
    """Matrices of a tensor: its shape and strides, the last two axes those of one matrix."""

    shape: Ints
    strides: Ints

    @classmethod
    def of(cls, shape: Ints, perm: Ints, column: bool = False) -> Stack:
        """A tensor's, through a permutation (empty: none); a vector is a row, or a column."""
        if len(shape) == 1:
            shape = (shape[0], 1) if column else (1, shape[0])
        strides = row_major(shape)
        if not perm:
            return cls(shape, strides)
        if sorted(perm) != list(range(len(shape))):
            raise ValueError(f"{list(perm)} is no order of the axes of {list(shape)}")
        return cls(tuple(shape[p] for p in perm), tuple(strides[p] for p in perm))

    @property
    def transposed(self) -> Stack:
        """Each matrix with rows for columns."""

        def swap(v: Ints) -> Ints:
            return (*v[:-2], v[-1], v[-2])

        return Stack(swap(self.shape), swap(self.strides))

    def loops(self, lead: Ints) -> Ints:
        """Strides of the leading axes, 0 where it repeats."""
        own = zip(self.shape[:-2], self.strides[:-2], strict=True)
        return (0,) * (len(lead) + 2 - len(self.shape)) + tuple(0 if n == 1 else s for n, s in own)


def _struct(lead: Ints, x: Stack, w: Stack, y: Stack) -> Struct:
    """y = x w for each matrix of ``lead``."""
    sizes, *steps = collapse(lead, x.loops(lead), w.loops(lead), y.loops(lead))
    summed = math.prod(y.shape[:-2]) != math.prod(lead)
    return Struct(
        "struct poet_matmul",
        (
            *((f"size{k}", n) for k, n in enumerate(sizes)),
            *((f"{name}{k}", n) for name, step in zip("xwy", steps, strict=True) for k, n in enumerate(step)),
            ("m", y.shape[-2]),
            ("n", y.shape[-1]),
            ("k", x.shape[-1]),
            ("x_row", x.strides[-2]),
            ("x_col", x.strides[-1]),
            ("w_row", w.strides[-2]),
            ("w_col", w.strides[-1]),
            ("y_row", y.strides[-2]),
            ("y_col", y.strides[-1]),
            ("zeroed", math.prod(y.shape) if summed else 0),
        ),
    )


def _product(lead: Ints, x: Array, w: Array, kept: Ints) -> Array:
    """In the kernel's order; ``kept``: the leading axes of the result, 1 where the stack is summed."""
    kept = (1,) * (len(lead) - len(kept)) + kept
    summed = tuple(a for a, n in enumerate(lead) if kept[a] != n)
    front = tuple(range(len(summed)))
    x = np.moveaxis(np.broadcast_to(x, (*lead, *x.shape[-2:])), summed, front)
    w = np.moveaxis(np.broadcast_to(w, (*lead, *w.shape[-2:])), summed, front)
    y = np.zeros((*x.shape[len(summed) : -1], w.shape[-1]), x.dtype)
    for at in np.ndindex(*x.shape[: len(summed)]):
        for k in range(x.shape[-1]):
            y = y + x[at][..., :, k, None] * w[at][..., None, k, :]
    return y.reshape(*kept, *y.shape[-2:])


def _seen(a: Array, perm: Ints, column: bool = False) -> Array:
    if a.ndim == 1:
        a = a.reshape((-1, 1) if column else (1, -1))
    return a.transpose(perm) if perm else a


def _back(perm: Ints) -> Ints:
    return tuple(perm.index(a) for a in range(len(perm)))


@dataclass(frozen=True)
class MatMul(Op):
    """y = a b, where a and b are seen through ``perm_a`` and ``perm_b`` and y's axes take ``perm_y``."""

    perm_a: Ints = ()
    perm_b: Ints = ()
    perm_y: Ints = ()

    onnx: ClassVar[str] = "MatMul"

    def stacks(self, a: Ints, b: Ints) -> tuple[Ints, Stack, Stack, Stack]:
        """Leading axes; a, b and y as matrices. ValueError where they do not multiply."""
        if not a or not b:
            raise ValueError("a scalar is no matrix")
        x, w = Stack.of(a, self.perm_a), Stack.of(b, self.perm_b, column=True)
        if x.shape[-1] != w.shape[-2]:
            raise ValueError(f"{list(a)} and {list(b)} do not multiply: {x.shape[-1]} and {w.shape[-2]}")
        try:
            lead = tuple(np.broadcast_shapes(x.shape[:-2], w.shape[:-2]))
        except ValueError:
            raise ValueError(f"the leading axes of {list(a)} and {list(b)} do not broadcast") from None
        whole = (*lead, x.shape[-2], w.shape[-1])
        if not self.perm_y:
            return lead, x, w, Stack(whole, row_major(whole))
        stored = tuple(whole[p] for p in self.perm_y)
        return lead, x, w, Stack.of(stored, _back(self.perm_y))

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Leading axes, rows and columns; no rows where a is a vector, no columns where b is one."""
        a, b = inputs
        if a.dtype != "f32" or b.dtype != "f32":
            raise ValueError(f"its operands are {a.dtype} and {b.dtype}, not float32")
        lead, x, w, y = self.stacks(a.shape, b.shape)
        for s in (
            _struct(lead, x, w, y),
            _struct(lead, y, w.transposed, x),
            _struct(lead, x.transposed, y, w),
        ):
            assert s.fields  # collapse refuses what four loops cannot walk
        if self.perm_y:
            return (Spec(tuple(y.shape[p] for p in self.perm_y)),)
        rows, columns = y.shape[-2:-1] * (len(a.shape) > 1), y.shape[-1:] * (len(b.shape) > 1)
        return (Spec(lead + rows + columns),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """One product after the other, k ascending."""
        a, b = inputs
        lead, _, _, y = self.stacks(a.shape, b.shape)
        got = _product(lead, _seen(a, self.perm_a), _seen(b, self.perm_b, column=True), lead)
        if self.perm_y:
            return (np.ascontiguousarray(got.transpose(self.perm_y)),)
        rows, columns = y.shape[-2:-1] * (a.ndim > 1), y.shape[-1:] * (b.ndim > 1)
        return (got.reshape(lead + rows + columns),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """m n k multiply-accumulates a matrix."""
        _, x, _, y = self.stacks(inputs[0].shape, inputs[1].shape)
        return Work("gemm", math.prod(y.shape) * x.shape[-1])

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call, however many matrices."""
        return (
            Call(_MATMUL, (_struct(*self.stacks(inputs[0].shape, inputs[1].shape)), In(0), In(1), Out(0))),
        )

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """da reads b, db reads a."""
        a, b = inputs
        dy = douts[0]
        assert dy is not None
        (da,) = emit(MatMulDa(self, a.spec.shape, b.spec.shape), dy, b)
        (db,) = emit(MatMulDb(self, a.spec.shape, b.spec.shape), a, dy)
        return da, db

    def attributes(self) -> dict[str, Any]:
        """None: permutations come from Transposes beside it."""
        return {}

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Vectors, stacks, each way of broadcasting."""
        return tuple(Example(cls(), (f32(*a), f32(*b))) for a, b in _SHAPES)


_SHAPES: tuple[tuple[Ints, Ints], ...] = (
    ((3, 5), (5, 7)),
    ((5,), (5,)),
    ((5,), (5, 7)),
    ((3, 5), (5,)),
    ((2, 3, 5), (5,)),
    ((5,), (2, 5, 7)),
    ((2, 4, 6, 5), (2, 4, 5, 6)),
    ((4, 6, 5), (5, 9)),
    ((6, 5), (4, 5, 9)),
    ((2, 1, 3, 5), (4, 5, 7)),
    ((2, 1, 3, 5), (1, 4, 5, 7)),
    ((1, 4, 3, 1), (2, 1, 1, 2)),
    ((1, 1, 1), (1, 1, 1)),
)
_HEADS: Ints = (0, 2, 1, 3)
_PERMUTED: tuple[tuple[MatMul, Ints, Ints], ...] = (
    (MatMul(_HEADS, (0, 2, 3, 1)), (2, 6, 4, 5), (2, 6, 4, 5)),
    (MatMul((), _HEADS, _HEADS), (2, 4, 6, 7), (2, 7, 4, 5)),
    (MatMul((1, 0), (1, 0), (1, 0)), (5, 3), (4, 5)),
    (MatMul((1, 0, 2), (), ()), (3, 2, 5), (5, 7)),
    (MatMul((), (1, 0), (2, 0, 1)), (2, 3, 5), (7, 5)),
)


@dataclass(frozen=True)
class PermutedMatMul(MatMul):
    """The same with a permutation: no ONNX node says it."""

    onnx: ClassVar[str] = ""

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """The products of attention, and transposed matrices."""
        return tuple(
            Example(cls(op.perm_a, op.perm_b, op.perm_y), (f32(*a), f32(*b))) for op, a, b in _PERMUTED
        )


class _Gradient:
    """What both share."""

    forward: MatMul
    a_shape: Ints
    b_shape: Ints

    def _dy(self, dy: Array) -> Array:
        """As matrices."""
        lead, _, _, y = self.forward.stacks(self.a_shape, self.b_shape)
        if self.forward.perm_y:
            return dy.transpose(_back(self.forward.perm_y))
        return dy.reshape(*lead, *y.shape[-2:])

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """As forward."""
        return self.forward.work((Spec(self.a_shape), Spec(self.b_shape)), ())


@dataclass(frozen=True)
class MatMulDa(_Gradient, Op):
    """da[m, k] = sum of dy[m, n] b[k, n], n ascending; inputs (dy, b)."""

    forward: MatMul
    a_shape: Ints
    b_shape: Ints

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As a."""
        return (Spec(self.a_shape),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """In the kernel's order."""
        dy, b = inputs
        lead, x, _, _ = self.forward.stacks(self.a_shape, self.b_shape)
        w = _seen(b, self.forward.perm_b, column=True)
        da = _product(lead, self._dy(dy), np.swapaxes(w, -1, -2), x.shape[:-2]).reshape(x.shape)
        perm = self.forward.perm_a
        return (np.ascontiguousarray(da.transpose(_back(perm)) if perm else da.reshape(self.a_shape)),)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        lead, x, w, y = self.forward.stacks(self.a_shape, self.b_shape)
        return (Call(_MATMUL, (_struct(lead, y, w.transposed, x), In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As MatMul's examples emit it."""
        return tuple(Example(cls(op, a, b), (*op.infer(f32(*a), f32(*b)), f32(*b))) for op, a, b in _cases())


@dataclass(frozen=True)
class MatMulDb(_Gradient, Op):
    """db[k, n] = sum of a[m, k] dy[m, n], m ascending; inputs (a, dy)."""

    forward: MatMul
    a_shape: Ints
    b_shape: Ints

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As b."""
        return (Spec(self.b_shape),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """In the kernel's order."""
        a, dy = inputs
        lead, _, w, _ = self.forward.stacks(self.a_shape, self.b_shape)
        x = _seen(a, self.forward.perm_a)
        db = _product(lead, np.swapaxes(x, -1, -2), self._dy(dy), w.shape[:-2]).reshape(w.shape)
        perm = self.forward.perm_b
        return (np.ascontiguousarray(db.transpose(_back(perm)) if perm else db.reshape(self.b_shape)),)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        lead, x, w, y = self.forward.stacks(self.a_shape, self.b_shape)
        return (Call(_MATMUL, (_struct(lead, x.transposed, y, w), In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As MatMul's examples emit it."""
        return tuple(Example(cls(op, a, b), (f32(*a), *op.infer(f32(*a), f32(*b)))) for op, a, b in _cases())


def _cases() -> tuple[tuple[MatMul, Ints, Ints], ...]:
    return (*((MatMul(), a, b) for a, b in _SHAPES), *_PERMUTED)
