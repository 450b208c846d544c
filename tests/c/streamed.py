"""Run a streamed variant as the program would: its own C call, on an emulated device that counts.

Run as a program (``streamed.py SEED CASES [SOURCE.c ...]``) with the address sanitizer preloaded, it draws
random nodes, sets of tensors in the store and pieces, and compares with the reference bit for bit, bytes and
calls with the variant's; then a call of the device fails.
"""

from __future__ import annotations

import ctypes
import functools
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from poetgen.graph import Node
from poetgen.op import (
    Arg,
    Array,
    Call,
    In,
    Op,
    Out,
    Pager,
    Raw,
    Spec,
    StreamIn,
    StreamNew,
    StreamOut,
    Struct,
    Workspace,
    f32,
)
from poetgen.ops.adam import AdamUpdate
from poetgen.ops.add import Add, Mul, Sub
from poetgen.ops.batchnorm import (
    BatchNorm,
    BatchNormDg,
    BatchNormDx,
    BatchNormGradients,
    BatchNormSums,
    BatchNormTrain,
    BatchNormTrainDx,
)
from poetgen.ops.batchnorm_relu import (
    AddRelu,
    AddReluDx,
    BatchNormAddRelu,
    BatchNormAddReluDx,
    BatchNormAddReluDxOfSum,
    BatchNormRelu,
    BatchNormReluDx,
    BatchNormReluDxOfSum,
    ReluDxOfSum,
)
from poetgen.ops.channel_sum import ChannelSum
from poetgen.ops.clip import Clip, ClipDx
from poetgen.ops.mean import Mean, MeanDx
from poetgen.ops.pool import AveragePool, AveragePoolDx, MaxPool, MaxPoolDx, MaxPoolValues, Window
from poetgen.ops.relu import Relu, ReluDx
from poetgen.ops.sgd import MomentumUpdate, SgdUpdate
from poetgen.streams import passes, pool
from poetgen.streams.variant import Prices, StreamVariant
from tests.ops.kernels import (
    INCLUDE,
    ROOT,
    SANITIZE,
    SCALARS,
    Block,
    HeapBlock,
    _headers,
    enumerator,
    from_memory,
    same_bits,
    struct,
    to_memory,
)

EIO = -10
SD = Prices(0.109e-3, 1 / 4.617e6, 0.113e-3, 1 / 4.440e6)
FLAGS = ("-std=c11", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}")
KERNELS = ("relu", "add", "clip", "batchnorm", "batchnorm_relu", "channel_sum", "sgd", "adam", "pool", "math")
STREAMS = ("pass", "stream", "stream_relu", "stream_add", "stream_clip", "stream_batchnorm")
STREAMS += ("stream_channel_sum", "stream_mean", "stream_sgd", "stream_adam", "stream_pool")


class Stream(ctypes.Structure):
    """``struct poet_stream``."""

    _fields_ = [("at", ctypes.c_void_p), ("sector", ctypes.c_uint32)]


INSTEAD: dict[str, Path] = {}
"""Sources of nests to take instead of the runtime's."""


@functools.cache
def library(sanitize: bool) -> ctypes.CDLL:
    """All nests, an emulated device and the kernels."""
    out = Path(_folder().name) / f"streams{'.san' if sanitize else ''}.so"
    runtime = ROOT / "runtime_c"
    sources = [
        Path(__file__).parent / "device.c",
        runtime / "blockdev" / "emulated.c",
        *(INSTEAD.get(name, runtime / "streams" / f"{name}.c") for name in STREAMS),
        *(runtime / "kernels" / f"{name}.c" for name in KERNELS),
    ]
    command = ["gcc", *FLAGS, *(SANITIZE if sanitize else ()), "-shared", "-fPIC", *map(str, sources)]
    subprocess.run([*command, "-o", str(out)], check=True)
    found = ctypes.CDLL(str(out))
    found.device_open.restype = ctypes.c_void_p
    found.device_pager.restype = ctypes.c_void_p
    return found


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="poet_streams_")


@functools.cache
def prototype(symbol: str) -> tuple[str, ...]:
    """The types of a nest's parameters."""
    match = re.search(rf"\bint {symbol}\(([^)]*)\);", _headers())
    assert match, f"no header declares int {symbol}(...)"
    parameters = [" ".join(p.split()) for p in match[1].split(",")]
    return tuple(re.sub(r"\w+$", "", p).strip() for p in parameters)


