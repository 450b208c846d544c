"""docs/streaming.md has the figures that the code gives."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import streams

TEXT = (Path(__file__).parents[2] / "docs" / "streaming.md").read_text()


def test_the_totals_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) KiB, SGD \|.*$", TEXT, re.MULTILINE)
    assert [int(r) for r in rows] == list(streams.BUDGETS)
    for kib in streams.BUDGETS:
        line = streams.line(f"{kib} KiB, SGD", streams.total(kib * streams.KIB // 4))
        assert line in TEXT


def test_resnet_18_moves_little_more_than_its_weights_four_times() -> None:
    """Forward, dx, update in and out: 178 MB. Activations must come through 32 KiB many times."""
    weights = sum(4 * la.count * la.ins * la.outs * la.kernel**2 for la in streams.layers())
    for kib, times in ((192, 1.1), (32, 1.5)):
        moved = streams.total(kib * streams.KIB // 4)
        assert 4 * weights < moved.bytes_in + moved.bytes_out < times * 4 * weights
