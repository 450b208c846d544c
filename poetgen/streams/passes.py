"""Elementwise ops, batch norm, sums, means and updates: passes over tensors of one size (streams/pass.c).

A pass goes from piece to piece of its tensors. A piece is whole sectors, so that each sector is moved once
a pass, and the larger it is, the fewer calls.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from poetgen.graph import Node
from poetgen.op import (
    Arg,
    Call,
    In,
    Kernel,
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
from poetgen.ops.relu import Relu, ReluDx
from poetgen.ops.sgd import MomentumUpdate, SgdUpdate
from poetgen.streams.conv import resident_bytes, undominated
from poetgen.streams.traffic import FLOAT_BYTES, Traffic, span
from poetgen.streams.variant import Prices, StreamVariant

Ints = tuple[int, ...]
SLACK = 1.01
"""So much more time is as good, if it takes less workspace."""
VISIT_CYCLES = 70
"""Of the core for the numbers of a channel: a root, a division, ends of loops; on a Cortex-M4F, estimated."""


@dataclass(frozen=True)
class Pass:
    """A node's tensors of one size: inputs that are read, outputs, and inputs that are changed.

    ``call`` makes the C call, given the elements of a piece. ``times``: so often are operands read.
    ``planes`` are (channels, elements of a plane) where a kernel has numbers a channel. ``lanes`` are
    operands and ~results in the C function's order.
    """

    size: int
    operands: Ints
    results: Ints
    updates: Ints
    call: Callable[[int], Call]
    times: int = 1
    planes: tuple[int, int] | None = None
    lanes: Ints = ()

    @property
    def everything(self) -> Streamed:
        """All in the store."""
        return Streamed(self.operands, self.results, self.updates)

    def modes(self, node: Node) -> Iterator[Streamed]:
        """Every set of tensors that may be in the store; one that is read twice is in one place."""
        tensors = [*self.operands, *self.updates, *(~k for k in self.results)]
        for count in range(1, len(tensors) + 1):
            for chosen in itertools.combinations(tensors, count):
                mode = Streamed(
                    tuple(i for i in self.operands if i in chosen),
                    tuple(k for k in self.results if ~k in chosen),
                    tuple(i for i in self.updates if i in chosen),
                )
                names = {node.inputs[i] for i in mode.inputs}
                if all((name in names) == (i in mode.inputs) for i, name in enumerate(node.inputs)):
                    yield mode

    def buffers(self, mode: Streamed) -> int:
        """How many pieces the workspace has: poet_pass_operand and poet_pass_result, line by line."""
        buffers = free = residents = 0
        for k in self.lanes or (*self.operands, *(~k for k in self.results)):
            if k >= 0 and k in mode.operands:
                buffers += 1
                free += 1
            elif k >= 0:
                residents += 1
            elif free and (~k in mode.results or not residents):
                free -= 1
                buffers -= ~k not in mode.results  # the operand is read straight into the result's place
            else:
                buffers += ~k in mode.results
        return buffers + len(mode.updates)

    def straight(self, mode: Streamed) -> bool:
        """Is the first operand read into the arena, where it stays?"""
        all_in_store = bool(mode.operands) and len(mode.operands) == len(self.operands)
        return all_in_store and any(k not in mode.results for k in self.results)

    def traffic(self, mode: Streamed, piece: int, sector_bytes: int) -> Traffic:
        """Calls and sectors."""
        times = 1 if piece >= self.size or self.straight(mode) else self.times
        reads = len(mode.operands) * times + len(mode.updates)
        moved = self._once(piece, sector_bytes, is_write=False) * reads
        writes = len(mode.results) + len(mode.updates)
        return moved + self._once(piece, sector_bytes, is_write=True) * writes

    def extra_cycles(self, piece: int) -> int:
        """A channel's numbers are formed anew in each piece that meets it."""
        if self.planes is None:
            return 0
        channels, _ = self.planes
        return (_visits(self.size, *self.planes, piece) - channels) * VISIT_CYCLES * self.times

    def time_s(self, mode: Streamed, piece: int, sector_bytes: int, prices: Prices) -> float:
        """Of transfers, and of what the core has to do more."""
        extra = self.extra_cycles(piece) * prices.s_per_cycle
        return extra + self.traffic(mode, piece, sector_bytes).time_s(prices)

    def _once(self, piece: int, sector_bytes: int, is_write: bool) -> Traffic:
        whole, rest = divmod(self.size, piece)
        return span(0, piece, sector_bytes, is_write) * whole + span(0, rest, sector_bytes, is_write)


