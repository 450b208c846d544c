"""Dropout's random bits: Philox's published answers, and masks that differ where they must."""

from __future__ import annotations

import numpy as np
import pytest

from poetgen.ops.dropout import Dropout, philox
from tests.ops.kernels import run


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers(
    counter: tuple[int, ...], key: tuple[int, int], answer: tuple[int, ...]
) -> None:
    got = philox(key, (np.array([counter[0]]), *counter[1:]))
    assert tuple(int(w) for w in got[0]) == answer


def _mask(seed: int = 0, step: int = 0, node: int = 0, n: int = 4096, ratio: float = 0.25) -> np.ndarray:
    (y,) = run(
        Dropout(ratio, node), (np.ones(n, np.float32), np.array(seed, np.int32), np.array(step, np.int32))
    )
    return y != 0


def test_the_ratio_drops_and_the_rest_is_scaled() -> None:
    assert abs(_mask(n=1 << 16).mean() - 0.75) < 0.01
    (y,) = run(Dropout(0.2), (np.ones(64, np.float32), np.array(0, np.int32), np.array(0, np.int32)))
    assert set(y.tolist()) == {0.0, float(np.float32(1.25))}


def test_a_mask_depends_on_seed_step_and_node_and_on_nothing_else() -> None:
    masks = [_mask(), _mask(seed=1), _mask(step=1), _mask(node=1)]
    for i, a in enumerate(masks):
        for b in masks[:i]:
            assert 0.2 < (a != b).mean() < 0.55
    assert (_mask() == masks[0]).all()
    assert (_mask(n=100) == masks[0][:100]).all()
