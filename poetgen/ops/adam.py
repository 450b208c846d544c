"""Adam (Kingma, Ba, arXiv 1412.6980) as PyTorch has it.

The bias corrections are u_k = 1 - beta_k^t, which follow u <- beta u + (1 - beta) from 0: 1 - beta^t in
float32 is off by 1e-5. One state tensor u = (u_1, u_2) serves all parameters. Each update reads u as it
was before the step and moves its own copy; AdamAdvance moves the tensor once, after all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poetgen.arithmetic import sqrt
from poetgen.op import Array, Call, Example, In, Kernel, Op, Spec, Struct, Work, f32


@dataclass(frozen=True)
class AdamUpdate(Op):
    """Inputs (w, dw, lr, m, v, u), u = f32[2] of the step before; mutates w, m, v.

    g = dw + weight_decay w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
    w -= (lr / u_1) (m / (sqrt v / sqrt u_2 + eps)), u_k <- beta_k u_k + (1 - beta_k).
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    mutates: ClassVar[tuple[int, ...]] = (0, 3, 4)
    recomputable: ClassVar[bool] = False

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """No output: w, m and v change in place."""
        w, dw, lr, m, v, u = inputs
        for what, spec in (("gradient", dw), ("m", m), ("v", v)):
            if spec.shape != w.shape:
                raise ValueError(f"the parameter is {list(w.shape)}, its {what} {list(spec.shape)}")
        if lr.size != 1 or u.shape != (2,):
            raise ValueError(f"lr is one number and u two, not {list(lr.shape)} and {list(u.shape)}")
        return ()

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The new w, m and v."""
        w, dw, lr, m, v, u = inputs
        real = dw.dtype.type
        g = dw + real(self.weight_decay) * w if self.weight_decay else dw
        m = real(self.beta1) * m + real(1 - self.beta1) * g
        v = real(self.beta2) * v + real(1 - self.beta2) * (g * g)
        u1, u2 = _advance(self.beta1, self.beta2, u)
        rate = lr / u1
        w = w - rate * (m / (sqrt(v) / sqrt(u2) + real(self.eps)))
        return np.asarray(w), np.asarray(m), np.asarray(v)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each parameter and both states, a root and two divisions: some six visits' worth."""
        return Work("update", 6 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        kernel = Kernel("poet_adam_f32", "adam")
        s = self.struct(inputs[0].size)
        return (Call(kernel, (s, In(2), In(5), In(1), In(0), In(3), In(4))),)

    def struct(self, size: int) -> Struct:
        """The kernel's constants; 1 - beta is formed here, in double."""
        return Struct(
            "struct poet_adam",
            (
                ("size", size),
                ("beta1", float(self.beta1)),
                ("rest1", 1 - float(self.beta1)),
                ("beta2", float(self.beta2)),
                ("rest2", 1 - float(self.beta2)),
                ("eps", float(self.eps)),
                ("decay", float(self.weight_decay)),
            ),
        )

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """First step and later, with and without decay."""
        rng = np.random.default_rng(2)
        lr = np.array(0.01, np.float32)
        return tuple(
            Example(
                cls(0.9, 0.999, eps, decay),
                (
                    f32(*s),
                    f32(*s),
                    lr,
                    f32(*s),
                    rng.uniform(0, 1, s).astype(np.float32),
                    np.array(u, np.float32),
                ),
            )
            for s, eps, decay, u in (
                ((3, 5), 1e-8, 0.0, (0, 0)),
                ((7,), 1e-4, 0.0, (0.5, 0.01)),
                ((1,), 1e-4, 0.1, (1, 1)),
            )
        )


def _advance(beta1: float, beta2: float, u: Array) -> tuple[Array, Array]:
    real = u.dtype.type
    return (
        np.asarray(real(beta1) * u[0] + real(1 - beta1)),
        np.asarray(real(beta2) * u[1] + real(1 - beta2)),
    )


@dataclass(frozen=True)
class AdamAdvance(Op):
    """u_k = beta_k u_k + (1 - beta_k), once a step, after every AdamUpdate has read u; inputs (u,)."""

    beta1: float = 0.9
    beta2: float = 0.999

    mutates: ClassVar[tuple[int, ...]] = (0,)
    recomputable: ClassVar[bool] = False

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """No output: u changes in place."""
        if inputs[0].shape != (2,):
            raise ValueError(f"u is two numbers, not {list(inputs[0].shape)}")
        return ()

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The new u."""
        return (np.stack(_advance(self.beta1, self.beta2, inputs[0])),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Two numbers."""
        return Work("update", 2)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        b1, b2 = float(self.beta1), float(self.beta2)
        return (Call(Kernel("poet_adam_advance_f32", "adam"), (b1, 1 - b1, b2, 1 - b2, In(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """From 0, and later."""
        return tuple(Example(cls(), (np.array(u, np.float32),)) for u in ((0, 0), (0.5, 0.01)))
