"""The runtime's sqrt, exp, log, tanh, erf: within 2 ulp of the truth, and the same bits in numpy."""

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

from poetgen import arithmetic
from tests.ops.kernels import FLAGS, KERNELS, same_bits

FUNCTIONS = ("sqrt", "exp", "log", "tanh", "erf", "sigmoid")
BOUND_ULP = {"sqrt": 0.5, "exp": 1.1, "log": 1.1, "tanh": 2.0, "erf": 2.0, "sigmoid": 3.0}

_TRUTH = {
    **{name: getattr(math, name) for name in FUNCTIONS[:-1]},
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    out = tmp_path_factory.mktemp("math") / "math.so"
    sources = [KERNELS / "math.c", Path(__file__).with_name("math_ulp.c")]
    subprocess.run(["gcc", *FLAGS, "-shared", "-fPIC", *map(str, sources), "-lm", "-o", str(out)], check=True)
    lib = ctypes.CDLL(str(out))
    lib.worst_ulp.restype = ctypes.c_double
    lib.worst_ulp.argtypes = [ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p]
    lib.tabulate.restype = None
    lib.tabulate.argtypes = [ctypes.c_int32, *[ctypes.c_uint32] * 3, ctypes.c_void_p]
    return lib


def _worst(library: ctypes.CDLL, name: str, stride: int) -> tuple[float, str]:
    where = ctypes.c_uint32()
    worst = library.worst_ulp(FUNCTIONS.index(name), 0, stride, ctypes.byref(where))
    return worst, f"{name} of bits {where.value:#010x} is {worst} ulp off"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_is_close_to_the_truth_at_every_997th_float(library: ctypes.CDLL, name: str) -> None:
    worst, message = _worst(library, name, 997)
    assert worst <= BOUND_ULP[name], message


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_is_close_to_the_truth_at_every_float(library: ctypes.CDLL, name: str) -> None:
    worst, message = _worst(library, name, 1)
    assert worst <= BOUND_ULP[name], message


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_mirror_gives_the_same_bits(library: ctypes.CDLL, name: str) -> None:
    n, stride = 1 << 20, 4093  # odd: every exponent and both signs
    got = np.empty(n, np.float32)
    library.tabulate(FUNCTIONS.index(name), 0, stride, n, got.ctypes.data)
    u = (np.arange(n, dtype=np.uint64) * stride).astype(np.uint32)
    assert same_bits(getattr(arithmetic, name)(u.view(np.float32)), got)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_mirror_takes_float64_to_the_truth(name: str) -> None:
    x = np.linspace(0.1, 5, 50)
    got = getattr(arithmetic, name)(x)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, [_TRUTH[name](v) for v in x], rtol=1e-15)


def test_a_sum_is_sequential() -> None:
    x = np.array([1, 2**-24, 2**-24], np.float32)  # each half an ulp of 1: lost one by one, not as a pair
    assert arithmetic.sum_in_order(x, (0,)) == np.float32(1)
    assert arithmetic.sum_in_order(x[::-1], (0,)) == np.float32(1 + 2**-23)


def test_a_sum_cut_in_two_goes_on() -> None:
    x = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
    first = arithmetic.sum_in_order(x[:, :20], (1,))
    assert same_bits(arithmetic.sum_in_order(x[:, 20:], (1,), first), arithmetic.sum_in_order(x, (1,)))
