"""Cost a graph on a board. In: TrainingGraph, Board, Budget. Out: CostedGraph, in seconds and joules.

    time = cycles per unit of work x work / clock;  energy = time x power of the core
    page time = calls x latency + bytes / rate;  page energy = time x power of the store

(POET, arXiv 2207.07697, section 4; the board file names the source of each constant.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from poetgen.boards import Board
from poetgen.errors import UsageError
from poetgen.graph import Node, TrainingGraph
from poetgen.streams import Prices, StreamVariant, variants_of

ALIGN = 8
"""Bytes; every residency starts and is counted at a multiple of it (doubles, DMA)."""


def aligned(nbytes: int) -> int:
    """Bytes rounded up to the arena's alignment unit."""
    return -(-nbytes // ALIGN) * ALIGN


@dataclass(frozen=True)
class Cost:
    """Seconds and joules of one action."""

    time_s: float
    energy_j: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.time_s + other.time_s, self.energy_j + other.energy_j)


@dataclass(frozen=True)
class Variant:
    """One way to run a node. Streamed operands pass through tile buffers (none in a resident one)."""

    workspace_bytes: int
    cost: Cost
    streamed: tuple[str, ...] = ()
    stream: StreamVariant | None = None
    """How it streams: tiles, traffic and the C call."""


@dataclass(frozen=True)
class PageCost:
    """Moving one tensor to the store and back; ``sectors`` whole sectors, check word included."""

    out: Cost
    back: Cost
    sectors: int


@dataclass(frozen=True)
class Budget:
    """What the user allows: ``Budget(ram_bytes=65536, time_s=2.0)``; None is no limit."""

    ram_bytes: int | None = None
    time_s: float | None = None


@dataclass(frozen=True, eq=False)
class CostedGraph:
    """A training graph with prices. ``static_bytes`` is what RAM holds beside arena and parameters.

    ``variants[node]`` are the ways to run it, ``pages[tensor]`` the price of paging (absent where the
    board has no store or the tensor cannot be paged).
    """

    training: TrainingGraph
    board: Board
    budget: Budget
    variants: Mapping[str, tuple[Variant, ...]]
    pages: Mapping[str, PageCost]
    static_bytes: int
    homes: frozenset[str] | None = None
    """Persistent tensors that stay in RAM throughout, and no others between steps; None: choose."""

    @property
    def arena_budget_bytes(self) -> int | None:
        """RAM left for tensors: arena, parameters and optimizer state together."""
        return None if self.budget.ram_bytes is None else self.budget.ram_bytes - self.static_bytes

    def nbytes(self, tensor: str) -> int:
        """Aligned bytes that a tensor takes when resident; 0 for what is not poetgen's to hold."""
        t = self.training.tensors[tensor]
        return aligned(t.spec.nbytes) if t.in_arena else 0


def cost(
    training: TrainingGraph,
    board: Board,
    budget: Budget,
    static_bytes: int = 0,
    streaming: bool = False,
) -> CostedGraph:
    """Price every node and every page of a training graph on a board.

    ``streaming`` adds to each node the ways to run it with operands in the store.
    """
    room = None if budget.ram_bytes is None else budget.ram_bytes - static_bytes

    def streamed(node: Node) -> Iterable[Variant]:
        """What the caller holds, and constants, stay where they are: their traffic is none, not more."""
        for v in () if not streaming or room is None else streamed_variants(node, board, room):
            paged = tuple(t for t in v.streamed if training.tensors[t].in_arena)
            if paged:
                yield replace(v, streamed=paged)

    return CostedGraph(
        training,
        board,
        budget,
        {n.name: (resident_variant(n, board), *streamed(n)) for n in training.nodes},
        {
            t.name: page_cost(t.spec.nbytes, board)
            for t in training.tensors.values()
            if t.in_arena and board.store is not None
        },
        static_bytes,
    )


def resident_variant(node: Node, board: Board) -> Variant:
    """The variant with all operands in the arena."""
    work = node.op.work(node.in_specs, node.out_specs)
    if work.kind not in board.cycles:
        raise UsageError(
            f"board {board.name} has no [cycles] for {work.kind!r}, which {node.layer or node.name} needs",
            hint=f"add a row {work.kind} = {{ value = ..., source = ... }} to its board.toml",
        )
    time_s = board.cycles[work.kind] * work.count / board.clock_hz
    return Variant(
        node.op.workspace_bytes(node.in_specs, node.out_specs),
        Cost(time_s, time_s * board.power_w),
    )


def streamed_variants(node: Node, board: Board, room_bytes: int) -> tuple[Variant, ...]:
    """The variants with operands in the store, tiles chosen for ``room_bytes`` of arena."""
    store = board.store
    if store is None:
        return ()
    prices = Prices(
        store.latency_in_s,
        1 / store.rate_in_bytes_per_s,
        store.latency_out_s,
        1 / store.rate_out_bytes_per_s,
        1 / board.clock_hz,
    )
    computing = resident_variant(node, board).cost
    found = []
    for v in variants_of(node, store.sector_bytes, room_bytes, prices):
        in_s = v.reads * prices.in_latency_s + v.bytes_in * prices.in_s_per_byte
        out_s = v.writes * prices.out_latency_s + v.bytes_out * prices.out_s_per_byte
        moving = Cost(in_s + out_s, in_s * store.power_in_w + out_s * store.power_out_w)
        extra_s = v.extra_cycles / board.clock_hz
        moving += Cost(extra_s, extra_s * board.power_w)
        streamed = (
            *(node.inputs[i] for i in v.streamed_inputs),
            *(node.outputs[i] for i in v.streamed_outputs),
        )
        found.append(Variant(v.workspace_bytes, computing + moving, tuple(dict.fromkeys(streamed)), v))
    return tuple(found)


def page_cost(nbytes: int, board: Board) -> PageCost:
    """Price of one tensor's page: whole sectors, the check word's four bytes included.

    A page of several sectors takes two calls of the driver: the last sector passes through a buffer.
    """
    store = board.store
    assert store is not None
    sectors = (-(-nbytes // 4) * 4) // store.sector_bytes + 1
    moved = sectors * store.sector_bytes
    calls = 1 if sectors == 1 else 2
    out_s = calls * store.latency_out_s + moved / store.rate_out_bytes_per_s
    in_s = calls * store.latency_in_s + moved / store.rate_in_bytes_per_s
    return PageCost(Cost(out_s, out_s * store.power_out_w), Cost(in_s, in_s * store.power_in_w), sectors)
