"""Gather: rows of a table by integer ids, such as an embedding; its gradient sums each row's positions."""

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
    OnnxNode,
    Op,
    Out,
    Spec,
    Struct,
    Value,
    Work,
    Workspace,
    f32,
)
from poetgen.ops.move import Slice

Ints = tuple[int, ...]
_FAMILY = "gather"


def _check(axis: int, table: Ints, ids: Spec) -> None:
    if not -len(table) <= axis < len(table):
        raise ValueError(f"axis {axis} is outside {list(table)}")
    if ids.dtype != "i32":
        raise ValueError(f"its indices are {ids.dtype}, not integers")


def _sizes(axis: int, table: Ints) -> tuple[int, int, int]:
    """Tables, rows of each, elements of a row."""
    axis %= len(table)
    return math.prod(table[:axis]), table[axis], math.prod(table[axis + 1 :])


def _struct(axis: int, table: Ints, ids: Spec) -> Struct:
    names = ("tables", "rows", "inner")
    sizes = zip(names, _sizes(axis, table), strict=True)
    return Struct("struct poet_gather", (*sizes, ("ids", ids.size)))


def _rows(ids: Array, rows: int) -> Array:
    """Row of each position; -1 where there is none."""
    at = ids.reshape(-1).astype(np.int64)
    at = np.where(at < 0, at + rows, at)
    return np.where((at < 0) | (at >= rows), -1, at)


