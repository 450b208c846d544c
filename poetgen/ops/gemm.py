"""Gemm and MatMul: dense layers and products of matrices, with both gradients.

One kernel serves all: an operand is transposed by its strides. Every sum goes over k ascending from
+0, or from 0.0f + bias where alpha and beta are 1.
"""

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
    Raw,
    Spec,
    Struct,
    Value,
    Work,
    f32,
)
from poetgen.ops.add import SumTo
from poetgen.ops.channel_sum import ChannelSum

_GEMM = Kernel("poet_gemm_f32", "gemm")
_SCALE = Kernel("poet_gemm_scale_f32", "gemm")


def _matrix(spec: Spec, transposed: bool) -> tuple[int, int]:
    if len(spec.shape) != 2:
        raise ValueError(f"Gemm takes matrices, not {list(spec.shape)}")
    rows, columns = spec.shape
    return (columns, rows) if transposed else (rows, columns)


@dataclass(frozen=True)
class Gemm(Op):
    """y[m, n] = alpha sum_k a[m, k] b[k, n] + beta c; operands (a, b) or (a, b, c)."""

    trans_a: bool = False
    trans_b: bool = False
    alpha: float = 1.0
    beta: float = 1.0

    onnx: ClassVar[str] = "Gemm"

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """(m, n)."""
        (m, k), (k2, n) = _matrix(inputs[0], self.trans_a), _matrix(inputs[1], self.trans_b)
        if k != k2:
            raise ValueError(
                f"{list(inputs[0].shape)} and {list(inputs[1].shape)} do not multiply: {k} and {k2}"
            )
        if len(inputs) > 2:
            np.broadcast_to(np.empty(inputs[2].shape, np.bool_), (m, n))  # its ValueError says why
        return (f32(m, n),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """One product after the other, k ascending."""
        a = inputs[0].T if self.trans_a else inputs[0]
        b = inputs[1].T if self.trans_b else inputs[1]
        real = a.dtype.type
        bias = inputs[2] if len(inputs) > 2 else None
        scaled = self._scaled
        y = np.zeros((a.shape[0], b.shape[1]), a.dtype)
        if bias is not None and not scaled:
            y = y + bias
        for k in range(a.shape[1]):
            y = y + a[:, k, None] * b[None, k, :]
        if scaled:
            y = real(self.alpha) * y
            if bias is not None:
                y = y + real(self.beta) * bias
        return (np.asarray(y),)

    @property
    def _scaled(self) -> bool:
        return self.alpha != 1.0 or self.beta != 1.0

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """m n k multiply-accumulates."""
        return Work("gemm", outputs[0].size * _matrix(inputs[0], self.trans_a)[1])

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """The product, then the scaling if there is one."""
        (m, k), (_, n) = _matrix(inputs[0], self.trans_a), _matrix(inputs[1], self.trans_b)
        bias = (0, 0)
        if len(inputs) > 2:
            steps = np.broadcast_to(np.empty(inputs[2].shape, np.float32), (m, n)).strides
            bias = (steps[0] // 4, steps[1] // 4)
        struct = Struct(
            "struct poet_gemm",
            (
                ("m", m),
                ("n", n),
                ("k", k),
                ("x_row", 1 if self.trans_a else k),
                ("x_col", m if self.trans_a else 1),
                ("w_row", 1 if self.trans_b else n),
                ("w_col", k if self.trans_b else 1),
                ("y_row", n),
                ("y_col", 1),
                ("b_row", bias[0]),
                ("b_col", bias[1]),
            ),
        )
        has_bias = len(inputs) > 2
        c = In(2) if has_bias else Raw("NULL")
        if not self._scaled:
            start = Raw("POET_START_BIAS" if has_bias else "POET_START_ZERO")
            return (Call(_GEMM, (struct, start, In(0), In(1), c, Out(0))),)
        product = Call(_GEMM, (struct, Raw("POET_START_ZERO"), In(0), In(1), Raw("NULL"), Out(0)))
        return (product, Call(_SCALE, (struct, float(self.alpha), float(self.beta), c, Out(0))))

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """da reads b, db reads a, dc neither."""
        a, b = inputs[:2]
        dy = douts[0]
        assert dy is not None
        if self.trans_a:
            (da,) = emit(GemmDx(self.trans_b, True, self.alpha), b, dy)
        else:
            (da,) = emit(GemmDx(False, not self.trans_b, self.alpha), dy, b)
        if self.trans_b:
            (db,) = emit(GemmDw(True, self.trans_a, self.alpha), dy, a)
        else:
            (db,) = emit(GemmDw(not self.trans_a, False, self.alpha), a, dy)
        if len(inputs) == 2:
            return da, db
        c = inputs[2]
        if c.spec.shape == dy.spec.shape[1:]:
            (dc,) = emit(ChannelSum(), dy)
        elif c.spec.shape == dy.spec.shape:
            dc = dy
        else:
            (dc,) = emit(SumTo(c.spec.shape), dy)
        if self.beta != 1.0:
            (dc,) = emit(Scale(self.beta), dc)
        return da, db, dc

    def attributes(self) -> dict[str, Any]:
        """As ONNX names them."""
        return {
            "transA": int(self.trans_a),
            "transB": int(self.trans_b),
            "alpha": self.alpha,
            "beta": self.beta,
        }

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, tuple[int, ...]]:
        """C is optional; before opset 7 it was broadcast by an attribute."""
        op = cls(
            bool(node.take("transA", 0)),
            bool(node.take("transB", 0)),
            float(node.take("alpha", 1.0)),
            float(node.take("beta", 1.0)),
        )
        return op, tuple(i for i, spec in enumerate(node.inputs) if spec is not None)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Each transposition, odd and single sizes, every form of C, alpha and beta."""
        plain = [(1, 1, 1), (8, 10, 64), (3, 5, 7), (1, 7, 13), (4, 4, 4), (5, 1, 9), (9, 6, 1)]
        out = [Example(cls(False, True), (f32(m, k), f32(n, k), f32(n))) for m, n, k in plain]
        for ta in (False, True):
            for tb in (False, True):
                a, b = (6, 5) if ta else (5, 6), (7, 6) if tb else (6, 7)
                out.append(Example(cls(ta, tb), (f32(*a), f32(*b))))
                out.append(Example(cls(ta, tb, 0.5, 2.0), (f32(*a), f32(*b), f32(7))))
        out += [Example(cls(), (f32(5, 6), f32(6, 7), f32(*c))) for c in ((1,), (1, 7), (5, 1), (5, 7), ())]
        return tuple(out)


@dataclass(frozen=True)
class GemmDx(Gemm):
    """The gradient of a: the product with the other operand transposed, over n ascending."""

    onnx: ClassVar[str] = ""

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As the gradient of a dense layer emits it."""
        return (Example(cls(False, False), (f32(5, 6), f32(6, 7))),)


@dataclass(frozen=True)
class GemmDw(Gemm):
    """The gradient of b, over m ascending."""

    onnx: ClassVar[str] = ""

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """As the gradient of a dense layer emits it."""
        return (Example(cls(True, False), (f32(8, 10), f32(8, 7))),)


@dataclass(frozen=True)
class Scale(Op):
    """y = factor x: what beta does to the gradient of C, after the sum."""

    factor: float = 1.0

    in_place: ClassVar[tuple[int, ...]] = (0,)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """One product an element."""
        return (np.asarray(inputs[0].dtype.type(self.factor) * inputs[0]),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        return (Call(Kernel("poet_scale_f32", "gemm"), (inputs[0].size, float(self.factor), In(0), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """One."""
        return (Example(cls(2.5), (f32(3, 5),)),)
