"""Call a kernel from its Call: its header says how, numpy holds the bytes.

Run as a program (``kernels.py FAMILY...``), with the address sanitizer preloaded, it runs every example of
every op, each operand in a heap block of exactly its size.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from poetgen.op import Example, In, Op, Out, Raw, Spec, Struct, Workspace
from poetgen.ops import all_ops

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "runtime_c" / "include"
KERNELS = ROOT / "runtime_c" / "kernels"
FLAGS = ("-std=c11", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}")
SANITIZE = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SCALARS = {"int32_t": ctypes.c_int32, "size_t": ctypes.c_size_t, "float": ctypes.c_float}
GUARD = 64


@functools.cache
def _headers() -> str:
    text = "\n".join(p.read_text() for p in sorted((INCLUDE / "poet").rglob("*.h")))
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


@functools.cache
def prototype(symbol: str) -> tuple[str, ...]:
    """The types of a kernel's parameters: ``("size_t", "const float *", "float *")``."""
    match = re.search(rf"\bvoid {symbol}\(([^)]*)\);", _headers())
    assert match, f"no header declares void {symbol}(...)"
    parameters = [" ".join(p.split()) for p in match[1].split(",")]
    return tuple(re.sub(r"\w+$", "", p).strip() for p in parameters)


@functools.cache
def struct(ctype: str) -> type[ctypes.Structure]:
    """A header's struct of int32_t and float members."""
    name = ctype.removeprefix("struct ")
    match = re.search(rf"\bstruct {name} \{{(.*?)\}};", _headers(), flags=re.S)
    assert match, f"no header defines struct {name}"
    fields: list[tuple[str, type]] = []
    for declaration in filter(None, (d.strip() for d in match[1].split(";"))):
        kind, names = declaration.split(None, 1)
        fields += [(n.strip(), SCALARS[kind]) for n in names.split(",")]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


@functools.cache
def enumerator(name: str) -> int:
    """An enumerator's value, counted from the front of its enum."""
    for body in re.findall(r"\benum \w+ \{(.*?)\};", _headers(), flags=re.S):
        names = [n.strip() for n in body.split(",")]
        if name in names:
            return names.index(name)
    raise AssertionError(f"no header has an enumerator {name}")


@functools.cache
def library(family: str, sanitize: bool = False) -> ctypes.CDLL:
    """One family's kernels, with the math and the other families that they may call."""
    folder = Path(_folder().name)
    out = folder / f"{family}{'.san' if sanitize else ''}.so"
    called = re.findall(r'#include "poet/kernels/(\w+)\.h"', (KERNELS / f"{family}.c").read_text())
    sources = [p for f in dict.fromkeys((family, "math", *called)) if (p := KERNELS / f"{f}.c").exists()]
    command = ["gcc", *FLAGS, *(SANITIZE if sanitize else ()), "-shared", "-fPIC", *map(str, sources)]
    subprocess.run([*command, "-o", str(out)], check=True)
    return ctypes.CDLL(str(out))


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="poet_kernels_")


class Block:
    """An operand's bytes between two guards."""

    def __init__(self, nbytes: int, content: np.ndarray | None = None) -> None:
        self.bytes = np.full(nbytes + 2 * GUARD, 0xA5, np.uint8)
        self.inner = self.bytes[GUARD : GUARD + nbytes]
        self.inner[:] = 0xFF  # four of them are a NaN
        if content is not None:
            self.inner[:] = np.ascontiguousarray(content).reshape(-1).view(np.uint8)

    @property
    def address(self) -> int:
        return self.inner.ctypes.data

    def intact(self) -> bool:
        return bool((self.bytes[:GUARD] == 0xA5).all() and (self.bytes[-GUARD:] == 0xA5).all())

    def array(self, spec: Spec) -> np.ndarray:
        return from_memory(self.inner.view(spec.numpy), spec)

    def free(self) -> None:
        pass


class HeapBlock(Block):
    """An operand's bytes alone on the heap, where the address sanitizer sees each byte beside them."""

    def __init__(self, nbytes: int, content: np.ndarray | None = None) -> None:
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        self._at = libc.malloc(ctypes.c_size_t(nbytes))
        buffer = (ctypes.c_uint8 * nbytes).from_address(self._at)
        self.inner = np.frombuffer(buffer, np.uint8)
        self.inner[:] = 0xFF
        if content is not None:
            self.inner[:] = np.ascontiguousarray(content).reshape(-1).view(np.uint8)

    def intact(self) -> bool:
        return True

    def free(self) -> None:
        ctypes.CDLL(None).free(ctypes.c_void_p(self._at))


def to_memory(array: np.ndarray, spec: Spec) -> np.ndarray:
    """The elements as the layout orders them."""
    return np.ascontiguousarray(array.transpose(0, 2, 1, 3) if spec.layout == "rows" else array).reshape(-1)


def from_memory(flat: np.ndarray, spec: Spec) -> np.ndarray:
    """The array whose elements lie so."""
    if spec.layout == "dense":
        return flat.reshape(spec.shape).copy()
    n, c, h, w = spec.shape
    return flat.reshape(n, h, c, w).transpose(0, 2, 1, 3).copy()


