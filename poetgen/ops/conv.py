"""Conv over sequences and images, any stride, padding, dilation and grouping, with its gradients.

A sequence is an image of height 1. Sums: y over c, ky, kx; dx over o, oy, ox; dw over n, oy, ox; all
ascending, from +0 or 0.0f + bias (docs/arithmetic.md).
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
from poetgen.ops.channel_sum import ChannelSum

Ints = tuple[int, ...]
_FAMILY = "conv2d"


@dataclass(frozen=True)
class Geometry:
    """How the kernel walks: ``Geometry(strides=(2, 2), pads=(1, 1, 1, 1))``; pads as in ONNX."""

    strides: Ints
    pads: Ints
    dilations: Ints
    groups: int = 1

    @classmethod
    def of(
        cls, rank: int, strides: Ints = (), pads: Ints = (), dilations: Ints = (), groups: int = 1
    ) -> Geometry:
        """With ONNX's defaults."""
        return cls(strides or (1,) * rank, pads or (0,) * 2 * rank, dilations or (1,) * rank, groups)

    @property
    def rank(self) -> int:
        """Spatial axes: 1 or 2."""
        return len(self.strides)

    def out_shape(self, x: Ints, w: Ints) -> Ints:
        """Shape of y; ValueError in words where x and w do not fit."""
        n = self.rank
        if n not in (1, 2) or len(x) != n + 2 or len(w) != n + 2:
            raise ValueError(f"a kernel {list(w)} does not slide over {list(x)}")
        if len(self.pads) != 2 * n or len(self.dilations) != n or min(self.pads) < 0:
            raise ValueError(f"strides, pads and dilations disagree or are negative: {self}")
        if min(*self.strides, *self.dilations, self.groups) < 1:
            raise ValueError(f"a stride, dilation or group below 1: {self}")
        if x[1] != w[1] * self.groups or w[0] % self.groups:
            raise ValueError(f"{x[1]} channels in {self.groups} groups do not fit a kernel {list(w)}")
        out = []
        for a in range(n):
            extent = (w[a + 2] - 1) * self.dilations[a] + 1
            room = x[a + 2] + self.pads[a] + self.pads[a + n] - extent
            if room < 0:
                raise ValueError(
                    f"a kernel of {extent} does not fit into axis {a + 2} of {list(x)} with its pads"
                )
            out.append(room // self.strides[a] + 1)
        return (x[0], w[0], *out)

    def struct(self, x: Spec, w: Ints, y: Spec) -> Struct:
        """The kernel's sizes; weights are dense, x and y each as its layout says."""
        return Struct("struct poet_conv2d", tuple(self.fields(x, w, y).items()))

    def fields(self, x: Spec, w: Ints, y: Spec) -> dict[str, int]:
        """The same by name."""
        in_h, in_w = _two(x.shape[2:], 1)
        out_h, out_w = _two(y.shape[2:], 1)
        kernel_h, kernel_w = _two(w[2:], 1)
        stride_h, stride_w = _two(self.strides, 1)
        dilation_h, dilation_w = _two(self.dilations, 1)
        pad_top, pad_left = _two(self.pads[: self.rank], 0)
        x_batch, x_chan, x_row = _strides(x)
        y_batch, y_chan, y_row = _strides(y)
        return {
            "batch": x.shape[0], "in_c": x.shape[1], "in_h": in_h, "in_w": in_w,
            "out_c": y.shape[1], "out_h": out_h, "out_w": out_w,
            "kernel_h": kernel_h, "kernel_w": kernel_w, "stride_h": stride_h, "stride_w": stride_w,
            "dilation_h": dilation_h, "dilation_w": dilation_w, "pad_top": pad_top, "pad_left": pad_left,
            "groups": self.groups,
            "x_batch": x_batch, "x_chan": x_chan, "x_row": x_row,
            "y_batch": y_batch, "y_chan": y_chan, "y_row": y_row,
            "w_out": w[1] * kernel_h * kernel_w, "w_in": kernel_h * kernel_w,
        }  # fmt: skip

    def taps(
        self, x: Ints, w: Ints, y: Ints
    ) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]]:
        """Taps of the kernel ascending, with the slices of y and of x that each joins."""
        for at in np.ndindex(*w[2:]):
            ys, xs = [], []
            for a in range(self.rank):
                first = at[a] * self.dilations[a] - self.pads[a]
                low = max(0, -(first // self.strides[a]))
                high = min(y[a + 2], (x[a + 2] - 1 - first) // self.strides[a] + 1)
                if low >= high:
                    break
                ys.append(slice(low, high))
                start = first + low * self.strides[a]
                xs.append(slice(start, start + (high - low - 1) * self.strides[a] + 1, self.strides[a]))
            else:
                yield at, tuple(ys), tuple(xs)


def _two(values: Ints, fill: int) -> Ints:
    return (fill,) * (2 - len(values)) + values


def _strides(image: Spec) -> Ints:
    """Floats from one image, channel and row to the next."""
    _, c, *rest = image.shape
    h, w = _two(tuple(rest), 1)
    return (c * h * w, w, c * w) if image.layout == "rows" else (c * h * w, h * w, w)


def _groups(x: Ints, w: Ints, groups: int) -> Iterator[tuple[slice, slice]]:
    """Channels of x and of y of each group."""
    out = w[0] // groups
    for g in range(groups):
        yield slice(g * w[1], (g + 1) * w[1]), slice(g * out, (g + 1) * out)


def _macs(w: Ints, y: Ints) -> int:
    return math.prod(y) * math.prod(w[1:])


@dataclass(frozen=True)
class Conv(Op):
    """y = b + w * x; operands (x, w) or (x, w, b). NCHW, weights OIHW."""

    geometry: Geometry

    onnx: ClassVar[str] = "Conv"
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """(n, o, spatial)."""
        x, w = inputs[:2]
        if len(inputs) > 2 and inputs[2].shape != w.shape[:1]:
            raise ValueError(f"a bias {list(inputs[2].shape)} does not fit {w.shape[0]} channels")
        return (Spec(self.geometry.out_shape(x.shape, w.shape), layout=x.layout),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """c, then taps, ascending; one product after the other."""
        x, w = inputs[:2]
        shape = self.geometry.out_shape(x.shape, w.shape)
        y = np.zeros(shape, x.dtype)
        if len(inputs) > 2:
            y = y + inputs[2].reshape(1, -1, *(1,) * self.geometry.rank)
        taps = tuple(self.geometry.taps(x.shape, w.shape, shape))
        for xs, os in _groups(x.shape, w.shape, self.geometry.groups):
            for c in range(w.shape[1]):
                for at, ys, at_x in taps:
                    weight = w[(os, c, *at)].reshape(1, -1, *(1,) * self.geometry.rank)
                    y[(slice(None), os, *ys)] += weight * x[:, xs][(slice(None), slice(c, c + 1), *at_x)]
        return (y,)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Multiply-accumulates, taps in the padding counted."""
        return Work("conv", _macs(inputs[1].shape, outputs[0].shape))

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        has_bias = len(inputs) > 2
        return (
            Call(
                Kernel("poet_conv2d_f32", _FAMILY),
                (
                    self.geometry.struct(inputs[0], inputs[1].shape, outputs[0]),
                    Raw("POET_START_BIAS" if has_bias else "POET_START_ZERO"),
                    In(0),
                    In(1),
                    In(2) if has_bias else Raw("NULL"),
                    Out(0),
                ),
            ),
        )

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """dx reads w, dw reads x, db neither; none reads y."""
        x, w = inputs[:2]
        dy = douts[0]
        assert dy is not None
        (dx,) = emit(ConvDx(self.geometry, x.spec.shape), w, dy)
        (dw,) = emit(ConvDw(self.geometry, w.spec.shape), x, dy)
        if len(inputs) == 2:
            return dx, dw
        (db,) = emit(ChannelSum(), dy)
        return dx, dw, db

    def attributes(self) -> dict[str, Any]:
        """As ONNX names them."""
        g = self.geometry
        return {
            "strides": list(g.strides),
            "pads": list(g.pads),
            "dilations": list(g.dilations),
            "group": g.groups,
        }

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, tuple[int, ...]]:
        """1-D and 2-D; auto_pad becomes pads."""
        x, w = node.inputs[0], node.inputs[1]
        if x is None or w is None:
            raise node.refuse("has no input or no weight")
        rank = len(x.shape) - 2
        if rank not in (1, 2):
            raise node.refuse(
                f"convolves {rank} axes of {list(x.shape)}; 1-D and 2-D are supported",
                "merge two of its spatial axes into one, or freeze what lies before it",
            )
        kernel = tuple(node.take("kernel_shape", w.shape[2:]))
        if kernel != w.shape[2:]:
            raise node.refuse(f"kernel_shape {list(kernel)} is not its weight's {list(w.shape[2:])}")
        strides = tuple(node.take("strides", (1,) * rank))
        dilations = tuple(node.take("dilations", (1,) * rank))
        pads = tuple(node.take("pads", (0,) * 2 * rank))
        auto = node.take("auto_pad", "NOTSET")
        if isinstance(auto, bytes):
            auto = auto.decode()
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            pads = same_pads(x.shape[2:], kernel, strides, dilations, upper=auto == "SAME_UPPER")
        elif auto == "VALID":
            pads = (0,) * 2 * rank
        elif auto != "NOTSET":
            raise node.refuse(f"has auto_pad {auto!r}")
        geometry = Geometry(strides, pads, dilations, int(node.take("group", 1)))
        return cls(geometry), tuple(i for i, spec in enumerate(node.inputs) if spec is not None)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """1-D and 2-D; strides, pads on every side, dilations, groups, depthwise with a multiplier."""
        of = Geometry.of
        cases: list[tuple[Geometry, Ints, Ints]] = [
            (of(2, pads=(1, 1, 1, 1)), (2, 3, 8, 8), (4, 3, 3, 3)),
            (of(2, (2, 2), (1, 1, 1, 1)), (1, 4, 9, 7), (5, 4, 3, 3)),
            (of(2, (2, 1), (1, 0, 0, 2)), (2, 3, 7, 6), (6, 3, 3, 2)),
            (of(2, pads=(2, 2, 2, 2), dilations=(2, 2), groups=2), (1, 4, 6, 6), (6, 2, 3, 3)),
            (of(2, pads=(1, 1, 1, 1), groups=4), (2, 4, 5, 5), (4, 1, 3, 3)),
            (of(2, (2, 2), (1, 1, 1, 1), groups=3), (1, 3, 7, 7), (6, 1, 3, 3)),
            (of(2), (1, 5, 4, 4), (7, 5, 1, 1)),
            (of(2, (2, 2)), (2, 8, 5, 5), (8, 8, 1, 1)),
            (of(2), (1, 1, 1, 1), (1, 1, 1, 1)),
            (of(2, pads=(1, 1, 1, 1)), (1, 10, 2, 2), (3, 10, 3, 3)),
            (of(1, (2,), (2, 2)), (2, 6, 20), (8, 6, 5)),
            (of(1, pads=(4, 0), dilations=(2,)), (3, 2, 11), (4, 2, 3)),
        ]
        return tuple(
            Example(cls(g), (f32(*x), f32(*w), *((f32(w[0]),) if k % 2 == 0 else ())))
            for k, (g, x, w) in enumerate(cases)
        )


def same_pads(x: Ints, kernel: Ints, strides: Ints, dilations: Ints, upper: bool) -> Ints:
    """Pads that make the output ceil(x / stride); an odd one goes to the end (upper) or the start."""
    before, after = [], []
    for size, k, stride, dilation in zip(x, kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size)
        small, large = total // 2, total - total // 2
        before.append(small if upper else large)
        after.append(large if upper else small)
    return (*before, *after)


@dataclass(frozen=True)
class ConvDx(Op):
    """dx from (w, dy): o, oy, ox ascending, which is taps descending."""

    geometry: Geometry
    x_shape: Ints

    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        return (Spec(self.x_shape, layout=inputs[1].layout),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """o ascending, taps descending, from +0."""
        w, dy = inputs
        dx = np.zeros(self.x_shape, dy.dtype)
        taps = tuple(self.geometry.taps(self.x_shape, w.shape, dy.shape))[::-1]
        per_group = w.shape[0] // self.geometry.groups
        groups = tuple(_groups(self.x_shape, w.shape, self.geometry.groups))
        for o in range(w.shape[0]):
            xs, _ = groups[o // per_group]
            part = dx[:, xs]
            for at, ys, at_x in taps:
                weight = w[(o, slice(None), *at)].reshape(1, -1, *(1,) * self.geometry.rank)
                part[(slice(None), slice(None), *at_x)] += weight * dy[(slice(None), slice(o, o + 1), *ys)]
        return (dx,)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """As forward."""
        return Work("conv", _macs(inputs[0].shape, inputs[1].shape))

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        struct = self.geometry.struct(outputs[0], inputs[0].shape, inputs[1])
        kernel = Kernel("poet_conv2d_dx_f32", _FAMILY)
        return (Call(kernel, (struct, Raw("POET_START_ZERO"), In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As Conv's examples emit it."""
        return tuple(
            Example(cls(op.geometry, x), (f32(*w), f32(*op.geometry.out_shape(x, w))))
            for op, x, w in _cases()
        )


@dataclass(frozen=True)
class ConvDw(Op):
    """dw from (x, dy): n, oy, ox ascending."""

    geometry: Geometry
    w_shape: Ints

    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As w."""
        return (Spec(self.w_shape),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """n, then positions of dy ascending; taps outside of x add nothing."""
        x, dy = inputs
        g = self.geometry
        dw = np.zeros(self.w_shape, dy.dtype)
        per_group = self.w_shape[0] // g.groups
        end = tuple(
            (d - 1) * s + (k - 1) * i + 1
            for d, s, k, i in zip(dy.shape[2:], g.strides, self.w_shape[2:], g.dilations, strict=True)
        )
        padded = np.zeros(
            (*x.shape[:2], *(max(e, p + n) for e, p, n in zip(end, g.pads, x.shape[2:], strict=False))),
            x.dtype,
        )
        inside = tuple(slice(p, p + n) for p, n in zip(g.pads, x.shape[2:], strict=False))
        padded[(slice(None), slice(None), *inside)] = x
        by_group = padded.reshape(x.shape[0], g.groups, self.w_shape[1], *padded.shape[2:])
        dw = dw.reshape(g.groups, per_group, *self.w_shape[1:])
        grads = dy.reshape(dy.shape[0], g.groups, per_group, *dy.shape[2:])
        for n in range(x.shape[0]):
            for at in np.ndindex(*dy.shape[2:]):
                window: tuple[Any, ...] = tuple(
                    slice(a * s, a * s + (k - 1) * d + 1, d)
                    for a, s, k, d in zip(at, g.strides, self.w_shape[2:], g.dilations, strict=True)
                )
                patch = by_group[(n, slice(None), slice(None), *window)]
                d = grads[(n, slice(None), slice(None), *at)].reshape(
                    g.groups, per_group, *(1,) * (g.rank + 1)
                )
                dw = dw + d * patch[:, None]
        return (np.asarray(dw.reshape(self.w_shape)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """As forward."""
        return Work("conv", _macs(self.w_shape, inputs[1].shape))

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        struct = self.geometry.struct(inputs[0], self.w_shape, inputs[1])
        kernel = Kernel("poet_conv2d_dw_f32", _FAMILY)
        return (Call(kernel, (struct, Raw("POET_START_ZERO"), In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As Conv's examples emit it."""
        return tuple(
            Example(cls(op.geometry, w), (f32(*x), f32(*op.geometry.out_shape(x, w))))
            for op, x, w in _cases()
        )


def _cases() -> Iterator[tuple[Conv, Ints, Ints]]:
    for e in Conv.examples():
        if isinstance(e.op, Conv):
            yield e.op, e.inputs[0].shape, e.inputs[1].shape
