"""Sum over all but the channel axis: the gradient of a bias, for conv, gemm and batch norm alike.

The one op module that other families import, so that db has one kernel and one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from poetgen.arithmetic import sum_in_order
from poetgen.op import Array, Call, Example, In, Kernel, Op, Out, Raw, Spec, Work, f32

_KERNEL = Kernel("poet_channel_sum_f32", "channel_sum")


@dataclass(frozen=True)
class ChannelSum(Op):
    """db[c] = sum of dy[n, c, ...] over n, then row-major over the rest, from +0."""

    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """One number a channel."""
        (dy,) = inputs
        if len(dy.shape) < 2:
            raise ValueError(f"a channel sum needs [N, C, ...], not {list(dy.shape)}")
        return (f32(dy.shape[1]),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """In the kernel's order."""
        (dy,) = inputs
        return (sum_in_order(dy, (0, *range(2, dy.ndim))),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """One addition an element."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """Start afresh."""
        return (Call(_KERNEL, (*inputs[0].planes(), Raw("POET_START_ZERO"), In(0), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Convolution's, gemm's, odd and single."""
        return tuple(
            Example(cls(), (f32(*shape),))
            for shape in ((2, 3, 4), (3, 5), (2, 5, 3, 7), (1, 1), (4, 1, 9), (1, 7, 1, 1))
        )


@dataclass(frozen=True)
class ChannelSumOn(Op):
    """The same, going on from a running sum: inputs (dy, db)."""

    continues: ClassVar[int | None] = 1
    in_place: ClassVar[tuple[int, ...]] = (1,)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The running sum's shape."""
        dy, running = inputs
        if len(dy.shape) < 2 or running.shape != (dy.shape[1],):
            raise ValueError(f"a channel sum of {list(dy.shape)} cannot go on from {list(running.shape)}")
        return (running,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """In the kernel's order."""
        dy, running = inputs
        return (sum_in_order(dy, (0, *range(2, dy.ndim)), running),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """One addition an element."""
        return Work("elementwise", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """Go on from what is in the output."""
        return (Call(_KERNEL, (*inputs[0].planes(), Raw("POET_CONTINUE"), In(0), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Both memory orders of the kernel."""
        return tuple(Example(cls(), (f32(*s), f32(s[1]))) for s in ((2, 3, 4), (3, 5), (1, 1)))