@dataclass(frozen=True)
class Device:
    """What the store is like."""

    sector_bytes: int = 512
    erase_sectors: int = 0
    fail_at: int = 0


@dataclass(frozen=True)
class Run:
    """What a streamed call gave: its result, what it made, and what the device counted."""

    result: int
    made: tuple[Array, ...]
    calls: int
    reads: int
    writes: int
    bytes_in: int
    bytes_out: int


class Store:
    """A device with a region for each streamed tensor, and noise around them."""

    def __init__(self, device: Device, nbytes: Sequence[int], lib: ctypes.CDLL) -> None:
        self.device, self.lib = device, lib
        unit = max(device.erase_sectors, 1)
        self.sectors: list[int] = []
        at = unit
        for n in nbytes:
            self.sectors.append(at)
            at += (-(-n // device.sector_bytes) + 2 * unit) // unit * unit
        size = at * device.sector_bytes
        address = lib.device_open(at, device.sector_bytes, device.erase_sectors, device.fail_at)
        self.bytes = np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)
        self.bytes[:] = np.random.default_rng(1).integers(0, 255, size, np.uint8)
        self.owned = np.zeros(size, bool)

    def region(self, k: int, nbytes: int) -> Array:
        """The bytes of tensor k."""
        start = self.sectors[k] * self.device.sector_bytes
        return self.bytes[start : start + nbytes]

    def own(self, k: int, nbytes: int) -> None:
        """Tensor k is written: up to where its erase unit ends, or its sector."""
        step = self.device.sector_bytes * max(self.device.erase_sectors, 1)
        start = self.sectors[k] * self.device.sector_bytes
        end = start + (-(-nbytes // step) * step if self.device.erase_sectors else nbytes)
        self.owned[start:end] = True

    def counts(self) -> list[int]:
        found = (ctypes.c_uint32 * 6)()
        self.lib.device_counts(found)
        return list(found)


def run(
    node: Node,
    variant: StreamVariant,
    arrays: Sequence[Array],
    device: Device,
    in_place: int | None = None,
    sanitize: bool = False,
) -> Run:
    """Call a variant. ``in_place``: output 0 has this input's bytes; both are in the arena."""
    op, lib = node.op, library(sanitize)
    block = HeapBlock if sanitize else Block
    flat = [to_memory(a, s) for a, s in zip(arrays, node.in_specs, strict=True)]
    streamed = [
        *(("in", i, node.in_specs[i]) for i in variant.streamed_inputs),
        *(("new", i, node.in_specs[i]) for i in variant.streamed_inputs if i in op.mutates),
        *(("out", k, node.out_specs[k]) for k in variant.streamed_outputs),
    ]
    number = {(kind, i): k for k, (kind, i, _) in enumerate(streamed)}
    store = Store(device, [s.nbytes for *_, s in streamed], lib)
    for k, (kind, i, s) in enumerate(streamed):
        if kind == "in":
            store.region(k, s.nbytes)[:] = np.ascontiguousarray(flat[i]).view(np.uint8)
        else:
            store.own(k, s.nbytes)
    before = store.bytes.copy()

    ins = [None if ("in", i) in number else block(s.nbytes, flat[i]) for i, s in enumerate(node.in_specs)]
    outs = [None if ("out", k) in number else block(s.nbytes) for k, s in enumerate(node.out_specs)]
    if in_place is not None:
        outs[0] = ins[in_place]
    workspace = block(variant.workspace_bytes)

    def stream(kind: str, i: int, resident: Block | None) -> Stream:
        if resident is not None:
            return Stream(resident.address, 0)
        return Stream(None, store.sectors[number[kind, i]])

    def value(kind: str, arg: Arg) -> object:
        if isinstance(arg, Pager):
            return ctypes.c_void_p(lib.device_pager())
        if isinstance(arg, StreamIn):
            return stream("in", arg.index, ins[arg.index])
        if isinstance(arg, StreamNew):
            return stream("new", arg.index, ins[arg.index])
        if isinstance(arg, StreamOut):
            return stream("out", arg.index, outs[arg.index])
        if isinstance(arg, Workspace):
            return ctypes.c_void_p(workspace.address)
        if isinstance(arg, In | Out):
            found = (ins if isinstance(arg, In) else outs)[arg.index]
            assert found is not None, f"{arg} is in the store and passed as a pointer"
            if kind.endswith("*"):
                return ctypes.c_void_p(found.address)
            return ctypes.c_float(found.inner.view(np.float32)[0].item())
        if isinstance(arg, Struct):
            cls = struct(arg.ctype)
            assert kind == f"const {arg.ctype} *", f"{arg.ctype} is passed where {kind} is taken"
            assert [n for n, _ in cls._fields_] == [n for n, _ in arg.fields]
            return ctypes.byref(cls(*(v for _, v in arg.fields)))
        if isinstance(arg, Raw) and arg.text == "NULL":
            return ctypes.c_void_p(None)
        if isinstance(arg, Raw):
            return ctypes.c_int(enumerator(arg.text))
        assert isinstance(arg, int) or kind == "float", f"{arg!r} is passed where {kind} is taken"
        return SCALARS[kind](arg)

    result = 0
    for call in variant.calls:
        assert isinstance(call, Call)
        types = prototype(call.kernel.symbol)
        assert len(types) == len(call.args), f"{call.kernel.symbol} takes {len(types)} arguments"
        values = [value(t, a) for t, a in zip(types, call.args, strict=True)]
        result = result or getattr(lib, call.kernel.symbol)(*values)

    blocks = {id(b): b for b in (*ins, *outs, workspace) if b is not None}.values()
    assert all(b.intact() for b in blocks), f"{op} writes outside of its operands"
    for i, b in enumerate(ins):
        if b is not None and i != in_place and i not in op.mutates:
            assert (b.inner == np.ascontiguousarray(flat[i]).view(np.uint8)).all(), f"it changes input {i}"
    assert (store.bytes == before)[~store.owned].all(), f"{op} writes beside its tensors in the store"

    def read(kind: str, i: int, s: Spec, resident: Block | None) -> Array:
        raw = resident.inner if resident is not None else store.region(number[kind, i], s.nbytes)
        return from_memory(raw.view(s.numpy), s)

    made = (
        *(read("new", i, node.in_specs[i], ins[i]) for i in op.mutates),
        *(read("out", k, s, outs[k]) for k, s in enumerate(node.out_specs)),
    )
    for b in blocks:
        b.free()
    calls, reads, progs, sectors_read, sectors_programmed, violations = store.counts()
    assert violations == 0, f"{op} breaks the device's rules"
    size = device.sector_bytes
    return Run(result, made, calls, reads, progs, sectors_read * size, sectors_programmed * size)


# Random nodes


def draw(rng: random.Random, shape: tuple[int, ...], zeros: bool) -> Array:
    """Normal numbers and zeros of both signs; in `zeros` nothing else."""
    np_rng = np.random.default_rng(rng.getrandbits(32))
    values = np_rng.standard_normal(shape).astype(np.float32)
    kind = np_rng.integers(0, 8, shape)
    values = np.where((kind == 0) | zeros, np.float32(0), values)
    return np.asarray(np.where((kind & 1 == 1) & (values == 0), np.float32(-0.0), values), np.float32)


VECTORS: dict[type[Op], str] = {
    BatchNorm: "xgbmv",
    BatchNormDx: "xgv",
    BatchNormDg: "xxmv",
    BatchNormTrain: "xgb",
    BatchNormTrainDx: "xxgmvgb",
    BatchNormRelu: "xgbmv",
    BatchNormReluDx: "xxgbmv",
    BatchNormAddRelu: "xgbmvx",
    BatchNormAddReluDx: "xxxgmv",
    BatchNormSums: "xxmv",
    BatchNormGradients: "xxgmv",
    BatchNormReluDxOfSum: "xxxgbmv",
    BatchNormAddReluDxOfSum: "xxxxgmv",
}
"""Operands of x's size, and those with a number a channel; v is a variance."""


def elementwise() -> list[tuple[Op, int]]:
    binary: list[Op] = [ReluDx(), AddReluDx(), Add(), Sub(), Mul(), AddRelu(), ClipDx(-0.5, 0.25)]
    return [(Relu(), 1), (Clip(-0.5, 0.25), 1), *((op, 2) for op in binary), (ReluDxOfSum(), 3)]


def random_node(rng: random.Random) -> tuple[Node, tuple[Array, ...]]:
    n, c = rng.choice((1, 1, 2, 3)), rng.choice((1, 2, 3, 8, rng.randint(1, 70)))
    h, w = rng.choice((1, 2, 5, rng.randint(1, 12))), rng.choice((1, 2, 4, 8, rng.randint(1, 50)))
    shape = rng.choice(((n, c, h, w), (n, c, h, w), (n, c, h, w), (n, c, h * w), (n, c)))
    zeros = rng.random() < 0.25
    rows = len(shape) == 4 and rng.random() < 0.6
    x = Spec(shape, layout="rows" if rows else "dense")
    if rng.random() < 0.25:
        return random_pool(rng)
    kind = rng.choice((*["norm"] * 6, *["flat"] * 4, "sum", "mean", "mean_dx", "update", "update"))
    if kind == "norm":
        cls = rng.choice(tuple(VECTORS))
        if cls is BatchNormTrain and x.size == c:
            cls = BatchNorm
        op: Op = cls(rng.choice((1e-5, 1e-3)))  # type: ignore[call-arg]
        letters = VECTORS[cls]
        specs = [x if k == "x" else f32(c) for k in letters]
        arrays = [draw(rng, s.shape, zeros) for s in specs]
        arrays = [np.abs(a) if k == "v" else a for a, k in zip(arrays, letters, strict=True)]
    elif kind == "flat":
        op, count = rng.choice(elementwise())
        specs = [x] * count
        arrays = [draw(rng, shape, zeros) for _ in specs]
    elif kind == "sum":
        op, specs, arrays = ChannelSum(), [x], [draw(rng, shape, zeros)]
    elif kind == "mean":
        if len(shape) == 2:
            x = replace(x, shape=(n, c, w))
        op = Mean(tuple(range(2, len(x.shape))), rng.random() < 0.5)
        specs, arrays = [x], [draw(rng, x.shape, zeros)]
    elif kind == "mean_dx":
        if len(shape) == 2:
            x = replace(x, shape=(n, c, w))
        axes = tuple(range(2, len(x.shape)))
        op = MeanDx(axes, x.shape)
        specs = [Spec((n, c, *(1 for _ in axes)), layout=x.layout)]
        arrays = [draw(rng, specs[0].shape, zeros)]
    else:
        decay = rng.choice((0.0, 0.01))
        op, states = rng.choice(
            ((SgdUpdate(decay), 0), (MomentumUpdate(0.9, decay), 1), (AdamUpdate(weight_decay=decay), 2))
        )
        specs = [x, x, f32(), *[x] * states]
        arrays = [draw(rng, shape, zeros), draw(rng, shape, zeros), np.array(0.1, np.float32)]
        arrays += [np.abs(draw(rng, shape, zeros)) for _ in range(states)]
        if states == 2:
            specs.append(f32(2))
            arrays.append(np.array((0.5, 0.25), np.float32))
    out_specs = op.infer(*specs)
    if kind == "mean_dx":
        out_specs = (x,)
    names = tuple(f"in{i}" for i in range(len(specs)))
    node = Node("node", op, names, tuple(f"out{i}" for i in range(len(out_specs))), tuple(specs), out_specs)
    return node, tuple(arrays)


def random_pool(rng: random.Random) -> tuple[Node, tuple[Array, ...]]:
    """Windows of any size, stride, padding and dilation, along one axis or two."""
    while True:
        axes = rng.choice((1, 2, 2, 2))
        window = Window.of(
            tuple(rng.randint(1, 4) for _ in range(axes)),
            tuple(rng.randint(1, 4) for _ in range(axes)),
            tuple(rng.randint(0, 2) for _ in range(2 * axes)),
            tuple(rng.choice((1, 1, 1, 2, 3)) for _ in range(axes)),
            rng.random() < 0.3,
        )
        shape = (rng.randint(1, 3), rng.choice((1, 2, 3, 8, 20)), *(rng.randint(1, 14) for _ in range(axes)))
        x = Spec(shape, layout=rng.choice(("rows", "rows", "dense")) if axes == 2 else "dense")
        average = AveragePool(window, rng.random() < 0.5)
        try:
            out_specs = MaxPool(window).infer(x)
        except ValueError:
            continue
        break
    zeros = rng.random() < 0.25
    values = draw(rng, shape, zeros)
    gradient = draw(rng, out_specs[0].shape, zeros)
    op, specs, arrays = rng.choice(
        (
            (MaxPool(window), (x,), (values,)),
            (MaxPoolValues(window), (x,), (values,)),
            (MaxPoolDx(window, shape), out_specs, (gradient, MaxPool(window).reference(values)[1])),
            (average, (x,), (values,)),
            (AveragePoolDx(average, shape), out_specs[:1], (gradient,)),
        )
    )
    outputs = op.infer(*specs)
    names = tuple(f"in{i}" for i in range(len(specs))), tuple(f"out{i}" for i in range(len(outputs)))
    return Node("node", op, *names, specs, outputs), arrays


def in_place_choices(node: Node, variant: StreamVariant) -> list[int | None]:
    """Inputs in the arena whose bytes output 0, in the arena, may have."""
    found: list[int | None] = [None]
    if node.out_specs and 0 not in variant.streamed_outputs:
        found += [
            i
            for i in node.op.in_place
            if i not in variant.streamed_inputs and node.in_specs[i].nbytes == node.out_specs[0].nbytes
        ]
    return found


def random_variant(rng: random.Random, node: Node, sector_bytes: int) -> StreamVariant | None:
    """Half of them as they are chosen for a random room, half with any piece or tile."""
    module = pool if pool.describe(node) is not None else passes
    if rng.random() < 0.5:
        size = max(s.nbytes for s in (*node.in_specs, *node.out_specs))
        found = module.variants(node, sector_bytes, rng.randint(0, 4 * size), SD)
        return rng.choice(found) if found else None
    if module is pool:
        choices = pool.modes(node)
        y = node.out_specs[0]
        rows = y.shape[2] if len(y.shape) == 4 else 1
        tile = pool.Tile(rng.randint(1, y.shape[1]), rng.randint(1, rows))
        return pool.variant(node, rng.choice(choices), tile, sector_bytes) if choices else None
    over = passes.describe(node)
    assert over is not None, node.op
    mode = rng.choice(tuple(over.modes(node)))
    sectors = -(-over.size * 4 // sector_bytes)
    piece = rng.choice((1, rng.randint(1, sectors), sectors)) * sector_bytes // 4
    return passes.variant(over, mode, piece, sector_bytes)


def check(node: Node, variant: StreamVariant, arrays: Sequence[Array], device: Device, rng: random.Random,
          sanitize: bool = False) -> None:  # fmt: skip
    """The reference's bits, the predicted traffic; and an error of the device comes back."""
    place = rng.choice(in_place_choices(node, variant))
    what = f"{node.op} {node.in_specs[0]} {variant} {device} in place of {place}"
    done = run(node, variant, arrays, device, place, sanitize)
    assert done.result == 0, what
    for k, (a, b) in enumerate(zip(done.made, node.op.reference(*arrays), strict=True)):
        assert same_bits(a, b), f"{what}: result {k}\n{a}\nnot\n{b}"
    counted = (done.reads, done.writes, done.bytes_in, done.bytes_out)
    assert counted == (variant.reads, variant.writes, variant.bytes_in, variant.bytes_out), (
        f"{what}: {counted}"
    )
    failing = replace(device, fail_at=rng.randint(1, done.calls))
    assert run(node, variant, arrays, failing, place, sanitize).result == EIO, what


def random_cases(seed: int, count: int, sanitize: bool = False) -> dict[str, int]:
    """How many cases of each op were compared."""
    rng = random.Random(seed)
    seen: dict[str, int] = {}
    while sum(seen.values()) < count:
        node, arrays = random_node(rng)
        device = Device(rng.choice((256, 512, 512)), rng.choice((0, 0, 4)))
        variant = random_variant(rng, node, device.sector_bytes)
        if variant is None:
            continue
        check(node, variant, arrays, device, rng, sanitize)
        name = type(node.op).__name__
        seen[name] = seen.get(name, 0) + 1
    return seen


if __name__ == "__main__":
    INSTEAD.update((Path(p).stem, Path(p)) for p in sys.argv[3:])
    for name, times in sorted(random_cases(int(sys.argv[1]), int(sys.argv[2]), sanitize=True).items()):
        print(name, times)
