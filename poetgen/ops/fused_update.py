"""A weight's gradient and its update in one node: the gradient lives in workspace and is gone at once.

Made by poetgen.autodiff from a gradient that nobody else reads. The order of every sum and of every
update is that of the two nodes, so the bits are theirs. It knows no op: tests/unit/test_fused_update.py
has its examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from poetgen.op import Arg, Array, Call, In, Op, Out, Spec, Work, Workspace

Ints = tuple[int, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class _FusedUpdate:
    """Inputs: what is mutated, then the update's other operands, then the gradient's operands.

    ``order`` lists the update's operands without dw (its input 1) in this order.
    """

    gradient_op: Op
    update_op: Op

    mutates: ClassVar[Ints]
    order: ClassVar[Ints]
    recomputable: ClassVar[bool] = False

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """No output; refuses what the two ops refuse."""
        update, gradient = self.split(inputs)
        (dw,) = self.gradient_op.infer(*gradient)
        self.update_op.infer(*self.update_operands(update, dw))
        return ()

    @classmethod
    def split(cls, inputs: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...]]:
        """Operands of the update (without dw, in ``order``), and of the gradient."""
        return tuple(inputs[: len(cls.order)]), tuple(inputs[len(cls.order) :])

    @classmethod
    def update_operands(cls, update: Sequence[T], dw: T) -> tuple[T, ...]:
        """The update's operands as it takes them."""
        by_index = dict(zip(cls.order, update, strict=True)) | {1: dw}
        return tuple(by_index[i] for i in sorted(by_index))

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The new values of what is mutated."""
        update, gradient = self.split(inputs)
        (dw,) = self.gradient_op.reference(*gradient)
        return self.update_op.reference(*self.update_operands(update, dw))

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """The gradient's; the update is a pass over its result."""
        _, gradient = self.split(inputs)
        return self.gradient_op.work(gradient, self.gradient_op.infer(*gradient))

    def workspace_bytes(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> int:
        """The gradient."""
        return inputs[0].nbytes

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """The gradient's, then the update's."""
        update, gradient = self.split(inputs)
        dw = self.gradient_op.infer(*gradient)
        at = len(self.order)

        def of_gradient(arg: Arg) -> Arg:
            if isinstance(arg, In):
                return In(at + arg.index)
            return Workspace() if isinstance(arg, Out) else arg

        def of_update(arg: Arg) -> Arg:
            if isinstance(arg, In):
                return Workspace() if arg.index == 1 else In(self.order.index(arg.index))
            return arg

        first = self.gradient_op.calls(gradient, dw)
        second = self.update_op.calls(self.update_operands(update, dw[0]), ())
        return (
            *(replace(c, args=tuple(map(of_gradient, c.args))) for c in first),
            *(replace(c, args=tuple(map(of_update, c.args))) for c in second),
        )


@dataclass(frozen=True)
class GradientSgd(_FusedUpdate, Op):
    """Inputs (w, lr, *gradient's)."""

    mutates: ClassVar[Ints] = (0,)
    order: ClassVar[Ints] = (0, 2)


@dataclass(frozen=True)
class GradientMomentum(_FusedUpdate, Op):
    """Inputs (w, v, lr, *gradient's)."""

    mutates: ClassVar[Ints] = (0, 1)
    order: ClassVar[Ints] = (0, 3, 2)


@dataclass(frozen=True)
class GradientAdam(_FusedUpdate, Op):
    """Inputs (w, m, v, lr, u, *gradient's)."""

    mutates: ClassVar[Ints] = (0, 1, 2)
    order: ClassVar[Ints] = (0, 3, 4, 2, 5)
