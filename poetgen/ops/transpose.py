"""Transpose: axes in another order."""

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
    Struct,
    Value,
    Work,
    f32,
)
from poetgen.strides import collapse, row_major

Ints = tuple[int, ...]


def _struct(perm: Ints, x: Ints) -> Struct:
    strides = row_major(x)
    sizes, steps = collapse(tuple(x[p] for p in perm), tuple(strides[p] for p in perm))
    fields = [(f"size{k}", n) for k, n in enumerate(sizes)]
    return Struct("struct poet_transpose", (*fields, *((f"x{k}", n) for k, n in enumerate(steps))))


@dataclass(frozen=True)
class Transpose(Op):
    """Axis i of y is axis perm[i] of x."""

    perm: Ints

    onnx: ClassVar[str] = "Transpose"

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The axes in their new order."""
        (x,) = inputs
        if sorted(self.perm) != list(range(len(x.shape))):
            raise ValueError(f"perm {list(self.perm)} is no order of the axes of {list(x.shape)}")
        if x.dtype != "f32":
            raise ValueError(f"it moves {x.dtype}, not float32")
        _struct(self.perm, x.shape)  # refuses what four loops cannot walk
        return (Spec(tuple(x.shape[p] for p in self.perm)),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """A copy."""
        return (np.ascontiguousarray(inputs[0].transpose(self.perm)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each byte once."""
        return Work("move", inputs[0].nbytes)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = _struct(self.perm, inputs[0].shape)
        return (Call(Kernel("poet_transpose_f32", "transpose"), (s, In(0), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Back again."""
        assert douts[0] is not None
        back = tuple(self.perm.index(a) for a in range(len(self.perm)))
        return emit(Transpose(back), douts[0])

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {"perm": list(self.perm)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """The default reverses the axes."""
        x = node.inputs[0]
        assert x is not None
        perm = node.take("perm", None)
        return cls(tuple(int(p) for p in perm or reversed(range(len(x.shape))))), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Matrices, heads of attention, channels first and last, axes of one, nothing to do."""
        return tuple(
            Example(cls(perm), (f32(*shape),))
            for perm, shape in (
                ((1, 0), (3, 5)),
                ((0, 2, 1), (2, 3, 4)),
                ((0, 2, 1, 3), (2, 3, 4, 5)),
                ((0, 2, 3, 1), (2, 3, 4, 5)),
                ((0, 3, 1, 2), (1, 3, 4, 5)),
                ((3, 2, 1, 0), (2, 3, 4, 5)),
                ((1, 0, 2, 3, 4), (2, 3, 4, 5, 2)),
                ((1, 0), (1, 4)),
                ((0, 1, 2), (2, 3, 4)),
                ((0,), (1,)),
            )
        )
