"""Dropout whose mask is a counter's: no mask is kept, and a recompute gives the same one.

Element e of node k takes word e mod 4 of Philox-4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011) with the
key (seed, 0) and the counter (e / 4, k, step, micro-batch). Its upper 24 bits are u, in [0, 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

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


def philox(key: tuple[int, int], counter: tuple[Array, int, int, int]) -> Array:
    """Four uint32 a counter, shape (n, 4)."""
    low = np.uint64(0xFFFFFFFF)
    c = [np.broadcast_to(np.asarray(w, np.uint64), counter[0].shape) for w in counter]
    k = [key[0] & 0xFFFFFFFF, key[1] & 0xFFFFFFFF]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (b >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]),
            b & low,
            (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]),
            a & low,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, axis=1).astype(np.uint32)


@dataclass(frozen=True)
class Dropout(Op):
    """y = u >= ratio ? x / (1 - ratio) : 0 x, inputs (x, seed, step): int32 scalars passed by value.

    A model's node has x alone: who builds the training graph adds the scalars and a ``node`` of its own.
    The gradient is the same op on dy.
    """

    ratio: float
    node: int = 0

    onnx: ClassVar[str] = "Dropout"
    in_place: ClassVar[tuple[int, ...]] = (0,)
    draws: ClassVar[bool] = True

    def numbered(self, node: int) -> Self:
        """With the number that sets its masks apart from other nodes'."""
        return replace(self, node=node)

    @property
    def keep_from(self) -> int:
        """Smallest 24-bit integer that keeps: u >= ratio as float32."""
        return math.ceil(float(np.float32(self.ratio)) * 2**24)

    @property
    def scale(self) -> float:
        """1 / (1 - ratio), in double; printed as float."""
        return 1 / (1 - self.ratio)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        x, *counter = inputs
        if not 0 < self.ratio < 1:
            raise ValueError(f"a dropout ratio lies between 0 and 1, not at {self.ratio}")
        if counter and [(s.shape, s.dtype) for s in counter] != [((), "i32")] * 2:
            raise ValueError("seed and step are int32 scalars")
        return (x,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Multiplied by the scale or by 0, so that a NaN passes."""
        x, seed, step = inputs
        n = -(-x.size // 4)
        words = philox((int(seed), 0), (np.arange(n), self.node, int(step) & 0xFFFFFFFF, 0))
        keep = ((words >> np.uint32(8)) >= self.keep_from).reshape(-1)[: x.size].reshape(x.shape)
        real = x.dtype.type
        with np.errstate(invalid="ignore"):  # inf 0 is the NaN that the loss is to show
            return (np.asarray(x * np.where(keep, real(self.scale), real(0))),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Ten rounds of two multiplications for four elements: some five visits' worth."""
        return Work("elementwise", 5 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = Struct(
            "struct poet_dropout",
            (
                ("size", inputs[0].size),
                ("node", self.node),
                ("keep_from", self.keep_from),
                ("scale", self.scale),
            ),
        )
        return (Call(Kernel("poet_dropout_f32", "dropout"), (s, In(1), In(2), In(0), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """The same factors on dy: neither x, y nor a mask is kept."""
        assert douts[0] is not None
        (dx,) = emit(self, douts[0], *inputs[1:])
        return dx, None, None

    def inference(self) -> tuple[Op, tuple[int, ...], tuple[int, ...]] | None:
        """Nothing drops."""
        return NoDropout(), (0,), (0,)

    def onnx_constants(self) -> dict[int, Array]:
        """The ratio."""
        return {1: np.array(self.ratio, np.float32)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, tuple[int, ...]]:
        """Active in training whatever training_mode says; a ratio of 0 is the identity.

        The mask output may be named (PyTorch does) but not read: nothing makes it.
        """
        if node.opset < 12:
            ratio = float(node.take("ratio", 0.5))
        elif len(node.inputs) > 1 and node.inputs[1] is not None:
            constant = node.constants[1]
            if constant is None:
                raise node.refuse("its ratio is computed at run time", "export with a fixed ratio")
            ratio = float(np.ravel(constant)[0])
        else:
            ratio = 0.5
        node.take("seed", 0)  # masks come from the seed of a run
        if node.opset < 7:
            node.take("is_test", 0)
            node.take("consumed_inputs", None)
        if not 0 <= ratio < 1:
            raise node.refuse(f"its ratio is {ratio:g}", "it lies in 0 <= ratio < 1")
        return (cls(ratio) if ratio else NoDropout()), (0,)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Whole and broken blocks of four; a NaN and infinities, dropped or not."""
        special = np.array([np.nan, np.inf, -np.inf, -1, 1] * 3, np.float32)
        return tuple(
            Example(cls(ratio, node), (x, np.array(seed, np.int32), np.array(step, np.int32)))
            for ratio, node, x, seed, step in (
                (0.5, 0, f32(2, 3, 4), 0, 0),
                (0.1, 3, f32(7), 1, 9),
                (0.9, 70000, f32(1), -5, 2_000_000_000),
                (0.5, 1, special, 1, 1),
            )
        )


@dataclass(frozen=True)
class NoDropout(Op):
    """What Dropout is in inference, or at ratio 0: a view."""

    view: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The input itself."""
        return (inputs[0],)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """None."""
        return Work("move", 0)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """None."""
        return ()

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """The gradient itself."""
        return (douts[0],)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """One."""
        return (Example(cls(), (f32(2, 3),)),)