@dataclass(frozen=True)
class Streamed:
    """Which operands, results and updated inputs are in the store."""

    operands: Ints
    results: Ints
    updates: Ints

    @property
    def inputs(self) -> Ints:
        """As the node counts them."""
        return tuple(sorted((*self.operands, *self.updates)))


@lru_cache(maxsize=4096)
def _visits(size: int, channels: int, plane: int, piece: int) -> int:
    """Channels of all runs: poet_pass_planes, line by line."""
    visits = 0
    for start in range(0, size, piece):
        at, end = start, min(start + piece, size)
        while at < end:
            left, chan = end - at, at // plane % channels
            if at % plane or left < plane:
                run, count = min(plane - at % plane, left), 1
            elif chan or left < channels * plane:
                count = min(channels - chan, left // plane)
                run = count * plane
            else:
                count = channels
                run = left // (channels * plane) * channels * plane
            at += run
            visits += count
    return visits


def variants(node: Node, sector_bytes: int, room_bytes: int, prices: Prices) -> tuple[StreamVariant, ...]:
    """For each set of streamed tensors the best piece in all, a half and a quarter of the room.

    For all of them also the smallest.
    """
    over = describe(node)
    if over is None or over.size * FLOAT_BYTES <= sector_bytes:
        return ()
    found: list[StreamVariant] = []
    for mode in over.modes(node):
        room = room_bytes - resident_bytes(node, mode.inputs, mode.results) + _in_place(node, mode)
        limits = [room // share for share in (1, 2, 4)]
        if mode == over.everything:  # the least RAM that the node can do with
            limits.append(min(room, over.buffers(mode) * sector_bytes))
        pieces = (choose(over, mode, limit, sector_bytes, prices) for limit in limits)
        found += undominated(
            [variant(over, mode, p, sector_bytes) for p in dict.fromkeys(pieces) if p is not None], prices
        )
    return tuple(found)


def _in_place(node: Node, mode: Streamed) -> int:
    """Bytes that output 0 does not take where it may have those of an operand."""
    if not node.out_specs or 0 in mode.results:
        return 0
    (y, *_), names = node.out_specs, {node.inputs[i] for i in mode.inputs}
    may = any(node.in_specs[i].nbytes == y.nbytes and node.inputs[i] not in names for i in node.op.in_place)
    return -(-y.nbytes // 8) * 8 if may else 0


def choose(over: Pass, mode: Streamed, limit_bytes: int, sector_bytes: int, prices: Prices) -> int | None:
    """Elements of a piece: the fastest, or one that is hardly slower and smaller; None: not one fits."""
    sector = sector_bytes // FLOAT_BYTES
    buffers = over.buffers(mode)
    all_of_it = _up(over.size, sector)
    if buffers == 0:
        return all_of_it if limit_bytes >= 0 else None
    most = limit_bytes // (buffers * FLOAT_BYTES)
    largest = all_of_it if most >= over.size else most // sector * sector
    if largest <= 0:
        return None

    def time_s(piece: int) -> float:
        return over.time_s(mode, piece, sector_bytes, prices)

    # One call moves a piece's whole sectors, a last one what is left of the tensor.
    whole = max(1, over.size // sector)
    calls = -(-whole // (largest // sector))
    best, enough = largest, time_s(largest) * SLACK
    while True:
        smaller = -(-whole // calls) * sector
        if time_s(smaller) > enough:
            return best
        best = min(best, smaller)
        if best == sector:
            return best
        calls *= 2


def _up(size: int, sector: int) -> int:
    return -(-size // sector) * sector


def variant(over: Pass, mode: Streamed, piece: int, sector_bytes: int) -> StreamVariant:
    """The way to run it with that piece."""
    moved = over.traffic(mode, piece, sector_bytes)
    return StreamVariant(
        mode.inputs,
        mode.results,
        over.buffers(mode) * min(piece, over.size) * FLOAT_BYTES,
        moved.bytes_in,
        moved.bytes_out,
        moved.reads,
        moved.writes,
        (over.call(piece),),
        over.extra_cycles(piece),
    )


# What each op passes over, and its call.


def describe(node: Node) -> Pass | None:
    """How a node passes over its large tensors; None where it does not."""
    maker = _MAKERS.get(type(node.op))
    return None if maker is None else maker(node)


def _flat(name: str, family: str, inputs: Ints) -> Callable[[Node], Pass | None]:
    """Elementwise: the operands in the kernel's order."""

    def describe_flat(node: Node) -> Pass | None:
        (y,) = node.out_specs
        if not _alike(y, *(node.in_specs[i] for i in inputs)):
            return None
        return _elementwise(y.size, name, family, (), inputs)

    return describe_flat


def _elementwise(size: int, name: str, family: str, numbers: tuple[Arg, ...], inputs: Ints) -> Pass:
    def call(piece: int) -> Call:
        streams: tuple[Arg, ...] = (*map(StreamIn, inputs), StreamOut(0))
        return _call(name, family, (size, piece, *numbers, *streams))

    return Pass(size, inputs, (0,), (), call)


def _call(name: str, family: str, args: Sequence[Arg]) -> Call:
    return Call(Kernel(f"poet_stream_{name}_f32", f"stream_{family}"), (Pager(), *args, Workspace()))


def _alike(*specs: Spec) -> bool:
    """Of one shape, float32, and in one order."""
    return len({(s.shape, s.layout) for s in specs}) == 1 and specs[0].dtype == "f32"


def _relu_dx_of_sum(node: Node) -> Pass | None:
    found = _flat("relu_dx_of_sum", "relu", (0, 1, 2))(node)
    return None if found is None else replace(found, lanes=(1, 2, ~0, 0))


def _clip(node: Node) -> Pass | None:
    assert isinstance(node.op, Clip)
    if node.op.low is None or node.op.high is None:
        return None
    bounds = float(node.op.low), float(node.op.high)
    return _elementwise(node.out_specs[0].size, "clip", "clip", bounds, (0,))


def _clip_dx(node: Node) -> Pass | None:
    assert isinstance(node.op, ClipDx)
    if not _alike(*node.in_specs, *node.out_specs):
        return None
    return _elementwise(node.out_specs[0].size, "clip_dx", "clip", node.op.bounds(), (0, 1))


def _norm(
    name: str, operands: Ints, args: Sequence[Arg], times: int = 1, lanes: Ints = ()
) -> Callable[[Node], Pass | None]:
    """Batch norm: ``args`` are those after the struct."""

    def describe_norm(node: Node) -> Pass | None:
        x = node.in_specs[operands[0]]
        results = tuple(k for k, s in enumerate(node.out_specs) if s.shape == x.shape)
        if not _alike(*(node.in_specs[i] for i in operands), *(node.out_specs[k] for k in results)):
            return None
        eps: float = node.op.eps  # type: ignore[attr-defined]
        batch, channels, size = x.planes()

        def call(piece: int) -> Call:
            s = Struct(
                "struct poet_stream_batchnorm",
                (
                    *(("batch", batch), ("channels", channels), ("size", size)),
                    *(("eps", float(eps)), ("piece", piece)),
                ),
            )
            return _call(name, "batchnorm", (s, *args))

        return Pass(x.size, operands, results, (), call, times, (channels, size), lanes)

    return describe_norm


def _channel_sum(node: Node) -> Pass | None:
    (dy,) = node.in_specs

    def call(piece: int) -> Call:
        args = (*dy.planes(), piece, Raw("POET_START_ZERO"), StreamIn(0), Out(0))
        return _call("channel_sum", "channel_sum", args)

    return Pass(dy.size, (0,), (), (), call)


def _mean(node: Node) -> Pass | None:
    assert isinstance(node.op, Mean)
    x = node.in_specs[0]
    return _planes(node.op.axes, x, "mean", (StreamIn(0), Out(0)), operands=(0,))


def _mean_dx(node: Node) -> Pass | None:
    assert isinstance(node.op, MeanDx)
    dx = node.out_specs[0]
    return _planes(node.op.axes, dx, "mean_dx", (In(0), StreamOut(0)), results=(0,))


def _planes(
    axes: Ints, x: Spec, name: str, args: Sequence[Arg], operands: Ints = (), results: Ints = ()
) -> Pass | None:
    """Means over all axes behind the channels."""
    rank = len(x.shape)
    if rank < 3 or {a % rank for a in axes} != set(range(2, rank)):
        return None
    n, channels, *rest = x.shape
    rows, size = rest if x.layout == "rows" else (1, math.prod(rest))

    def call(piece: int) -> Call:
        sizes = (("images", n), ("rows", rows), ("channels", channels), ("size", size), ("piece", piece))
        return _call(name, "mean", (Struct("struct poet_stream_mean", sizes), *args))

    return Pass(x.size, operands, results, (), call)


def _moved(*inputs: int) -> Iterator[Arg]:
    """What is changed: where it is and where it goes."""
    for i in inputs:
        yield from (StreamIn(i), StreamNew(i))


def _sgd(node: Node) -> Pass:
    op = node.op
    assert isinstance(op, SgdUpdate)
    size, decay = node.in_specs[0].size, float(op.weight_decay)

    def call(piece: int) -> Call:
        return _call("sgd", "sgd", (size, piece, In(2), decay, StreamIn(1), *_moved(0)))

    return Pass(size, (1,), (), (0,), call)


def _momentum(node: Node) -> Pass:
    op = node.op
    assert isinstance(op, MomentumUpdate)
    size, factors = node.in_specs[0].size, (float(op.momentum), float(op.weight_decay))

    def call(piece: int) -> Call:
        return _call("momentum", "sgd", (size, piece, In(2), *factors, StreamIn(1), *_moved(0, 3)))

    return Pass(size, (1,), (), (0, 3), call)


def _adam(node: Node) -> Pass:
    (resident,) = node.op.calls(node.in_specs, ())
    (s,) = (a for a in resident.args if isinstance(a, Struct))

    def call(piece: int) -> Call:
        return _call("adam", "adam", (s, piece, In(2), In(5), StreamIn(1), *_moved(0, 3, 4)))

    return Pass(node.in_specs[0].size, (1,), (), (0, 3, 4), call)


def _at(*inputs: int) -> tuple[Arg, ...]:
    return tuple(map(In, inputs))


_MAKERS: dict[type[Op], Callable[[Node], Pass | None]] = {
    Relu: _flat("relu", "relu", (0,)),
    ReluDx: _flat("relu_dx", "relu", (0, 1)),
    AddReluDx: _flat("relu_dx", "relu", (0, 1)),
    Add: _flat("add", "add", (0, 1)),
    Sub: _flat("sub", "add", (0, 1)),
    Mul: _flat("mul", "add", (0, 1)),
    AddRelu: _flat("add_relu", "batchnorm", (0, 1)),
    Clip: _clip,
    ClipDx: _clip_dx,
    BatchNorm: _norm("batchnorm", (0,), (StreamIn(0), *_at(1, 2, 3, 4), StreamOut(0))),
    BatchNormDx: _norm("batchnorm_dx", (0,), (StreamIn(0), *_at(1, 2), StreamOut(0))),
    BatchNormDg: _norm("batchnorm_dg", (0, 1), (StreamIn(0), StreamIn(1), *_at(2, 3), Out(0))),
    BatchNormTrain: _norm(
        "batchnorm_train", (0,), (StreamIn(0), *_at(1, 2), StreamOut(0), Out(1), Out(2)), times=3
    ),
    BatchNormTrainDx: _norm(
        "batchnorm_train_dx", (0, 1), (StreamIn(0), StreamIn(1), *_at(2, 3, 4, 5, 6), StreamOut(0))
    ),
    BatchNormRelu: _norm("batchnorm_relu", (0,), (StreamIn(0), *_at(1, 2, 3, 4), StreamOut(0))),
    BatchNormReluDx: _norm(
        "batchnorm_relu_dx",
        (0, 1),
        (StreamIn(0), StreamIn(1), *_at(2, 3, 4, 5), StreamOut(0), Out(1), Out(2)),
    ),
    BatchNormAddRelu: _norm(
        "batchnorm_add_relu", (0, 5), (StreamIn(0), *_at(1, 2, 3, 4), StreamIn(5), StreamOut(0))
    ),
    BatchNormAddReluDx: _norm(
        "batchnorm_add_relu_dx",
        (0, 1, 2),
        (*map(StreamIn, (0, 1, 2)), *_at(3, 4, 5), StreamOut(0), Out(1), Out(2), StreamOut(3)),
    ),
    BatchNormSums: _norm("batchnorm_sums", (0, 1), (StreamIn(0), StreamIn(1), *_at(2, 3), Out(0), Out(1))),
    BatchNormGradients: _norm(
        "batchnorm_gradients",
        (0, 1),
        (StreamIn(0), StreamIn(1), *_at(2, 3, 4), StreamOut(0), Out(1), Out(2)),
    ),
    ReluDxOfSum: _relu_dx_of_sum,
    BatchNormReluDxOfSum: _norm(
        "batchnorm_relu_dx_of_sum",
        (0, 1, 2),
        (*map(StreamIn, (0, 1, 2)), *_at(3, 4, 5, 6), StreamOut(0), Out(1), Out(2)),
        lanes=(0, 1, ~0, 2),
    ),
    BatchNormAddReluDxOfSum: _norm(
        "batchnorm_add_relu_dx_of_sum",
        (0, 1, 2, 3),
        (*map(StreamIn, (0, 1, 2, 3)), *_at(4, 5, 6), StreamOut(0), Out(1), Out(2), StreamOut(3)),
        lanes=(0, 1, ~0, 2, 3, ~3),
    ),
    ChannelSum: _channel_sum,
    Mean: _mean,
    MeanDx: _mean_dx,
    SgdUpdate: _sgd,
    MomentumUpdate: _momentum,
    AdamUpdate: _adam,
}

KNOWN = tuple(_MAKERS)
"""Ops that this module can stream."""
