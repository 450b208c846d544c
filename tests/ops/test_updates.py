"""Optimizers against the textbook, over several steps, in float64."""

from __future__ import annotations

import numpy as np
import pytest

from poetgen.ops.adam import AdamAdvance, AdamUpdate
from poetgen.ops.sgd import MomentumUpdate, SgdUpdate

STEPS = 12


def _gradients() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((STEPS, 6))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_sgd_steps_against_the_gradient(decay: float) -> None:
    w = np.ones(6)
    want = w.copy()
    for g in _gradients():
        (w,) = SgdUpdate(decay).reference(w, g, np.float64(0.1))
        want = want - 0.1 * (g + decay * want)
    np.testing.assert_allclose(w, want, rtol=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_momentum_sums_gradients_geometrically(decay: float) -> None:
    w, v, want, seen = np.ones(6), np.zeros(6), np.ones(6), []
    for g in _gradients():
        w, v = MomentumUpdate(0.9, decay).reference(w, g, np.float64(0.1), v)
        seen.append(g + decay * want)
        want = want - 0.1 * sum(0.9**k * s for k, s in enumerate(reversed(seen)))
    np.testing.assert_allclose(w, want, rtol=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_corrects_its_bias_by_one_minus_beta_to_the_t(decay: float) -> None:
    w, m, v, u = np.ones(6), np.zeros(6), np.zeros(6), np.zeros(2)
    want, first, second = w.copy(), 0.0, 0.0
    for t, g in enumerate(_gradients(), 1):
        w, m, v = AdamUpdate(0.9, 0.99, 1e-4, decay).reference(w, g, np.float64(0.1), m, v, u)
        (u,) = AdamAdvance(0.9, 0.99).reference(u)
        g = g + decay * want
        first, second = 0.9 * first + 0.1 * g, 0.99 * second + 0.01 * g * g
        hat = first / (1 - 0.9**t), second / (1 - 0.99**t)
        want = want - 0.1 * hat[0] / (np.sqrt(hat[1]) + 1e-4)
    np.testing.assert_allclose(w, want, rtol=1e-10)


def test_adams_correction_in_float32_stays_near_the_truth() -> None:
    u = np.zeros(2, np.float32)
    for t in range(1, 2001):
        (u,) = AdamAdvance().reference(u)
        assert u[0] == pytest.approx(1 - 0.9**t, rel=1e-6)
        assert u[1] == pytest.approx(1 - 0.999**t, rel=1e-5)