def specs_of(op: Op, arrays: Sequence[np.ndarray]) -> tuple[tuple[Spec, ...], tuple[Spec, ...]]:
    names = {np.dtype(np.float32): "f32", np.dtype(np.int32): "i32", np.dtype(np.uint8): "u8"}
    inputs = tuple(Spec(tuple(a.shape), names[a.dtype]) for a in arrays)
    return inputs, op.infer(*inputs)


def run(
    op: Op,
    arrays: Sequence[np.ndarray],
    in_place: int | None = None,
    sanitize: bool = False,
    specs: tuple[tuple[Spec, ...], tuple[Spec, ...]] | None = None,
) -> tuple[np.ndarray, ...]:
    """What the op's kernels write: its outputs, or the new values of what it mutates.

    ``in_place``: output 0 takes this input's bytes. What no kernel may write is checked to be as before.
    ``specs`` may have layouts; arrays are logical in any case.
    """
    in_specs, out_specs = specs or specs_of(op, arrays)
    arrays = [to_memory(a, s) for a, s in zip(arrays, in_specs, strict=True)]
    block = HeapBlock if sanitize else Block
    ins = [block(s.nbytes, a) for s, a in zip(in_specs, arrays, strict=True)]
    outs = [block(s.nbytes) for s in out_specs]
    if in_place is not None:
        outs[0] = ins[in_place]
    elif op.continues is not None:
        outs[0] = block(out_specs[0].nbytes, arrays[op.continues])
    workspace = block(op.workspace_bytes(in_specs, out_specs))
    for call in op.calls(in_specs, out_specs):
        types = prototype(call.kernel.symbol)
        assert len(types) == len(call.args), f"{call.kernel.symbol} takes {len(types)}, not {len(call.args)}"
        values = [_value(t, a, ins, outs, workspace) for t, a in zip(types, call.args, strict=True)]
        function = getattr(library(call.kernel.family, sanitize), call.kernel.symbol)
        function.restype = None
        function(*values)
    for b in (*ins, *outs, workspace):
        assert b.intact(), f"{op} writes outside of its operands"
    for i, (b, a) in enumerate(zip(ins, arrays, strict=True)):
        if i != in_place and i not in op.mutates:
            was = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
            assert (b.inner == was).all(), f"{op} changes its input {i}"
    if op.mutates:
        result = [ins[i].array(in_specs[i]) for i in op.mutates]
    else:
        result = []
    result += [b.array(s) for b, s in zip(outs, out_specs, strict=True)]
    for b in {id(b): b for b in (*ins, *outs, workspace)}.values():
        b.free()
    return tuple(result)


def _value(kind: str, arg: object, ins: list[Block], outs: list[Block], workspace: Block) -> object:
    if isinstance(arg, In | Out):
        block = (ins if isinstance(arg, In) else outs)[arg.index]
        if kind.endswith("*"):
            return ctypes.c_void_p(block.address)
        return SCALARS[kind](block.inner.view({"float": np.float32, "int32_t": np.int32}[kind])[0].item())
    if isinstance(arg, Workspace):
        return ctypes.c_void_p(workspace.address)
    if isinstance(arg, Struct):
        cls = struct(arg.ctype)
        assert kind == f"const {arg.ctype} *", f"{arg.ctype} is passed where {kind} is taken"
        assert [n for n, _ in cls._fields_] == [n for n, _ in arg.fields], f"{arg.ctype}: fields differ"
        return ctypes.byref(cls(*(v for _, v in arg.fields)))
    if isinstance(arg, Raw):
        return ctypes.c_void_p(None) if arg.text == "NULL" else ctypes.c_int(enumerator(arg.text))
    assert isinstance(arg, int | float)
    assert isinstance(arg, int) or kind == "float", f"{arg!r} is passed where {kind} is taken"
    return SCALARS[kind](arg)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bit for bit, where any NaN equals any other."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    equal = np.ascontiguousarray(a).reshape(-1).view(np.uint8) == np.ascontiguousarray(b).reshape(-1).view(
        np.uint8
    )
    equal = equal.reshape(-1, a.itemsize).all(axis=1)
    nan = (np.isnan(a) & np.isnan(b)).reshape(-1) if a.dtype.kind == "f" else False
    return bool((equal | nan).all())


def in_place_choices(op: Op, example: Example) -> tuple[int | None, ...]:
    """None, and every input whose bytes output 0 may take."""
    arrays = example.arrays()
    in_specs, out_specs = specs_of(op, arrays)
    if not out_specs:
        return (None,)
    return (None, *(i for i in op.in_place if in_specs[i].nbytes == out_specs[0].nbytes))


def _sanitized(families: Sequence[str]) -> int:
    count = 0
    for cls, seed in itertools.product(all_ops(), range(1)):
        for example in cls.examples():
            op = example.op
            arrays = example.arrays(seed)
            if any(c.kernel.family in families for c in op.calls(*specs_of(op, arrays))):
                for place in in_place_choices(op, example):
                    run(op, arrays, place, sanitize=True)
                    count += 1
    return count


if __name__ == "__main__":
    print(_sanitized(sys.argv[1:]), "runs")
