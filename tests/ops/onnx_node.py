"""An ONNX node without a model, as from_onnx sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from poetgen.op import Example, Op, Spec

_DTYPES = {np.dtype(np.float32): "f32", np.dtype(np.uint8): "u8"}


class RefusedError(Exception):
    """What ``refuse`` gives."""


@dataclass
class FakeNode:
    """``FakeNode("Flatten", 17, (f32(2, 3),), {"axis": 1})``."""

    op_type: str
    opset: int
    inputs: tuple[Spec | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: tuple[np.ndarray | None, ...] = ()
    output_count: int = 1
    read: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.constants = self.constants + (None,) * (len(self.inputs) - len(self.constants))

    @classmethod
    def of(cls, op: Op, example: Example) -> Self:
        """The node that the op's own attributes() and onnx_constants() describe."""
        instead = op.inference()
        arrays = example.arrays()
        operands = arrays if instead is None else tuple(arrays[i] for i in instead[1])
        inputs: list[Spec | None] = [Spec(tuple(a.shape), _DTYPES.get(a.dtype, "i32")) for a in operands]
        constants: list[np.ndarray | None] = [None] * len(inputs)
        for at, value in op.onnx_constants().items():
            inputs += [None] * (at + 1 - len(inputs))
            constants += [None] * (at + 1 - len(constants))
            inputs[at] = Spec(tuple(value.shape), _DTYPES.get(value.dtype, "i32"))
            constants[at] = value
        outputs = len(op.infer(*inputs[:1])) if op.onnx == "Split" else 1  # other outputs are ours
        attributes = dict(op.attributes())
        return cls(op.onnx, example.opset, tuple(inputs), attributes, tuple(constants), outputs)

    def take(self, attribute: str, default: Any) -> Any:
        """The attribute's value, marked as read."""
        self.read.add(attribute)
        return self.attributes.get(attribute, default)

    def refuse(self, why: str, hint: str = "") -> Exception:
        """What an importer raises."""
        return RefusedError(f"{self.op_type}: {why}. {hint}")

    def unread(self) -> set[str]:
        """Attributes that nobody took."""
        return set(self.attributes) - self.read
