"""Cast: integers to float32, and what is not 0 to a condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poetgen.op import NUMPY_DTYPE, Array, Call, Dtype, Example, In, Kernel, OnnxNode, Op, Out, Spec, Work

_FAMILY = "cast"
_TO: dict[int, Dtype] = {1: "f32", 6: "i32", 7: "i32", 9: "u8"}
"""TensorProto types: int64 tensors are int32 at run time, booleans bytes."""
_SYMBOLS: dict[tuple[Dtype, Dtype], str] = {
    ("i32", "f32"): "poet_float_from_int",
    ("u8", "f32"): "poet_float_from_bool",
    ("i32", "u8"): "poet_bool_from_int",
    ("f32", "u8"): "poet_bool_from_float",
}


@dataclass(frozen=True)
class Cast(Op):
    """The nearest float32 of an integer, 1 for true; or whether a number is not 0."""

    to: Dtype

    onnx: ClassVar[str] = "Cast"

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Another type."""
        (x,) = inputs
        if (x.dtype, self.to) not in _SYMBOLS:
            raise ValueError(f"it makes {self.to} of {x.dtype}")
        return (Spec(x.shape, self.to),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise."""
        (x,) = inputs
        if self.to == "u8":
            return ((x != 0).astype(np.uint8),)
        return (x.astype(NUMPY_DTYPE[self.to]),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        kernel = Kernel(_SYMBOLS[inputs[0].dtype, self.to], _FAMILY)
        return (Call(kernel, (inputs[0].size, In(0), Out(0))),)

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {"to": {"f32": 1, "u8": 9}[self.to]}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, tuple[int, ...]]:
        """Types are numbers of TensorProto's; saturate is about float8."""
        to = node.take("to", 0)
        if node.opset >= 19:
            node.take("saturate", 1)
        if to not in _TO:
            raise node.refuse(f"it casts to type {to}", "float32, int32, int64 and bool are supported")
        return cls(_TO[to]), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Integers that float32 holds and does not; conditions."""
        ints = np.array([[0, 1, -1], [16777217, 2147483647, -2147483648]], np.int32)
        return (
            Example(cls("f32"), (ints,)),
            Example(cls("u8"), (ints,)),
            Example(cls("u8"), (np.array([0.0, -0.0, 1e-40, -2.0], np.float32),)),
            Example(cls("f32"), (np.array([0, 1, 1], np.uint8),)),
        )
