"""The registry of ops: every module beside this file is loaded, every Op in it is found.

Adding an op is one Python file here and one C file with its header in ``runtime_c``.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from poetgen.op import Op


@cache
def all_ops() -> tuple[type[Op], ...]:
    """Every op class, by module and order of definition."""
    found: list[type[Op]] = []
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        module = importlib.import_module(f"{__name__}.{info.name}")
        found += [
            c
            for c in vars(module).values()
            if isinstance(c, type) and issubclass(c, Op) and c is not Op and c.__module__ == module.__name__
        ]
    return tuple(found)


@cache
def by_onnx() -> dict[str, type[Op]]:
    """ONNX operator type -> op class."""
    table: dict[str, type[Op]] = {}
    for op in all_ops():
        for name in ((op.onnx,) if op.onnx else ()) + op.onnx_aliases():
            if name in table:
                raise AssertionError(f"two ops import {name}: {table[name]} and {op}")
            table[name] = op
    return table
