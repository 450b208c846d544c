"""Float32 arithmetic that equals the C runtime's bit for bit: sums in order.

What runtime_c/kernels/math.c does to one float, the functions here do to an array, operation by
operation; so the interpreter's bits are the target's. float64 arrays get numpy's own functions:
gradient tests want truth there, not the target's bits.
"""

from __future__ import annotations

import math

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
    if not len(rows):
        return np.zeros(shape, terms.dtype) if start is None else start.astype(terms.dtype)
    rows = np.array(rows)
    rows[0] = rows[0] + (terms.dtype.type(0) if start is None else start)  # -0 first gives +0
    return np.asarray(np.add.accumulate(rows, axis=0, dtype=terms.dtype)[-1])


def _f(literal: str) -> np.float32:
    return np.float32(float.fromhex(literal))


_LOG2_E = _f("0x1.715476p+0")
_LN2_HIGH, _LN2_LOW = _f("0x1.62e4p-1"), _f("0x1.7f7d1cp-20")
_EXP = tuple(_f(c) for c in ("0x1.6d7522p-10", "0x1.120b68p-7", "0x1.5554b8p-5", "0x1.5554dcp-3"))
_EXP_MAX, _EXP_MIN = _f("0x1.62e42ep+6"), _f("-0x1.9fe368p+6")
_LOG = tuple(_f(c) for c in ("0x1.2ef16p-2", "0x1.997be6p-2", "0x1.55555cp-1"))
_HALF, _ONE, _TWO = np.float32(0.5), np.float32(1), np.float32(2)


def _two_to(n: Array) -> Array:
    """2^n as float32, for -126 <= n <= 127."""
    return ((n + 127) << 23).astype(np.int32).view(np.float32)


def sqrt(x: Array) -> Array:
    """Square root, correctly rounded everywhere."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.sqrt(x))


def exp(x: Array) -> Array:
    """poet_expf."""
    if x.dtype != np.float32:
        return np.asarray(np.exp(x))
    inside = np.clip(np.where(np.isnan(x), np.float32(0), x), _EXP_MIN, _EXP_MAX)
    t = inside * _LOG2_E
    n = np.trunc(np.where(t < 0, t - _HALF, t + _HALF)).astype(np.int32)
    k = n.astype(np.float32)
    r = (inside - k * _LN2_HIGH) - k * _LN2_LOW
    p = _EXP[1] + r * _EXP[0]
    p = _EXP[2] + r * p
    p = _EXP[3] + r * p
    p = _HALF + r * p
    p = _ONE + (r + (r * r) * p)
    first = np.trunc(n / 2).astype(np.int32)  # C's division: towards zero
    with np.errstate(under="ignore"):
        y = (p * _two_to(first)) * _two_to(n - first)
    y = np.where(x > _EXP_MAX, np.float32(np.inf), y)
    y = np.where(x < _EXP_MIN, np.float32(0), y)
    return np.asarray(np.where(np.isnan(x), x, y), np.float32)


def log(x: Array) -> Array:
    """poet_logf."""
    if x.dtype != np.float32:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(x))
    usual = (x > 0) & (x < np.inf)
    inside = np.where(usual, x, _ONE).astype(np.float32)
    subnormal = inside < _f("0x1p-126")
    inside = inside * np.where(subnormal, _f("0x1p25"), _ONE)
    u = inside.view(np.uint32) + np.uint32(0x3F800000 - 0x3F3504F3)
    e = (u >> np.uint32(23)).astype(np.int32) - 127 - np.where(subnormal, 25, 0)
    f = ((u & np.uint32(0x007FFFFF)) + np.uint32(0x3F3504F3)).view(np.float32) - _ONE
    s = f / (_TWO + f)
    z = s * s
    half = _HALF * (f * f)
    p = _LOG[1] + z * _LOG[0]
    p = _LOG[2] + z * p
    k = e.astype(np.float32)
    y = k * _LN2_HIGH - ((half - (s * (half + z * p) + k * _LN2_LOW)) - f)
    y = np.where(x < 0, np.float32(np.nan), np.where(x == 0, np.float32(-np.inf), y))
    return np.asarray(np.where(usual | (x <= 0), y, x), np.float32)


_TANH = tuple(
    _f(c) for c in ("-0x1.b1ee8ep-8", "0x1.5d3e22p-6", "-0x1.b9a2eep-5", "0x1.110ff4p-3", "-0x1.555554p-2")
)
_ERF = tuple(
    _f(c)
    for c in (
        "0x1.7e97fcp-14",
        "-0x1.b3a6d2p-11",
        "0x1.55c152p-8",
        "-0x1.b82618p-6",
        "0x1.ce2f06p-4",
        "-0x1.812746p-2",
        "0x1.06eba8p-3",
    )
)
_LOG_ERFC = tuple(
    _f(c)
    for c in (
        "0x1.a5875cp-13",
        "-0x1.95516ap-9",
        "0x1.6f55ccp-6",
        "-0x1.ab5398p-4",
        "-0x1.460262p-1",
        "-0x1.20c06ep+0",
        "-0x1.180f10p-13",
    )
)


def _polynomial(x: Array, coefficients: tuple[np.float32, ...]) -> Array:
    """Horner's scheme, the highest power first; a multiplication and an addition each."""
    p = np.asarray(coefficients[0])
    for c in coefficients[1:]:
        p = c + x * p
    return p


def tanh(x: Array) -> Array:
    """poet_tanhf."""
    if x.dtype != np.float32:
        return np.asarray(np.tanh(x))
    a = np.where(x < 0, -x, x)
    small = np.where(a < _f("0x1.19999ap-1"), x, np.float32(0))
    z = small * small
    near = small + small * (z * _polynomial(z, _TANH))
    e = exp(_TWO * np.where(a <= 10, a, np.float32(0)))
    far = np.where(a > 10, _ONE, _ONE - _TWO / (e + _ONE))
    y = np.where(a < _f("0x1.19999ap-1"), near, np.where(x < 0, -far, far))
    return np.asarray(np.where(np.isnan(x), x, y), np.float32)


def erf(x: Array) -> Array:
    """poet_erff."""
    if x.dtype != np.float32:
        return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))
    a = np.where(x < 0, -x, x)
    small = np.where(a < _f("0x1.cp-1"), x, np.float32(0))
    z = small * small
    near = small + small * _polynomial(z, _ERF)
    inside = np.where(a <= 4, a, np.float32(0))
    far = np.where(a > 4, _ONE, _ONE - exp(_polynomial(inside, _LOG_ERFC)))
    y = np.where(a < _f("0x1.cp-1"), near, np.where(x < 0, -far, far))
    return np.asarray(np.where(np.isnan(x), x, y), np.float32)


def sigmoid(x: Array) -> Array:
    """poet_sigmoidf."""
    e = exp(np.where(x < 0, x, -x))
    one = x.dtype.type(1)
    with np.errstate(invalid="ignore"):  # a NaN passes, even a signalling one
        return np.asarray(np.where(x < 0, e, one) / (one + e))
