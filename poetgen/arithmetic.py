"""Float32 arithmetic that equals the C runtime's bit for bit: sums in order.

What runtime_c/kernels/math.c does to one float, the functions here do to an array, operation by
operation; so the interpreter's bits are the target's. float64 arrays get numpy's own functions:
gradient tests want truth there, not the target's bits.
"""

from __future__ import annotations

import numpy as np

from poetgen.op import Array


def sum_in_order(terms: Array, axes: tuple[int, ...], start: Array | None = None) -> Array:
    """Sum over ``axes``, one term after the other, row-major in the order in which axes are named.

    It starts at +0, or goes on from ``start``. numpy's own sum adds pairwise: other bits.
    """
    axes = tuple(a % terms.ndim for a in axes)
    rest = tuple(a for a in range(terms.ndim) if a not in axes)
    shape = tuple(terms.shape[a] for a in rest)
    rows = terms.transpose(axes + rest).reshape(-1, *shape)
    total = np.zeros(shape, terms.dtype) if start is None else start.astype(terms.dtype, copy=True)
    for row in rows:
        total = total + row
    return np.asarray(total, terms.dtype)
