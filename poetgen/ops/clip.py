"""Clip: y = x held between two bounds; Relu6 among others."""

from __future__ import annotations

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
    Value,
    Work,
    f32,
)

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Clip(Op):
    """y = min(max(x, low), high); None is no bound; a NaN passes."""

    low: float | None = None
    high: float | None = None

    onnx: ClassVar[str] = "Clip"
    in_place: ClassVar[tuple[int, ...]] = (0,)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        if inputs[0].dtype != "f32":
            raise ValueError(f"it clips {inputs[0].dtype}, not float32")
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """First the lower bound, then the upper one."""
        (y,) = inputs
        if self.low is not None:
            low = y.dtype.type(self.low)
            y = np.where(y < low, low, y)
        if self.high is not None:
            high = y.dtype.type(self.high)
            y = np.where(y > high, high, y)
        return (np.asarray(y),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """A kernel for each pair of bounds; without any, one that copies."""
        n, bounds = inputs[0].size, [float(b) for b in (self.low, self.high) if b is not None]
        if self.low is None:
            symbol = "poet_copy_f32" if self.high is None else "poet_clip_high_f32"
        else:
            symbol = "poet_clip_low_f32" if self.high is None else "poet_clip_f32"
        return (Call(Kernel(symbol, "clip"), (n, *bounds, In(0), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads y, not x: x need not be kept."""
        assert douts[0] is not None
        return emit(ClipDx(self.low, self.high), outputs[0], douts[0])

    def onnx_constants(self) -> dict[int, Array]:
        """The bounds."""
        bounds = ((1, self.low), (2, self.high))
        return {k: np.array(b, np.float32) for k, b in bounds if b is not None}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, tuple[int, ...]]:
        """Bounds are attributes below opset 11, then constants."""
        if node.opset < 6:
            node.take("consumed_inputs", None)
        if node.opset < 11:
            bounds: list[Any] = [node.take("min", None), node.take("max", None)]
        else:
            bounds = []
            for k, what in ((1, "lower"), (2, "upper")):
                bound = None
                if k < len(node.inputs) and node.inputs[k] is not None:
                    bound = node.constants[k]
                    if bound is None:
                        raise node.refuse(
                            f"its {what} bound is computed at run time", "export with fixed bounds"
                        )
                bounds.append(None if bound is None else np.ravel(bound)[0])
        # The bounds that mean none (ONNX's defaults) are none: an infinity passes and is found.
        low, high = (None if b is None or abs(b) >= _LARGEST else float(b) for b in bounds)
        return cls(low, high), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Both bounds, one, none, crossed; NaN and infinities."""
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 6.0], np.float32)
        bounds: tuple[tuple[float | None, float | None], ...] = (
            (0.0, 6.0),
            (-0.5, 0.25),
            (0.1, None),
            (None, 0.1),
            (None, None),
            (1.0, -1.0),
        )
        return (
            *(Example(cls(*b), (x,)) for b in bounds for x in (f32(2, 3, 5), f32(1))),
            *(Example(cls(*b), (special,)) for b in bounds),
        )


@dataclass(frozen=True)
class ClipDx(Op):
    """dx = dy where y lies strictly between the bounds, else 0; inputs (y, dy).

    At a bound y does not tell whether x was beyond; 0 is what PyTorch's Relu6 and hardtanh give there.
    """

    low: float | None
    high: float | None

    in_place: ClassVar[tuple[int, ...]] = (1, 0)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As y."""
        y, dy = inputs
        if y.shape != dy.shape:
            raise ValueError(f"y is {list(y.shape)}, its gradient {list(dy.shape)}")
        return (y,)

    def bounds(self) -> tuple[float, float]:
        """Numbers also where there is no bound."""
        low = -_LARGEST if self.low is None else float(self.low)
        return low, _LARGEST if self.high is None else float(self.high)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        y, dy = inputs
        low, high = (y.dtype.type(b) for b in self.bounds())
        return (np.where((y <= low) | (y >= high), dy.dtype.type(0), dy),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        kernel = Kernel("poet_clip_dx_f32", "clip")
        return (Call(kernel, (inputs[0].size, *self.bounds(), In(0), In(1), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As Clip's."""
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 6.0], np.float32)
        return (
            Example(cls(-0.5, 0.25), (f32(2, 3, 5), f32(2, 3, 5))),
            Example(cls(None, 0.25), (f32(1), f32(1))),
            *(Example(cls(*b), (special, f32(6))) for b in ((0.0, 6.0), (None, None), (0.0, None))),
        )
