"""MaxPool and AveragePool over one or two spatial axes.

A one-dimensional window is a two-dimensional one of height 1. Windows may hang over the padding; each
covers at least one element. The window that a gradient comes from is walked (oy, ox) ascending.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
    Raw,
    Spec,
    Struct,
    Value,
    Work,
    f32,
)

Ints = tuple[int, ...]
_FAMILY = "pool"


@dataclass(frozen=True)
class Window:
    """What pooling slides: ``Window((3, 3), strides=(2, 2), pads=(1, 1, 1, 1))``; pads as in ONNX."""

    kernel: Ints
    strides: Ints
    pads: Ints
    dilations: Ints
    ceil_mode: bool = False

    @classmethod
    def of(
        cls,
        kernel: Ints,
        strides: Ints = (),
        pads: Ints = (),
        dilations: Ints = (),
        ceil_mode: bool = False,
    ) -> Window:
        """With ONNX's defaults: stride 1, no padding, no dilation."""
        n = len(kernel)
        return cls(kernel, strides or (1,) * n, pads or (0,) * 2 * n, dilations or (1,) * n, ceil_mode)

    def out_shape(self, x: Spec) -> Ints:
        """Shape of the output; ValueError in words where a window does not fit."""
        n = len(self.kernel)
        if n not in (1, 2) or len(x.shape) != n + 2:
            raise ValueError(f"a window {list(self.kernel)} does not slide over {list(x.shape)}")
        if not len(self.strides) == len(self.dilations) == len(self.pads) // 2 == n:
            raise ValueError(f"kernel, strides, pads and dilations disagree: {self}")
        if min(*self.kernel, *self.strides, *self.dilations) < 1 or min(self.pads) < 0:
            raise ValueError(f"a size below 1 or a negative pad: {self}")
        out = []
        for a, size in enumerate(x.shape[2:]):
            before, after = self.pads[a], self.pads[a + n]
            extent = (self.kernel[a] - 1) * self.dilations[a] + 1
            room = size + before + after - extent
            if room < 0:
                raise ValueError(f"a window of {extent} does not fit into {size} + {before} + {after}")
            steps = room // self.strides[a]
            if self.ceil_mode and room % self.strides[a]:
                # One more, unless it would start in the padding behind the input.
                steps += (steps + 1) * self.strides[a] < size + before
            out.append(steps + 1)
            for o in range(steps + 1):
                start = o * self.strides[a] - before
                if not any(0 <= start + k * self.dilations[a] < size for k in range(self.kernel[a])):
                    raise ValueError(f"window {o} of axis {a + 2} covers nothing but padding")
        return (*x.shape[:2], *out)

    def fields(self, x: Spec, y: Spec) -> tuple[tuple[str, int], ...]:
        """What struct poet_pool and struct poet_average have in common."""
        n = len(self.kernel)

        def two(values: Ints, fill: int) -> Ints:
            return (fill,) * (2 - n) + values[:n]

        in_h, in_w = two(x.shape[2:], 1)
        out_h, out_w = two(y.shape[2:], 1)
        kernel_h, kernel_w = two(self.kernel, 1)
        stride_h, stride_w = two(self.strides, 1)
        pad_h, pad_w = two(self.pads, 0)
        dilation_h, dilation_w = two(self.dilations, 1)
        return (
            ("batch", x.shape[0]),
            ("channels", x.shape[1]),
            ("x_chan", x.strides[1]),
            ("x_row", x.strides[2] if n == 2 else in_w),
            ("y_chan", y.strides[1]),
            ("y_row", y.strides[2] if n == 2 else out_w),
            ("in_h", in_h),
            ("in_w", in_w),
            ("out_h", out_h),
            ("out_w", out_w),
            ("kernel_h", kernel_h),
            ("kernel_w", kernel_w),
            ("stride_h", stride_h),
            ("stride_w", stride_w),
            ("pad_h", pad_h),
            ("pad_w", pad_w),
            ("dilation_h", dilation_h),
            ("dilation_w", dilation_w),
        )

    def taps(self, x: Ints, y: Ints) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
        """Taps ascending: its number, and the slices of y and of x that it joins."""
        n = len(self.kernel)
        for tap, at in enumerate(np.ndindex(*self.kernel)):
            ys, xs = [slice(None)] * 2, [slice(None)] * 2
            for a in range(n):
                s, offset = self.strides[a], at[a] * self.dilations[a] - self.pads[a]
                low = max(0, -(offset // s))  # first o with o s + offset >= 0
                high = min(y[a + 2], -((offset - x[a + 2]) // s))  # o s + offset < size
                high = max(low, high)
                ys.append(slice(low, high))
                xs.append(slice(low * s + offset, max(0, (high - 1) * s + offset + 1), s))
            if all(t.stop > t.start for t in ys[2:]):
                yield tap, tuple(ys), tuple(xs)

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {
            "kernel_shape": list(self.kernel),
            "strides": list(self.strides),
            "pads": list(self.pads),
            "ceil_mode": int(self.ceil_mode),
        }

    @classmethod
    def from_onnx(cls, node: OnnxNode, dilated: bool) -> Window:
        """Kernel, strides, pads or auto_pad, dilations, ceil_mode."""
        x = node.inputs[0]
        assert x is not None
        kernel = tuple(int(v) for v in node.take("kernel_shape", ()))
        n = len(kernel)
        if n not in (1, 2) or len(x.shape) != n + 2:
            raise node.refuse(
                f"it pools {list(x.shape)} by {list(kernel)}", "one or two spatial axes are supported"
            )
        strides = tuple(int(v) for v in node.take("strides", None) or (1,) * n)
        pads = tuple(int(v) for v in node.take("pads", None) or (0,) * 2 * n)
        dilations = (1,) * n
        if dilated:
            dilations = tuple(int(v) for v in node.take("dilations", None) or (1,) * n)
        ceil_mode = bool(node.take("ceil_mode", 0)) if node.opset >= 10 else False
        auto_pad = node.take("auto_pad", "NOTSET")
        auto_pad = auto_pad.decode() if isinstance(auto_pad, bytes) else auto_pad
        if auto_pad == "VALID":
            pads = (0,) * 2 * n
        elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            before, after = [], []
            for a, size in enumerate(x.shape[2:]):
                out = -(-size // strides[a])
                extent = (kernel[a] - 1) * dilations[a] + 1
                total = max(0, (out - 1) * strides[a] + extent - size)
                small, large = total // 2, total - total // 2
                before.append(small if auto_pad == "SAME_UPPER" else large)
                after.append(large if auto_pad == "SAME_UPPER" else small)
            pads = (*before, *after)
            ceil_mode = False  # the output's size is given
        elif auto_pad != "NOTSET":
            raise node.refuse(f"its auto_pad is {auto_pad!r}")
        return cls(kernel, strides, pads, dilations, ceil_mode)


def _max(x: Array, window: Window, shape: Ints) -> tuple[Array, Array]:
    """First maximum, or first NaN, and the number of its tap."""
    y = np.zeros(shape, x.dtype)
    index = np.full(shape, 255, np.uint8)
    for tap, ys, xs in window.taps(x.shape, shape):
        here, best = x[xs], y[ys]
        wins = (index[ys] == 255) | (~(here <= best) & (best == best))
        y[ys] = np.where(wins, here, best)
        index[ys] = np.where(wins, np.uint8(tap), index[ys])
    return y, index


def _max_fields(window: Window, x: Spec, y: Spec, index: Spec) -> tuple[tuple[str, int], ...]:
    """The members of struct poet_pool."""
    row = index.strides[2] if len(index.shape) == 4 else index.shape[2]
    return (*window.fields(x, y), ("index_chan", index.strides[1]), ("index_row", row))


def _check_taps(window: Window) -> None:
    if math.prod(window.kernel) > 255:
        raise ValueError(f"a window {list(window.kernel)} has more than 255 elements")


@dataclass(frozen=True)
class MaxPool(Op):
    """Largest of each window, and the number of its tap as a byte: all that the gradient needs."""

    window: Window

    onnx: ClassVar[str] = "MaxPool"
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The values and the index."""
        _check_taps(self.window)
        shape = self.window.out_shape(inputs[0])
        layout = inputs[0].layout
        return (Spec(shape, layout=layout), Spec(shape, "u8", layout))

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The first maximum wins."""
        (x,) = inputs
        return _max(x, self.window, self.window.out_shape(Spec(tuple(x.shape))))

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each tap of each window."""
        return Work("pool", outputs[0].size * math.prod(self.window.kernel))

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = Struct("struct poet_pool", _max_fields(self.window, inputs[0], *outputs))
        return (Call(Kernel("poet_maxpool_f32", _FAMILY), (s, In(0), Out(0), Out(1))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads the index, a byte an output; neither x nor y need be kept."""
        assert douts[0] is not None
        return emit(MaxPoolDx(self.window, inputs[0].spec.shape), douts[0], outputs[1])

    def inference(self) -> tuple[Op, Ints, Ints] | None:
        """Without the index."""
        return MaxPoolValues(self.window), (0,), (0,)

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {**self.window.attributes(), "dilations": list(self.window.dilations)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """Refuses the Indices output."""
        if node.output_count > 1:
            raise node.refuse("its Indices output is used", "only Y is supported")
        node.take("storage_order", 0)  # of Indices alone
        return cls(Window.from_onnx(node, dilated=node.opset >= 10)), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """1-D and 2-D, overlap, padding, dilation, ceil_mode, ties, NaN."""
        ties = np.array([1, 1, 0, np.nan, 2, np.nan, -np.inf, -np.inf], np.float32).reshape(1, 1, 8)
        return (
            *(Example(cls(w), (x,)) for w, x in _CASES),
            *(
                Example(cls(Window.of(k, s, (), d, c)), (x,))
                for k, s, d, c, x in (
                    ((2, 2), (1, 1), (2, 2), False, f32(1, 2, 5, 6)),
                    ((2, 2), (2, 3), (1, 2), True, f32(2, 2, 5, 6)),
                    ((3,), (1,), (2,), False, f32(2, 3, 9)),
                )
            ),
            Example(cls(Window.of((2,), (2,))), (ties,)),
            Example(cls(Window.of((3,), (1,))), (ties,)),
        )


_CASES: tuple[tuple[Window, Spec], ...] = (
    (Window.of((2,), (2,)), f32(2, 3, 8)),
    (Window.of((3,), (2,), (1, 1)), f32(2, 3, 7)),
    (Window.of((2, 2), (2, 2)), f32(2, 3, 6, 4)),
    (Window.of((2, 2), (2, 2)), f32(1, 2, 7, 5)),
    (Window.of((3, 3), (2, 2), (1, 1, 1, 1)), f32(1, 2, 7, 8)),
    (Window.of((3, 2), (1, 2), (0, 1, 2, 0)), f32(2, 1, 5, 6)),
    (Window.of((2, 2), (2, 2), (), (), True), f32(1, 2, 5, 7)),
    (Window.of((3, 3), (2, 2), (1, 1, 1, 1), (), True), f32(1, 2, 6, 8)),
    (Window.of((1, 1)), f32(1, 1, 1, 1)),
    (Window.of((2, 3), (3, 4)), f32(1, 2, 8, 11)),
)


@dataclass(frozen=True)
class MaxPoolValues(Op):
    """MaxPool without the index, for inference."""

    window: Window

    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Windows, no index."""
        return (Spec(self.window.out_shape(inputs[0]), layout=inputs[0].layout),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """As MaxPool's."""
        (x,) = inputs
        y = np.zeros(self.window.out_shape(Spec(tuple(x.shape))), x.dtype)
        seen = np.zeros(y.shape, bool)
        for _, ys, xs in self.window.taps(x.shape, y.shape):
            here, best = x[xs], y[ys]
            y[ys] = np.where(~seen[ys] | (~(here <= best) & (best == best)), here, best)
            seen[ys] = True
        return (y,)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each tap of each window."""
        return Work("pool", outputs[0].size * math.prod(self.window.kernel))

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """The same kernel, with nowhere to put an index."""
        s = Struct("struct poet_pool", _max_fields(self.window, inputs[0], outputs[0], outputs[0]))
        return (Call(Kernel("poet_maxpool_f32", _FAMILY), (s, In(0), Out(0), Raw("NULL"))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """MaxPool's, and a window that no byte could count."""
        return (
            *(Example(cls(w), (x,)) for w, x in _CASES),
            Example(cls(Window.of((17, 17))), (f32(1, 1, 18, 18),)),
        )


@dataclass(frozen=True)
class MaxPoolDx(Op):
    """dx = the sum of dy over the windows that x won, (oy, ox) ascending; inputs (dy, index)."""

    window: Window
    x_shape: Ints

    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x was."""
        dy, index = inputs
        shape = self.window.out_shape(Spec(self.x_shape))
        if not shape == dy.shape == index.shape:
            raise ValueError(f"dy is {list(dy.shape)}, its windows are {list(shape)}")
        return (Spec(self.x_shape, layout=inputs[0].layout),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Taps descending: for each element that is windows ascending."""
        dy, index = inputs
        dx = np.zeros(self.x_shape, dy.dtype)
        for tap, ys, xs in reversed(tuple(self.window.taps(self.x_shape, dy.shape))):
            dx[xs] = dx[xs] + np.where(index[ys] == tap, dy[ys], dy.dtype.type(0))
        return (dx,)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each window once, each element once."""
        return Work("elementwise", inputs[0].size + outputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = Struct("struct poet_pool", _max_fields(self.window, outputs[0], *inputs))
        return (Call(Kernel("poet_maxpool_dx_f32", _FAMILY), (s, In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """MaxPool's, with the indices it gives."""
        found = []
        for e in MaxPool.examples():
            (x,) = e.arrays(3)
            assert isinstance(e.op, MaxPool)
            y, index = e.op.reference(x)
            found.append(Example(cls(e.op.window, x.shape), (f32(*y.shape), index)))
        return tuple(found)


@dataclass(frozen=True)
class AveragePool(Op):
    """Sum of each window, row-major, divided by its elements: with or without those of the padding."""

    window: Window
    count_include_pad: bool = False

    onnx: ClassVar[str] = "AveragePool"
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Windows."""
        return (Spec(self.window.out_shape(inputs[0]), layout=inputs[0].layout),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Taps ascending from +0, then one division."""
        (x,) = inputs
        shape = self.window.out_shape(Spec(tuple(x.shape)))
        y = np.zeros(shape, x.dtype)
        for _, ys, xs in self.window.taps(x.shape, shape):
            y[ys] = y[ys] + x[xs]
        return (np.asarray(y / _counts(self, x.shape, shape).astype(x.dtype)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each tap of each window."""
        return Work("pool", outputs[0].size * math.prod(self.window.kernel))

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = Struct("struct poet_average", _average_fields(self, inputs[0], outputs[0]))
        return (Call(Kernel("poet_avgpool_f32", _FAMILY), (s, In(0), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads neither x nor y."""
        assert douts[0] is not None
        return emit(AveragePoolDx(self, inputs[0].spec.shape), douts[0])

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        dilated = {"dilations": list(self.window.dilations)} if max(self.window.dilations) > 1 else {}
        return {**self.window.attributes(), "count_include_pad": int(self.count_include_pad), **dilated}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """Dilations came with opset 19."""
        window = Window.from_onnx(node, dilated=node.opset >= 19)
        return cls(window, bool(node.take("count_include_pad", 0)) if node.opset >= 7 else False), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """1-D and 2-D, overlap, padding counted and not, ceil_mode."""
        return (
            *(Example(cls(w, pad), (x,)) for w, x in _CASES for pad in (False, True)),
            Example(cls(Window.of((2, 2), (1, 1), (1, 0, 1, 0), (2, 2))), (f32(1, 2, 5, 6),), opset=19),
        )


def _counts(op: AveragePool, x: Ints, y: Ints) -> Array:
    """By how much each window is divided, shaped to divide y."""
    w, n = op.window, len(op.window.kernel)
    count: Array = np.ones((), np.int64)
    for a in range(n):
        after = w.pads[a + n] if op.count_include_pad else 0
        before = w.pads[a] if op.count_include_pad else 0
        along = [
            sum(
                -before <= o * w.strides[a] - w.pads[a] + k * w.dilations[a] < x[a + 2] + after
                for k in range(w.kernel[a])
            )
            for o in range(y[a + 2])
        ]
        count = np.multiply.outer(count, np.array(along))
    return count


def _average_fields(op: AveragePool, x: Spec, y: Spec) -> tuple[tuple[str, int], ...]:
    """Members of struct poet_average: a poet_pool's, and how far the counted padding reaches."""
    n = len(op.window.kernel)
    pads = op.window.pads if op.count_include_pad else (0,) * 2 * n
    before = (0,) * (2 - n) + pads[:n]
    after = (0,) * (2 - n) + pads[n:]
    return (
        *op.window.fields(x, y),
        ("before_h", before[0]),
        ("before_w", before[1]),
        ("after_h", after[0]),
        ("after_w", after[1]),
    )


@dataclass(frozen=True)
class AveragePoolDx(Op):
    """dx = the sum of dy / count over the windows that x lies in, (oy, ox) ascending."""

    forward: AveragePool
    x_shape: Ints

    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x was."""
        shape = self.forward.window.out_shape(Spec(self.x_shape))
        if inputs[0].shape != shape:
            raise ValueError(f"dy is {list(inputs[0].shape)}, its windows are {list(shape)}")
        return (Spec(self.x_shape, layout=inputs[0].layout),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Taps descending: for each element that is windows ascending."""
        (dy,) = inputs
        share = dy / _counts(self.forward, self.x_shape, dy.shape).astype(dy.dtype)
        dx = np.zeros(self.x_shape, dy.dtype)
        for _, ys, xs in reversed(tuple(self.forward.window.taps(self.x_shape, dy.shape))):
            dx[xs] = dx[xs] + share[ys]
        return (dx,)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each tap of each window."""
        return Work("pool", inputs[0].size * math.prod(self.forward.window.kernel))

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = Struct("struct poet_average", _average_fields(self.forward, outputs[0], inputs[0]))
        return (Call(Kernel("poet_avgpool_dx_f32", _FAMILY), (s, In(0), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """AveragePool's."""
        found = []
        for e in AveragePool.examples():
            (x,) = e.arrays()
            assert isinstance(e.op, AveragePool)
            found.append(Example(cls(e.op, x.shape), e.op.infer(Spec(x.shape))))
        return tuple(found)
