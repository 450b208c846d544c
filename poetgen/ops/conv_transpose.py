"""ConvTranspose: what a convolution's gradient does, with that convolution as its own gradient.

The kernels are those of Conv: forward is dx, dx is forward, and dw is dw with its operands exchanged.
The bias is added after the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from poetgen.op import Arg, Array, Call, Emit, Example, In, OnnxNode, Op, Out, Spec, Value, Work, f32
from poetgen.ops.add import Add
from poetgen.ops.channel_sum import ChannelSum
from poetgen.ops.conv import Conv, ConvDw, ConvDx, Geometry

Ints = tuple[int, ...]


@dataclass(frozen=True)
class ConvTranspose(Op):
    """The image that ``geometry`` turns into x's shape; operands (x, w) or (x, w, b), w [in, out, ...].

    ``extra`` elements at each axis' end are those that no division of sizes tells.
    """

    geometry: Geometry
    extra: Ints

    onnx: ClassVar[str] = "ConvTranspose"

    def out_shape(self, x: Ints, w: Ints) -> Ints:
        """(n, out, spatial); ValueError in words where shapes do not fit."""
        g = self.geometry
        if len(x) != g.rank + 2 or len(w) != g.rank + 2 or x[1] != w[0]:
            raise ValueError(f"a kernel {list(w)} does not fit {list(x)}")
        spatial = []
        for a in range(g.rank):
            extent = (w[a + 2] - 1) * g.dilations[a] + 1
            size = (x[a + 2] - 1) * g.strides[a] + extent - g.pads[a] - g.pads[a + g.rank] + self.extra[a]
            if size < 1:
                raise ValueError(f"its pads leave nothing of axis {a + 2} of {list(x)}")
            spatial.append(size)
        shape = (x[0], w[1] * g.groups, *spatial)
        back = g.out_shape(shape, w)
        if back != x:
            raise ValueError(
                f"an output of {list(shape)} is convolved to {list(back)}, not to {list(x)}: output_padding "
                f"{list(self.extra)} is not below the strides {list(g.strides)}"
            )
        return shape

    def _sum(self, x: Ints, w: Ints) -> ConvDx:
        return ConvDx(self.geometry, self.out_shape(x, w))

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The larger image."""
        x, w = inputs[:2]
        shape = self.out_shape(x.shape, w.shape)
        if len(inputs) > 2 and inputs[2].shape != shape[1:2]:
            raise ValueError(f"a bias {list(inputs[2].shape)} does not fit {shape[1]} channels")
        return (Spec(shape),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The sum, then the bias."""
        x, w = inputs[:2]
        (y,) = self._sum(x.shape, w.shape).reference(w, x)
        if len(inputs) > 2:
            y = y + inputs[2].reshape(1, -1, *(1,) * self.geometry.rank)
        return (np.asarray(y),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """As the convolution's."""
        return self._sum(inputs[0].shape, inputs[1].shape).work((inputs[1], inputs[0]), outputs)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """The convolution's dx, then the bias in place."""
        x, w = inputs[:2]
        found = [_with(c, {0: In(1), 1: In(0)}) for c in self._sum(x.shape, w.shape).calls((w, x), outputs)]
        if len(inputs) > 2:
            bias = Spec((1, inputs[2].size, *(1,) * self.geometry.rank))
            found += [_with(c, {0: Out(0), 1: In(2)}) for c in Add().calls((outputs[0], bias), outputs)]
        return tuple(found)

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
        (dx,) = emit(ConvTransposeDx(self.geometry), dy, w)
        (dw,) = emit(ConvDw(self.geometry, w.spec.shape), dy, x)
        if len(inputs) == 2:
            return dx, dw
        (db,) = emit(ChannelSum(), dy)
        return dx, dw, db

    def attributes(self) -> dict[str, Any]:
        """As ONNX names them."""
        return {**Conv(self.geometry).attributes(), "output_padding": list(self.extra)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """1-D and 2-D; output_shape and auto_pad become pads."""
        x, w = node.inputs[0], node.inputs[1]
        assert x is not None and w is not None
        rank = len(x.shape) - 2
        if rank not in (1, 2):
            raise node.refuse(f"convolves {rank} axes of {list(x.shape)}; 1-D and 2-D are supported")
        kernel = tuple(node.take("kernel_shape", w.shape[2:]))
        if kernel != w.shape[2:]:
            raise node.refuse(f"kernel_shape {list(kernel)} is not its weight's {list(w.shape[2:])}")
        strides = tuple(node.take("strides", (1,) * rank))
        dilations = tuple(node.take("dilations", (1,) * rank))
        pads = tuple(node.take("pads", (0,) * 2 * rank))
        extra = tuple(node.take("output_padding", (0,) * rank))
        auto = node.take("auto_pad", "NOTSET")
        auto = auto.decode() if isinstance(auto, bytes) else auto
        wanted = node.take("output_shape", None)
        if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
            raise node.refuse(f"has auto_pad {auto!r}")
        if auto == "VALID":
            pads = (0,) * 2 * rank
        if wanted is None and auto.startswith("SAME"):
            wanted = tuple(n * s for n, s in zip(x.shape[2:], strides, strict=True))
        if wanted is not None:
            before, after = [], []
            for a, size in enumerate(tuple(wanted)[-rank:]):
                full = (x.shape[a + 2] - 1) * strides[a] + (kernel[a] - 1) * dilations[a] + 1 + extra[a]
                total = full - size
                if total < 0:
                    raise node.refuse(f"its output_shape {list(wanted)} is larger than what it makes")
                small, large = total // 2, total - total // 2
                before.append(large if auto == "SAME_LOWER" else small)
                after.append(small if auto == "SAME_LOWER" else large)
            pads = (*before, *after)
        geometry = Geometry(strides, pads, dilations, int(node.take("group", 1)))
        return cls(geometry, extra), tuple(i for i, spec in enumerate(node.inputs) if spec is not None)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """1-D and 2-D; strides, pads, dilations, groups, elements at the end."""
        return tuple(
            Example(cls(g, e), (f32(*x), f32(*w), *((f32(w[1] * g.groups),) if k % 2 == 0 else ())))
            for k, (g, e, x, w) in enumerate(_CASES)
        )


_CASES: tuple[tuple[Geometry, Ints, Ints, Ints], ...] = (
    (Geometry.of(2), (0, 0), (2, 3, 4, 5), (3, 2, 3, 3)),
    (Geometry.of(2, (2, 2), (1, 1, 1, 1)), (0, 0), (1, 4, 4, 3), (4, 5, 3, 3)),
    (Geometry.of(2, (2, 2), (1, 1, 1, 1)), (1, 1), (1, 2, 4, 4), (2, 3, 3, 3)),
    (Geometry.of(2, (2, 3), (0, 1, 1, 0), dilations=(2, 1)), (1, 2), (2, 2, 3, 3), (2, 3, 2, 3)),
    (Geometry.of(2, (2, 2), groups=2), (0, 0), (1, 4, 3, 3), (4, 3, 2, 2)),
    (Geometry.of(2, groups=3), (0, 0), (1, 3, 4, 4), (3, 1, 2, 2)),
    (Geometry.of(1, (2,), (1, 2)), (1,), (2, 3, 7), (3, 4, 5)),
    (Geometry.of(2), (0, 0), (1, 1, 1, 1), (1, 1, 1, 1)),
)


def _with(call: Call, inputs: dict[int, Arg]) -> Call:
    """The call with other operands for its inputs."""
    return replace(call, args=tuple(inputs[a.index] if isinstance(a, In) else a for a in call.args))


@dataclass(frozen=True)
class ConvTransposeDx(Op):
    """dx = the convolution of dy; inputs (dy, w)."""

    geometry: Geometry

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        return Conv(self.geometry).infer(*inputs)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """As Conv's."""
        return Conv(self.geometry).reference(*inputs)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """As Conv's."""
        return Conv(self.geometry).work(inputs, outputs)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """As Conv's."""
        return Conv(self.geometry).calls(inputs, outputs)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """ConvTranspose's."""
        return tuple(
            Example(cls(g), (f32(*ConvTranspose(g, e).out_shape(x, w)), f32(*w))) for g, e, x, w in _CASES
        )
