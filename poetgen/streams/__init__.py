"""Streamed ways to run a node: some operands stay in the page store and pass through tile buffers.

In: a Node, a sector's bytes, a workspace limit. Out: StreamVariants with exact traffic and the C call.
One module a nest of loops, each with a function ``variants``; what it counts is what runtime_c/streams
moves, call for call. A nest gives nothing for ops that it does not know.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Hashable
from functools import cache
from types import ModuleType

from poetgen.graph import Node
from poetgen.streams.variant import Prices, StreamVariant


def variants_of(node: Node, sector_bytes: int, room_bytes: int, prices: Prices) -> tuple[StreamVariant, ...]:
    """Every streamed way to run a node in ``room_bytes`` of arena (resident operands and workspace)."""
    key = (node.op, node.in_specs, node.out_specs, _pattern(node), sector_bytes, room_bytes, prices)
    if key not in _known:
        _known[key] = tuple(
            variant for nest in _nests() for variant in nest.variants(node, sector_bytes, room_bytes, prices)
        )
    return _known[key]


_known: dict[Hashable, tuple[StreamVariant, ...]] = {}
"""Layers of one shape have the same variants: finding tiles takes longer than planning."""


def _pattern(node: Node) -> tuple[int, ...]:
    """Which operands are the same tensor."""
    return tuple(node.inputs.index(i) for i in node.inputs)


@cache
def _nests() -> tuple[ModuleType, ...]:
    found = (
        importlib.import_module(f"{__name__}.{info.name}")
        for info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name)
    )
    return tuple(m for m in found if hasattr(m, "variants"))


__all__ = ["Prices", "StreamVariant", "variants_of"]
