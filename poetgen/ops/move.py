"""Slice, Concat, Split, Expand, Pad: elements go elsewhere and keep their values.

One kernel does all: it copies a block of any strides into a block of any strides.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from poetgen.op import (
    Arg,
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
    f32,
)
from poetgen.ops.add import SumTo
from poetgen.strides import broadcast_to, collapse, row_major

Ints = tuple[int, ...]
_FAMILY = "move"


@dataclass(frozen=True)
class Block:
    """Some elements of a tensor: where the first one lies, and how far each axis moves."""

    at: int
    steps: Ints

    @classmethod
    def of(cls, tensor: Ints, starts: Ints, steps: Ints) -> Block:
        """From ``starts`` on, every ``steps``-th element of each axis."""
        strides = row_major(tensor)
        at = sum(s * n for s, n in zip(starts, strides, strict=True))
        return cls(at, tuple(s * n for s, n in zip(steps, strides, strict=True)))


def _copy(sizes: Ints, x: Block, y: Block, source: Arg, target: Arg, symbol: str = "poet_move_f32") -> Call:
    walked, x_steps, y_steps = collapse(sizes, x.steps, y.steps)
    fields = [(f"size{k}", n) for k, n in enumerate(walked)]
    fields += [(f"x{k}", n) for k, n in enumerate(x_steps)]
    fields += [(f"y{k}", n) for k, n in enumerate(y_steps)]
    struct = Struct("struct poet_move", (*fields, ("x_at", x.at), ("y_at", y.at)))
    return Call(Kernel(symbol, _FAMILY), (struct, source, target))


def _fill(size: int, value: float, target: Arg) -> Call:
    return Call(Kernel("poet_fill_f32", _FAMILY), (size, float(value), target))


def _floats(*specs: Spec) -> None:
    if other := [s.dtype for s in specs if s.dtype != "f32"]:
        raise ValueError(f"it moves {other[0]}, not float32")


class _Moving:
    """Work in bytes."""

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each byte once."""
        return Work("move", sum(s.nbytes for s in outputs))


