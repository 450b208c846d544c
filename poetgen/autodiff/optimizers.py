"""Optimizers: which states a parameter has, and the op that updates it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from poetgen.op import Op
from poetgen.ops.adam import AdamAdvance, AdamUpdate
from poetgen.ops.sgd import MomentumUpdate, SgdUpdate


class Optimizer(Protocol):
    """What training adds for each parameter, and once for all of them. All states start at zero."""

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the states of each parameter's own shape, such as ``momentum``."""

    @property
    def shared(self) -> Mapping[str, tuple[int, ...]]:
        """Name and shape of states that all parameters share."""

    def update(self) -> Op:
        """The op with inputs (w, dw, lr, *states, *shared)."""

    def advance(self) -> Op | None:
        """The op with inputs (*shared,) that moves them once a step, after every update."""


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent as in PyTorch: v = momentum v + dw; w = w - lr v."""

    momentum: float = 0.0

    @property
    def states(self) -> tuple[str, ...]:
        """One velocity a parameter, if there is momentum."""
        return ("momentum",) if self.momentum else ()

    @property
    def shared(self) -> Mapping[str, tuple[int, ...]]:
        """None."""
        return {}

    def update(self) -> Op:
        """The update op."""
        return MomentumUpdate(self.momentum) if self.momentum else SgdUpdate()

    def advance(self) -> Op | None:
        """Nothing is shared."""
        return None


@dataclass(frozen=True)
class Adam:
    """Adam as in PyTorch (Kingma and Ba, arXiv 1412.6980, algorithm 1)."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    @property
    def states(self) -> tuple[str, ...]:
        """Both moments."""
        return ("m", "v")

    @property
    def shared(self) -> Mapping[str, tuple[int, ...]]:
        """The two bias corrections 1 - beta^t."""
        return {"adam/bias_correction": (2,)}

    def update(self) -> Op:
        """The update op."""
        return AdamUpdate(self.beta1, self.beta2, self.eps)

    def advance(self) -> Op | None:
        """Moves the bias corrections."""
        return AdamAdvance(self.beta1, self.beta2)