@dataclass(frozen=True)
class Gather(Op):
    """y[..., i, ...] = table[..., ids[i], ...] along an axis; inputs (table, ids).

    A negative id counts from the end. An id outside of the table gives a row of NaN, which the loss shows,
    and reads nothing.
    """

    axis: int = 0

    onnx: ClassVar[str] = "Gather"

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The ids' axes for the table's one."""
        table, ids = inputs
        _check(self.axis, table.shape, ids)
        if table.dtype != "f32":
            raise ValueError(f"its table is {table.dtype}, not float32")
        axis = self.axis % len(table.shape)
        return (Spec(table.shape[:axis] + ids.shape + table.shape[axis + 1 :]),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Copies."""
        table, ids = inputs
        sizes = _sizes(self.axis, table.shape)
        at = _rows(ids, sizes[1])
        y = np.where((at < 0)[None, :, None], table.dtype.type(np.nan), table.reshape(sizes)[:, at])
        axis = self.axis % table.ndim
        return (y.reshape(table.shape[:axis] + ids.shape + table.shape[axis + 1 :]),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each byte once."""
        return Work("move", outputs[0].nbytes)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = _struct(self.axis, inputs[0].shape, inputs[1])
        return (Call(Kernel("poet_gather_f32", _FAMILY), (s, In(0), In(1), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads the ids, not the table."""
        table, ids = inputs
        assert douts[0] is not None
        (dx,) = emit(GatherDx(self.axis, table.spec.shape), douts[0], ids)
        return dx, None

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {"axis": self.axis}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """A constant id, or constant ids in equal steps, are a Slice; others are read at run time."""
        axis = int(node.take("axis", 0))
        table, constant = node.inputs[0], node.constants[1]
        if constant is None or table is None or node.constants[0] is not None:
            return cls(axis), (0, 1)
        if not -len(table.shape) <= axis < len(table.shape):
            raise node.refuse(f"axis {axis} is outside {list(table.shape)}")
        rows = table.shape[axis]
        at = np.ravel(constant).astype(np.int64)
        if not at.size or at.min() < -rows or at.max() >= rows:
            raise node.refuse(f"its indices {at[:5].tolist()} are outside of {rows} rows")
        at = np.where(at < 0, at + rows, at)
        steps = np.diff(at)
        if constant.ndim > 1 or (steps.size and (steps != steps[0]).any()) or 0 in steps[:1]:
            return cls(axis), (0, 1)
        step = int(steps[0]) if steps.size else 1
        one = Slice.of(table.shape, {axis % len(table.shape): (int(at[0]), step, at.size)})
        return (one.without(axis % len(table.shape)) if constant.ndim == 0 else one), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Each axis, repeated and negative ids, a scalar; ids outside of the table."""
        ids = np.array([[3, 0, -1], [3, 3, -4]], np.int32)
        return (
            Example(cls(), (f32(5, 3), ids)),
            Example(cls(1), (f32(2, 4, 3), ids)),
            Example(cls(-1), (f32(2, 4), ids)),
            Example(cls(0), (f32(4), ids)),
            Example(cls(1), (f32(2, 4, 1), np.array(-2, np.int32))),
            Example(cls(0), (np.full((2, 3), np.nan, np.float32), np.array([2, -3, 1], np.int32))),
        )


@dataclass(frozen=True)
class GatherDx(Op):
    """The gradient of the table: each row's dy, positions ascending, from +0; inputs (dy, ids)."""

    axis: int
    table: Ints

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As the table."""
        _check(self.axis, self.table, inputs[1])
        return (Spec(self.table),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """One position after the other."""
        dy, ids = inputs
        tables, rows, inner = _sizes(self.axis, self.table)
        dx = np.zeros((tables, rows, inner), dy.dtype)
        parts = dy.reshape(tables, ids.size, inner)
        for i, at in enumerate(_rows(ids, rows)):
            if at >= 0:
                dx[:, at] += parts[:, i]
        return (dx.reshape(self.table),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """The table is cleared, then each position added."""
        return Work("elementwise", inputs[0].size + outputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = _struct(self.axis, self.table, inputs[1])
        return (Call(Kernel("poet_gather_dx_f32", _FAMILY), (s, In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Gather's."""
        found = []
        for e in Gather.examples():
            table, ids = e.arrays()
            assert isinstance(e.op, Gather)
            (y,) = e.op.reference(table, ids)
            found.append(Example(cls(e.op.axis, table.shape), (f32(*y.shape), ids)))
        return tuple(found)


@dataclass(frozen=True)
class GatherSgd(Op):
    """GatherDx and plain SGD in one: only rows that an id names change; inputs (table, dy, ids, lr).

    The bits are those of the two: a row that nobody names has the gradient +0. Made by poetgen.autodiff.
    """

    axis: int

    mutates: ClassVar[Ints] = (0,)
    recomputable: ClassVar[bool] = False

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """No output: the table changes in place."""
        table, dy, ids, lr = inputs
        (y,) = Gather(self.axis).infer(table, ids)
        if y.shape != dy.shape or lr.size != 1:
            raise ValueError(f"dy is {list(dy.shape)}, not {list(y.shape)}, or lr is no number")
        return ()

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The new table."""
        table, dy, ids, lr = inputs
        (dx,) = GatherDx(self.axis, table.shape).reference(dy, ids)
        named = np.unique(_rows(ids, _sizes(self.axis, table.shape)[1]))
        at = (slice(None),) * (self.axis % table.ndim) + (named[named >= 0],)
        new = table.copy()
        new[at] = table[at] - lr * dx[at]
        return (new,)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each position's elements, and a search for its like."""
        _, dy, ids, _ = inputs
        return Work("elementwise", 2 * dy.size + ids.size * ids.size)

    def workspace_bytes(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> int:
        """One row's gradient."""
        return 4 * _sizes(self.axis, inputs[0].shape)[2]

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = _struct(self.axis, inputs[0].shape, inputs[2])
        kernel = Kernel("poet_gather_sgd_f32", _FAMILY)
        return (Call(kernel, (s, In(3), In(1), In(2), Workspace(), In(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Gather's."""
        lr = np.array(0.1, np.float32)
        found = []
        for e in Gather.examples():
            table, ids = e.arrays()
            assert isinstance(e.op, Gather)
            (y,) = e.op.reference(table, ids)
            found.append(Example(cls(e.op.axis), (f32(*table.shape), f32(*y.shape), ids, lr)))
        return tuple(found)