@dataclass(frozen=True)
class Slice(_Moving, Op):
    """For each axis a start, a step and a count; ``drop``: axes of one element that are left out."""

    starts: Ints
    steps: Ints
    counts: Ints
    drop: Ints = ()

    onnx: ClassVar[str] = "Slice"

    @classmethod
    def of(cls, shape: Ints, axes: Mapping[int, tuple[int, int, int]]) -> Slice:
        """(start, step, count) of some axes, all of the others."""
        every = [axes.get(a, (0, 1, n)) for a, n in enumerate(shape)]
        starts, steps, counts = zip(*every, strict=True)
        return cls(starts, steps, counts)

    def without(self, axis: int) -> Slice:
        """The same without an axis of one element."""
        return replace(self, drop=(axis,))

    @property
    def axes(self) -> Ints:
        """Axes that may lose elements: what a rebound batch must not be among."""
        return tuple(range(len(self.counts)))

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The counts."""
        (x,) = inputs
        _floats(x)
        if len(x.shape) != len(self.counts):
            raise ValueError(f"it slices {len(self.counts)} axes of {list(x.shape)}")
        for n, start, step, count in zip(x.shape, self.starts, self.steps, self.counts, strict=True):
            if count < 1:
                raise ValueError(f"it takes nothing of {list(x.shape)}")
            if not 0 <= start < n or not 0 <= start + (count - 1) * step < n:
                raise ValueError(f"{count} elements from {start} in steps of {step} are outside of {n}")
        shape = tuple(n for a, n in enumerate(self.counts) if a not in self.drop)
        self._call(x.shape, In(0), Out(0))  # refuses what four loops cannot walk
        return (Spec(shape),)

    def _call(self, x: Ints, source: Arg, target: Arg) -> Call:
        block = Block.of(x, self.starts, self.steps)
        return _copy(self.counts, block, Block(0, row_major(self.counts)), source, target)

    def index(self) -> tuple[slice, ...]:
        """As numpy's."""
        found = []
        for start, step, count in zip(self.starts, self.steps, self.counts, strict=True):
            stop = start + count * step
            found.append(slice(start, stop if stop >= 0 else None, step))
        return tuple(found)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """A copy."""
        shape = tuple(n for a, n in enumerate(self.counts) if a not in self.drop)
        return (np.array(inputs[0][self.index()]).reshape(shape),)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        return (self._call(inputs[0].shape, In(0), Out(0)),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Back into zeros."""
        assert douts[0] is not None
        return emit(Place(self, inputs[0].spec.shape, 0.0), douts[0])

    def onnx_constants(self) -> dict[int, Array]:
        """Starts, ends, axes, steps; an end before the start of the axis is a very negative one."""
        ends = [
            start + count * step if start + count * step >= 0 else -(1 << 31)
            for start, step, count in zip(self.starts, self.steps, self.counts, strict=True)
        ]
        given = (self.starts, ends, range(len(self.starts)), self.steps)
        return {k + 1: np.array(v, np.int64) for k, v in enumerate(given)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """Starts, ends, axes are attributes below opset 10; then they, and steps, are constants."""
        x = node.inputs[0]
        assert x is not None
        given: list[Any]
        if node.opset < 10:
            given = [node.take("starts", ()), node.take("ends", ()), node.take("axes", None), None]
        else:
            given = []
            for k, what in enumerate(("starts", "ends", "axes", "steps"), 1):
                present = k < len(node.inputs) and node.inputs[k] is not None
                if present and node.constants[k] is None:
                    raise node.refuse(f"its {what} are computed at run time", "export with fixed shapes")
                given.append(node.constants[k] if present else None)
        starts, ends, axes, steps = (None if v is None else [int(i) for i in np.ravel(v)] for v in given)
        if not starts or not ends:
            raise node.refuse("it has no starts or no ends")
        axes = list(range(len(starts))) if axes is None else axes
        steps = [1] * len(starts) if steps is None else steps
        if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
            raise node.refuse(f"starts {starts}, ends {ends}, axes {axes}, steps {steps} do not fit together")
        taken = {}
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            if not -len(x.shape) <= axis < len(x.shape):
                raise node.refuse(f"axis {axis} is outside {list(x.shape)}")
            all_of_it = range(x.shape[axis])[slice(start, end, step)]
            taken[axis % len(x.shape)] = (all_of_it.start, all_of_it.step, len(all_of_it))
        return cls.of(x.shape, taken), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Each end, steps, backwards, one element."""
        return tuple(Example(s, (f32(*x),)) for s, x in _slices() if not s.drop)


def _slices() -> tuple[tuple[Slice, Ints], ...]:
    of = Slice.of
    return (
        (of((5,), {0: (1, 1, 3)}), (5,)),
        (of((4, 5), {1: (2, 1, 3)}), (4, 5)),
        (of((4, 5), {0: (2, 1, 2)}), (4, 5)),
        (of((4, 5, 6), {1: (0, 2, 3), 2: (5, -1, 6)}), (4, 5, 6)),
        (of((2, 3, 4, 5), {1: (1, 1, 2), 3: (4, -2, 3)}), (2, 3, 4, 5)),
        (of((2, 3), {}), (2, 3)),
        (of((2, 3, 4), {1: (0, 1, 1)}).without(1), (2, 3, 4)),
        (of((3,), {0: (2, 1, 1)}).without(0), (3,)),
    )


@dataclass(frozen=True)
class Place(_Moving, Op):
    """x at the elements that a Slice takes of a larger tensor, ``value`` elsewhere."""

    where: Slice
    shape: Ints
    value: float = 0.0

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The larger tensor."""
        (taken,) = self.where.infer(Spec(self.shape))
        if inputs[0].shape != taken.shape:
            raise ValueError(f"x is {list(inputs[0].shape)}, its place {list(taken.shape)}")
        return (Spec(self.shape),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """A copy."""
        (x,) = inputs
        y = np.full(self.shape, self.value, x.dtype)
        y[self.where.index()] = x.reshape(self.where.counts)
        return (y,)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """Fill, then copy."""
        w = self.where
        copy = _copy(
            w.counts, Block(0, row_major(w.counts)), Block.of(self.shape, w.starts, w.steps), In(0), Out(0)
        )
        return _fill(outputs[0].size, self.value, Out(0)), copy

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """The slice of dy."""
        assert douts[0] is not None
        return emit(self.where, douts[0])

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Slice's."""
        return tuple(
            Example(cls(s, x, value), s.infer(f32(*x))) for s, x in _slices() for value in (0.0, -1.5)
        )


@dataclass(frozen=True)
class Pad(_Moving, Op):
    """x with ``value`` around it: ``before`` and ``after`` each axis."""

    before: Ints
    after: Ints
    value: float = 0.0

    onnx: ClassVar[str] = "Pad"

    def _place(self, x: Ints) -> Place:
        if not len(self.before) == len(self.after) == len(x):
            raise ValueError(f"{len(self.before)} pads do not fit {list(x)}")
        if min(*self.before, *self.after) < 0:
            raise ValueError(f"a negative pad: {list(self.before)}, {list(self.after)}")
        shape = tuple(b + n + a for b, n, a in zip(self.before, x, self.after, strict=True))
        return Place(Slice(self.before, (1,) * len(x), x), shape, self.value)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Larger."""
        return self._place(inputs[0].shape).infer(*inputs)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """A copy."""
        return self._place(inputs[0].shape).reference(*inputs)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """Fill, then copy."""
        return self._place(inputs[0].shape).calls(inputs, outputs)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """The middle of dy."""
        assert douts[0] is not None
        return emit(self._place(inputs[0].spec.shape).where, douts[0])

    def onnx_constants(self) -> dict[int, Array]:
        """Pads and value."""
        return {1: np.array((*self.before, *self.after), np.int64), 2: np.array(self.value, np.float32)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """Pads and value are attributes below opset 11, then constants; axes came with 18."""
        x = node.inputs[0]
        assert x is not None
        mode = node.take("mode", "constant")
        mode = mode.decode() if isinstance(mode, bytes) else mode
        if mode != "constant":
            raise node.refuse(f"it pads by {mode!r}", "only constant padding is supported")
        pads: Any
        value: Any = 0.0
        axes: Any = None
        if node.opset < 11:
            pads = node.take("pads", ())
            value = node.take("value", 0.0)
        else:
            for k in range(1, len(node.inputs)):
                if node.inputs[k] is not None and node.constants[k] is None:
                    raise node.refuse(
                        "its pads, value or axes are computed at run time", "export with fixed shapes"
                    )
            given = (*node.constants, None, None, None)
            pads = given[1]
            value = 0.0 if given[2] is None else np.ravel(given[2])[0]
            axes = given[3]
        pads = [int(p) for p in np.ravel(pads)]
        on = range(len(x.shape)) if axes is None else [int(a) % len(x.shape) for a in np.ravel(axes)]
        if len(pads) != 2 * len(on):
            raise node.refuse(f"its pads {pads} do not fit {len(on)} axes")
        before, after = [0] * len(x.shape), [0] * len(x.shape)
        for k, a in enumerate(on):
            before[a], after[a] = pads[k], pads[k + len(on)]
        return cls(tuple(before), tuple(after), float(value)), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """One side, all sides, none."""
        return tuple(
            Example(cls(b, a, value), (f32(*x),))
            for b, a, value, x in (
                ((1,), (2,), 0.0, (3,)),
                ((0, 0, 1, 2), (0, 0, 3, 0), 0.0, (2, 3, 4, 5)),
                ((1, 0, 1), (0, 2, 1), -2.5, (2, 3, 4)),
                ((0, 0), (0, 0), 0.0, (2, 3)),
            )
        )


@dataclass(frozen=True)
class Concat(_Moving, Op):
    """The inputs one after the other along an axis."""

    axis: int

    onnx: ClassVar[str] = "Concat"

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The sum of their sizes there."""
        first = inputs[0].shape
        _floats(*inputs)
        if not -len(first) <= self.axis < len(first):
            raise ValueError(f"axis {self.axis} is outside {list(first)}")
        axis = self.axis % len(first)
        for s in inputs:
            if s.shape[:axis] + s.shape[axis + 1 :] != first[:axis] + first[axis + 1 :]:
                raise ValueError(f"{list(s.shape)} and {list(first)} differ beside axis {axis}")
        total = sum(s.shape[axis] for s in inputs)
        return (Spec((*first[:axis], total, *first[axis + 1 :])),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Copies."""
        return (np.concatenate(inputs, self.axis),)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call an input."""
        parts = _parts(self.axis, [s.shape for s in inputs], outputs[0].shape)
        return tuple(
            _copy(s.shape, Block(0, row_major(s.shape)), part, In(i), Out(0))
            for i, (s, part) in enumerate(zip(inputs, parts, strict=True))
        )

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Each a slice of dy, so that what nobody needs is not made."""
        assert douts[0] is not None
        found: list[Value | None] = []
        axis, at = self.axis % len(outputs[0].spec.shape), 0
        for v in inputs:
            count = v.spec.shape[axis]
            found += emit(Slice.of(outputs[0].spec.shape, {axis: (at, 1, count)}), douts[0])
            at += count
        return tuple(found)

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {"axis": self.axis}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """The default axis, below opset 4, is the second."""
        axis = int(node.take("axis", 1))
        return cls(axis), tuple(range(len(node.inputs)))

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """First, middle, last axis; one input, three."""
        return tuple(Example(cls(axis), tuple(f32(*s) for s in shapes)) for axis, shapes in _JOINED)


_JOINED: tuple[tuple[int, tuple[Ints, ...]], ...] = (
    (0, ((2, 3), (1, 3))),
    (1, ((2, 3, 4), (2, 1, 4), (2, 5, 4))),
    (-1, ((2, 3), (2, 2), (2, 1))),
    (-3, ((2, 1, 2, 2), (2, 2, 2, 2))),
    (0, ((4,),)),
)


def _parts(axis: int, parts: Sequence[Ints], whole: Ints) -> list[Block]:
    """Where each part lies in the whole."""
    axis, at = axis % len(whole), 0
    found = []
    for part in parts:
        starts = tuple(at if a == axis else 0 for a in range(len(whole)))
        found.append(Block.of(whole, starts, (1,) * len(whole)))
        at += part[axis]
    return found


@dataclass(frozen=True)
class Split(_Moving, Op):
    """Parts of x along an axis, of these sizes."""

    axis: int
    sizes: Ints

    onnx: ClassVar[str] = "Split"

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The parts."""
        (x,) = inputs
        _floats(x)
        if not -len(x.shape) <= self.axis < len(x.shape):
            raise ValueError(f"axis {self.axis} is outside {list(x.shape)}")
        axis = self.axis % len(x.shape)
        if sum(self.sizes) != x.shape[axis] or min(self.sizes) < 1:
            raise ValueError(f"{list(self.sizes)} do not make up axis {axis} of {list(x.shape)}")
        return tuple(Spec((*x.shape[:axis], n, *x.shape[axis + 1 :])) for n in self.sizes)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Copies."""
        at = list(itertools.accumulate(self.sizes))[:-1]
        return tuple(np.array(part) for part in np.split(inputs[0], at, self.axis))

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call an output."""
        parts = _parts(self.axis, [s.shape for s in outputs], inputs[0].shape)
        return tuple(
            _copy(s.shape, part, Block(0, row_major(s.shape)), In(0), Out(i))
            for i, (s, part) in enumerate(zip(outputs, parts, strict=True))
        )

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """The parts that have one, joined; zeros for the others."""
        given = tuple(d is not None for d in douts)
        return emit(SplitDx(self.axis, self.sizes, given), *(d for d in douts if d is not None))

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {"axis": self.axis}

    def onnx_constants(self) -> dict[int, Array]:
        """The sizes."""
        return {1: np.array(self.sizes, np.int64)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """Sizes are an attribute below opset 13, then a constant; without them the parts are equal."""
        x = node.inputs[0]
        assert x is not None
        axis = int(node.take("axis", 0))
        if not -len(x.shape) <= axis < len(x.shape):
            raise node.refuse(f"axis {axis} is outside {list(x.shape)}")
        sizes: Any = None
        if node.opset < 13:
            sizes = node.take("split", None)
        elif len(node.inputs) > 1 and node.inputs[1] is not None:
            sizes = node.constants[1]
            if sizes is None:
                raise node.refuse("its sizes are computed at run time", "export with fixed shapes")
        count = int(node.take("num_outputs", node.output_count)) if node.opset >= 18 else node.output_count
        if sizes is None:
            size = -(-x.shape[axis] // count)  # the last one takes what is left
            sizes = [min(size, x.shape[axis] - k * size) for k in range(count)]
        return cls(axis, tuple(int(n) for n in np.ravel(sizes))), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """First, middle, last axis; unequal parts."""
        return tuple(Example(cls(axis, sizes), (f32(*x),)) for axis, sizes, x in _PARTED)


_PARTED: tuple[tuple[int, Ints, Ints], ...] = (
    (0, (2, 1), (3, 4)),
    (1, (1, 3, 2), (2, 6, 3)),
    (-1, (2, 2, 2), (2, 6)),
    (0, (5,), (5,)),
)


@dataclass(frozen=True)
class SplitDx(_Moving, Op):
    """The parts' gradients joined, those ``given``; zeros for the others."""

    axis: int
    sizes: Ints
    given: tuple[bool, ...]

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        first = inputs[0].shape
        axis = self.axis % len(first)
        return (Spec((*first[:axis], sum(self.sizes), *first[axis + 1 :])),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Copies."""
        rest = iter(inputs)
        axis, first = self.axis % inputs[0].ndim, inputs[0]
        shapes = [(*first.shape[:axis], n, *first.shape[axis + 1 :]) for n in self.sizes]
        parts = [
            next(rest) if given else np.zeros(s, first.dtype)
            for given, s in zip(self.given, shapes, strict=True)
        ]
        return (np.concatenate(parts, axis),)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """Zeros where a part is missing, then one call a part."""
        dx = outputs[0].shape
        axis = self.axis % len(dx)
        parts = _parts(axis, [(*dx[:axis], n, *dx[axis + 1 :]) for n in self.sizes], dx)
        found = [] if all(self.given) else [_fill(outputs[0].size, 0.0, Out(0))]
        for i, part in enumerate(p for p, given in zip(parts, self.given, strict=True) if given):
            shape = inputs[i].shape
            found.append(_copy(shape, Block(0, row_major(shape)), part, In(i), Out(0)))
        return tuple(found)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Split's, with each part missing in turn."""
        found = []
        for axis, sizes, x in _PARTED:
            parts = Split(axis, sizes).infer(f32(*x))
            for missing in range(-1, len(sizes)):
                given = tuple(k != missing for k in range(len(sizes)))
                if any(given):
                    there = tuple(p for p, g in zip(parts, given, strict=True) if g)
                    found.append(Example(cls(axis, sizes, given), there))
        return tuple(found)


@dataclass(frozen=True)
class Expand(_Moving, Op):
    """x broadcast with a shape; numbers, or conditions."""

    shape: Ints

    onnx: ClassVar[str] = "Expand"

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Both broadcast, as in numpy."""
        (x,) = inputs
        if x.dtype == "i32":
            raise ValueError("it moves i32, not float32 or conditions")
        try:
            shape = tuple(np.broadcast_shapes(x.shape, self.shape))
        except ValueError:
            raise ValueError(f"{list(x.shape)} does not broadcast with {list(self.shape)}") from None
        y = Spec(shape, x.dtype)
        self._call(x, y)  # refuses what four loops cannot walk
        return (y,)

    @staticmethod
    def _call(x: Spec, y: Spec) -> Call:
        source, target = Block(0, broadcast_to(x.shape, y.shape)), Block(0, row_major(y.shape))
        return _copy(y.shape, source, target, In(0), Out(0), f"poet_move_{x.dtype}")

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Copies."""
        (x,) = inputs
        return (np.array(np.broadcast_to(x, np.broadcast_shapes(x.shape, self.shape))),)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        return (self._call(inputs[0], outputs[0]),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """The sum over what was repeated."""
        assert douts[0] is not None
        if inputs[0].spec.shape == outputs[0].spec.shape:
            return (douts[0],)
        return emit(SumTo(inputs[0].spec.shape), douts[0])

    def onnx_constants(self) -> dict[int, Array]:
        """The shape."""
        return {1: np.array(self.shape, np.int64)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """The shape is a constant."""
        shape = node.constants[1]
        if shape is None:
            raise node.refuse("its shape is computed at run time", "export with fixed shapes")
        return cls(tuple(int(n) for n in np.ravel(shape))), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Inner, outer, alternating; fewer and more axes; nothing to do; conditions."""
        condition = np.array([[1], [0], [1]], np.uint8)
        return Example(cls((2, 3, 2)), (condition,)), *(
            Example(cls(to), (f32(*x),))
            for x, to in (
                ((3,), (2, 3)),
                ((3, 1), (2, 3, 4)),
                ((2, 1, 3, 1), (2, 4, 3, 5)),
                ((1, 3), (1,)),
                ((), (2, 2)),
                ((2, 3), (2, 3)),
            )
        )
