"""Place a schedule's tensors. In: Schedule. Out: MemoryPlan, which check() accepts.

The unit is the *residency*: one stay of a tensor in the arena, half-open in time (action numbers).
A tensor that is computed in place takes over its operand's bytes. A persistent tensor that is never
freed gets no arena bytes: its home is ``ram``, a member of ``struct NAME``. One that leaves during the
step and is back at its end must be where it was.

Packing: best fit in several orders, then a search that moves what stuck out to the front. Where the
pieces still do not fit the budget though their sum does, memory is compacted by planned ``Move``s.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from poetgen.cost import ALIGN, CostedGraph, aligned
from poetgen.errors import FitError, PoetgenError
from poetgen.schedule import Action, Compute, Free, Move, PageIn, PageOut, Schedule

SEARCH_ROUNDS = 400
"""Reorderings tried before memory is compacted instead."""


@dataclass(frozen=True)
class Residency:
    """One stay: ``Residency("conv1/y", 0, born=0, dies=7, offset=0, nbytes=6272)``.

    ``born`` is the number of the action that makes it resident, ``dies`` that of the one that ends it;
    0 and the number of actions for what persists. ``nbytes`` is aligned.
    """

    tensor: str
    stay: int
    born: int
    dies: int
    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        """First byte behind it."""
        return self.offset + self.nbytes


@dataclass(frozen=True)
class Page:
    """A tensor's place in the store.

    Regions ``slot`` (its home is the store) and ``saved`` (its home is RAM, a save writes it) have a
    second one ``slot_sectors`` further on; ``scratch`` has one.
    """

    tensor: str
    region: str
    sector: int
    nbytes: int
    sectors: int
    streamed: bool = False
    """Pieces of it are read and written: it has no check word."""


@dataclass(frozen=True, eq=False)
class MemoryPlan:
    """Addresses for one schedule. ``lower_bound_bytes`` is the largest sum of what lives at one time."""

    schedule: Schedule
    residencies: tuple[Residency, ...]
    in_ram: tuple[str, ...]
    """Persistent tensors with home ``ram``."""
    arena_bytes: int
    lower_bound_bytes: int

    @property
    def in_store(self) -> tuple[str, ...]:
        """Persistent tensors with home ``store``."""
        ram = set(self.in_ram)
        tensors = self.schedule.costed.training.tensors.values()
        return tuple(t.name for t in tensors if t.persistent and t.name not in ram)


@dataclass(frozen=True)
class StoreLayout:
    """Where everything lies in the page store (docs/store-format.md).

    Sectors: two superblocks, slot 0, slot 1, scratch. ``slot_sectors`` is the distance of the slots.
    """

    sector_bytes: int
    erase_sectors: int
    slot_sectors: int
    sectors: int
    pages: Mapping[str, Page]

    @property
    def text(self) -> str:
        """What the layout's hash is taken of."""
        head = (
            "poetgen store 1",
            f"sector_bytes {self.sector_bytes}",
            f"erase_sectors {self.erase_sectors}",
            f"slot_sectors {self.slot_sectors}",
            f"sectors {self.sectors}",
        )
        pages = sorted(self.pages.values(), key=lambda p: p.sector)
        rows = (f"{p.region} {p.tensor} {p.sector} {p.nbytes}{' streamed' * p.streamed}" for p in pages)
        return "".join(f"{line}\n" for line in (*head, *rows))


@dataclass
class _Block:
    """Residencies that share one offset: a chain of in-place results, or the stays of a cyclic tensor."""

    nbytes: int
    spans: list[tuple[int, int]]
    parts: list[tuple[str, int, int, int]]  # tensor, stay, born, dies

    def meets(self, other: _Block) -> bool:
        return any(a < d and c < b for a, b in self.spans for c, d in other.spans)


def place(schedule: Schedule) -> MemoryPlan:
    """Give every residency an offset.

    Raises:
        FitError: the tensors cannot be laid out within the budget even by moving them.
    """
    costed = schedule.costed
    in_ram = _ram_homes(schedule)
    blocks = _blocks(schedule, set(in_ram))
    bound = _live_bytes(blocks)
    budget = costed.arena_budget_bytes
    if budget is not None:
        budget -= sum(costed.nbytes(t) for t in in_ram)
    offsets, height = _pack(blocks, bound)
    if budget is not None and height > budget:
        return _compacted(schedule, in_ram, budget, bound)
    residencies = sorted(
        (
            Residency(tensor, stay, born, dies, offset, block.nbytes)
            for block, offset in zip(blocks, offsets, strict=True)
            for tensor, stay, born, dies in block.parts
        ),
        key=lambda r: (r.born, r.offset, r.tensor),
    )
    return MemoryPlan(schedule, tuple(residencies), in_ram, height, bound)


def layout(train: MemoryPlan, others: Iterable[MemoryPlan] = ()) -> StoreLayout:
    """Addresses in the store: slot pairs for all that persists, then scratch for what the programs page.

    Raises:
        FitError: the board's store is too small.
    """
    costed = train.schedule.costed
    store = costed.board.store
    if store is None:
        return StoreLayout(512, 1, 0, 0, {})
    step = store.erase_sectors
    pages: dict[str, Page] = {}
    at = 2 * step  # two superblocks, each in its own erase unit

    def add(tensor: str, region: str, owner: CostedGraph) -> None:
        nonlocal at
        sectors = owner.pages[tensor].sectors
        nbytes = _up(owner.training.tensors[tensor].spec.nbytes, 4)  # check words are over whole words
        pages[tensor] = Page(tensor, region, at, nbytes, sectors, tensor in streamed)
        at += _up(sectors, step)

    streamed = frozenset(t for p in (train, *others) for t in streamed_tensors(p.schedule))
    in_ram = set(train.in_ram)
    for t in costed.training.tensors.values():
        if t.persistent:
            add(t.name, "saved" if t.name in in_ram else "slot", costed)
    slot_sectors = at - 2 * step
    at += slot_sectors
    for plan in (train, *others):
        for tensor in paged_tensors(plan.schedule):
            if tensor not in pages:
                add(tensor, "scratch", plan.schedule.costed)
    sectors = at if pages else 0
    if sectors > store.sectors:
        raise FitError(
            f"the page store of {costed.board.name} has {store.sectors} sectors of {store.sector_bytes} B, "
            f"this plan needs {sectors}",
            hint="use a larger store, or more RAM so that less is paged",
        )
    return StoreLayout(store.sector_bytes, step, slot_sectors, sectors, pages)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def paged_tensors(schedule: Schedule) -> tuple[str, ...]:
    """Tensors that a schedule moves to or from the store, in order of first use."""
    found: dict[str, None] = {}
    for action in schedule.actions:
        if isinstance(action, PageIn | PageOut):
            found[action.tensor] = None
        elif isinstance(action, Compute):
            found |= dict.fromkeys(schedule.costed.variants[action.node][action.variant].streamed)
    return tuple(found)


def streamed_tensors(schedule: Schedule) -> frozenset[str]:
    """Tensors that some node reads or writes a piece at a time: their pages carry no check word."""
    return frozenset(
        t
        for a in schedule.actions
        if isinstance(a, Compute)
        for t in schedule.costed.variants[a.node][a.variant].streamed
    )


def _ram_homes(schedule: Schedule) -> tuple[str, ...]:
    freed = {a.tensor for a in schedule.actions if isinstance(a, Free)}
    return tuple(t for t in schedule.resident if t not in freed)


def _stays(schedule: Schedule, in_ram: set[str]) -> Iterable[tuple[str, int, int, int, str | None]]:
    """(tensor, stay, born, dies, in place over) of every residency, workspaces included."""
    training = schedule.costed.training
    end = len(schedule.actions)
    live: dict[str, tuple[int, str | None]] = {t: (0, None) for t in schedule.resident if t not in in_ram}
    count: dict[str, int] = {}

    def close(tensor: str, at: int) -> tuple[str, int, int, int, str | None]:
        born, over = live.pop(tensor)
        stay = count.get(tensor, 0)
        count[tensor] = stay + 1
        return (tensor, stay, born, at, over)

    for k, action in enumerate(schedule.actions):
        if isinstance(action, Free):
            yield close(action.tensor, k)
        elif isinstance(action, PageIn):
            live[action.tensor] = (k, None)
        elif isinstance(action, Compute):
            node = training.node[action.node]
            if action.in_place is not None:
                yield close(action.in_place, k)
            variant = schedule.costed.variants[action.node][action.variant]
            for index, out in enumerate(node.outputs):
                if training.tensors[out].in_arena and out not in variant.streamed:
                    live[out] = (k, action.in_place if index == 0 else None)
            if variant.workspace_bytes:
                scratch = workspace_name(action.node)
                yield (scratch, count.get(scratch, 0), k, k + 1, None)
                count[scratch] = count.get(scratch, 0) + 1
    for tensor in list(live):
        yield close(tensor, end)


def workspace_name(node: str) -> str:
    """The name under which a node's scratch bytes are placed."""
    return f"{node}/workspace"


def _blocks(schedule: Schedule, in_ram: set[str]) -> list[_Block]:
    costed = schedule.costed
    blocks: list[_Block] = []
    ends_at: dict[tuple[str, int], _Block] = {}
    cyclic: dict[str, _Block] = {}
    stays = sorted(_stays(schedule, in_ram), key=lambda s: (s[2], s[0]))
    for tensor, stay, born, dies, over in stays:
        if tensor in costed.training.tensors:
            nbytes = costed.nbytes(tensor)
        else:
            action = schedule.actions[born]
            assert isinstance(action, Compute)
            nbytes = aligned(costed.variants[action.node][action.variant].workspace_bytes)
        persists = tensor in schedule.resident and (born == 0 or dies == len(schedule.actions))
        block = ends_at.pop((over, born), None) if over is not None else None
        if block is None and persists:
            block = cyclic.get(tensor)
        if block is None:
            block = _Block(nbytes, [], [])
            blocks.append(block)
        if persists:
            cyclic[tensor] = block
        block.parts.append((tensor, stay, born, dies))
        if block.spans and block.spans[-1][1] == born:
            block.spans[-1] = (block.spans[-1][0], dies)
        else:
            block.spans.append((born, dies))
        ends_at[tensor, dies] = block
    return blocks


def _live_bytes(blocks: Sequence[_Block]) -> int:
    changes: dict[int, int] = {}
    for block in blocks:
        for born, dies in block.spans:
            changes[born] = changes.get(born, 0) + block.nbytes
            changes[dies] = changes.get(dies, 0) - block.nbytes
    live = peak = 0
    for at in sorted(changes):
        live += changes[at]
        peak = max(peak, live)
    return peak


def _pack(blocks: Sequence[_Block], bound: int) -> tuple[list[int], int]:
    """Offsets and height: the best of several orders and of a search from the best of them."""
    count = len(blocks)
    if not count:
        return [], 0
    meets = [[j for j in range(count) if j != i and blocks[i].meets(blocks[j])] for i in range(count)]
    length = [sum(d - b for b, d in block.spans) for block in blocks]
    orders: list[Callable[[int], tuple[int, ...]]] = [
        lambda i: (-blocks[i].nbytes, blocks[i].spans[0][0]),
        lambda i: (-blocks[i].nbytes * length[i], i),
        lambda i: (-length[i], -blocks[i].nbytes),
        lambda i: (blocks[i].spans[0][0], -blocks[i].nbytes),
        lambda i: (-sum(blocks[j].nbytes for j in meets[i]), -blocks[i].nbytes),
    ]
    best: list[int] = []
    height = -1
    best_order: list[int] = []
    for key in orders:
        order = sorted(range(count), key=key)
        offsets, top = _first_fit(blocks, meets, order)
        if height < 0 or top < height:
            best, height, best_order = offsets, top, order
        if height == bound:
            return best, height
    order, offsets, top = best_order, best, height
    for _ in range(SEARCH_ROUNDS):
        high = max(range(count), key=lambda i: offsets[i] + blocks[i].nbytes)
        at = order.index(high)
        if at == 0:
            break
        order = [high, *order[:at], *order[at + 1 :]]
        offsets, top = _first_fit(blocks, meets, order)
        if top < height:
            best, height = offsets, top
            if height == bound:
                break
    return best, height


def _first_fit(
    blocks: Sequence[_Block], meets: Sequence[Sequence[int]], order: Sequence[int]
) -> tuple[list[int], int]:
    """Place each block at the lowest offset free over its whole life."""
    offsets = [-1] * len(blocks)
    top = 0
    for i in order:
        taken = sorted((offsets[j], offsets[j] + blocks[j].nbytes) for j in meets[i] if offsets[j] >= 0)
        at = 0
        for low, high in taken:
            if at + blocks[i].nbytes <= low:
                break
            at = max(at, high)
        offsets[i] = at
        top = max(top, at + blocks[i].nbytes)
    return offsets, top


class _Arena:
    """Live bytes while a step is replayed with compaction."""

    def __init__(self, capacity: int, start: Mapping[str, tuple[int, int]]) -> None:
        self.capacity = capacity
        self.at: dict[str, tuple[int, int]] = dict(start)  # tensor -> offset, bytes

    def find(self, nbytes: int) -> int | None:
        """Offset of the smallest gap that holds nbytes."""
        best: tuple[int, int] | None = None
        edge = 0
        for low, size in [*sorted(self.at.values()), (self.capacity, 0)]:
            gap = low - edge
            if gap >= nbytes and (best is None or gap < best[0]):
                best = (gap, edge)
            edge = max(edge, low + size)
        return None if best is None else best[1]

    def way_back(self, home: Mapping[str, tuple[int, int]]) -> list[tuple[str, int]]:
        """Moves (tensor, offset) that bring what is left to its place; as far as there is room for them."""
        at = dict(self.at)
        moves: list[tuple[str, int]] = []

        def free_for(tensor: str, low: int) -> bool:
            high = low + at[tensor][1]
            others = ((a, a + n) for t, (a, n) in at.items() if t != tensor)
            return high <= self.capacity and all(high <= a or b <= low for a, b in others)

        def move(tensor: str, low: int) -> None:
            moves.append((tensor, low))
            at[tensor] = (low, at[tensor][1])

        while away := [t for t in at if t in home and at[t] != home[t]]:
            ready = next((t for t in away if free_for(t, home[t][0])), None)
            if ready is not None:
                move(ready, home[ready][0])
                continue
            # A circle: one of them waits elsewhere, at the end of another or at the end of the arena.
            edges = {0, *(a + n for a, n in at.values()), *(a + n for a, n in home.values())}
            for tensor in sorted(away, key=lambda t: at[t][1]):
                edges.add(self.capacity - at[tensor][1])
                spot = next(
                    (e for e in sorted(edges) if e >= 0 and e != at[tensor][0] and free_for(tensor, e)), None
                )
                if spot is not None and len(moves) < 4 * len(home):
                    move(tensor, spot)
                    break
            else:
                return moves
        return moves

    def compact(self) -> list[str]:
        """Slide everything down; the tensors that moved, in the order in which they may be moved."""
        moved, edge = [], 0
        for tensor, (low, size) in sorted(self.at.items(), key=lambda kv: kv[1]):
            if low != edge:
                self.at[tensor] = (edge, size)
                moved.append(tensor)
            edge += size
        return moved


def _compacted(schedule: Schedule, in_ram: tuple[str, ...], capacity: int, bound: int) -> MemoryPlan:
    """Replay with moves until a step ends with its persistent tensors where it began."""
    homes = set(in_ram)
    start: dict[str, tuple[int, int]] = {}
    at = 0
    for tensor in schedule.resident:
        if tensor not in homes:
            size = schedule.costed.nbytes(tensor)
            start[tensor] = (at, size)
            at += size
    for _ in range(len(start) + 4):
        actions, residencies, finish = _replay(schedule, homes, capacity, start)
        if finish == start:
            top = max((r.end for r in residencies), default=0)
            moved = replace(schedule, actions=actions)
            return MemoryPlan(moved, residencies, in_ram, top, bound)
        start = finish
    raise FitError(
        f"the arena of {capacity} B cannot be laid out: persistent tensors do not come back to their places",
        hint=f"try a budget {ALIGN * 64} B larger",
    )


def _replay(
    schedule: Schedule, in_ram: set[str], capacity: int, start: Mapping[str, tuple[int, int]]
) -> tuple[tuple[Action, ...], tuple[Residency, ...], dict[str, tuple[int, int]]]:
    costed, training = schedule.costed, schedule.costed.training
    arena = _Arena(capacity, start)
    actions: list[Action] = []
    born: dict[str, int] = dict.fromkeys(start, 0)
    stays: dict[str, int] = {}
    done: list[Residency] = []

    def close(tensor: str) -> None:
        low, size = arena.at[tensor]
        stay = stays.get(tensor, 0)
        stays[tensor] = stay + 1
        done.append(Residency(tensor, stay, born.pop(tensor), len(actions), low, size))

    def room(needs: Sequence[tuple[str, int]]) -> dict[str, int]:
        """Offsets for tensors that come together; compacts first where they do not fit."""
        for attempt in range(2):
            taken: dict[str, tuple[int, int]] = {}
            probe = _Arena(capacity, arena.at)
            for tensor, size in sorted(needs, key=lambda n: -n[1]):
                low = probe.find(size)
                if low is None:
                    break
                probe.at[tensor] = taken[tensor] = (low, size)
            else:
                return {t: low for t, (low, _) in taken.items()}
            if attempt == 0:
                before = dict(arena.at)
                for tensor in arena.compact():
                    new = arena.at[tensor]
                    arena.at[tensor] = before[tensor]
                    close(tensor)
                    arena.at[tensor] = new
                    born[tensor] = len(actions)
                    actions.append(Move(tensor))
        wanted = ", ".join(f"{t} {s} B" for t, s in needs)
        raise FitError(
            f"the arena of {capacity} B has no room for {wanted} at action {len(actions)}",
            hint="this is a fault of the schedule: its live bytes exceed the budget",
        )

    for action in schedule.actions:
        if isinstance(action, Free):
            close(action.tensor)
            del arena.at[action.tensor]
        elif isinstance(action, PageIn):
            size = costed.nbytes(action.tensor)
            (low,) = room([(action.tensor, size)]).values()
            arena.at[action.tensor] = (low, size)
            born[action.tensor] = len(actions)
        elif isinstance(action, Compute):
            node = training.node[action.node]
            variant = costed.variants[action.node][action.variant]
            outs = [o for o in node.outputs if training.tensors[o].in_arena and o not in variant.streamed]
            needs = [(o, costed.nbytes(o)) for o in outs]
            if action.in_place is not None:
                needs = needs[1:]
            workspace = aligned(variant.workspace_bytes)
            if workspace:
                needs.append((workspace_name(action.node), workspace))
            lows = room(needs) if needs else {}
            if action.in_place is not None:
                place_at = arena.at[action.in_place]
                close(action.in_place)
                del arena.at[action.in_place]
                arena.at[outs[0]] = place_at
                born[outs[0]] = len(actions)
            for tensor, size in needs:
                if tensor == workspace_name(action.node):
                    k, stay = len(actions), stays.get(tensor, 0)
                    stays[tensor] = stay + 1
                    done.append(Residency(tensor, stay, k, k + 1, lows[tensor], size))
                else:
                    arena.at[tensor] = (lows[tensor], size)
                    born[tensor] = len(actions)
        actions.append(action)
    for tensor, low in arena.way_back(start):
        size = arena.at[tensor][1]
        close(tensor)
        arena.at[tensor] = (low, size)
        born[tensor] = len(actions)
        actions.append(Move(tensor))
    finish = dict(arena.at)
    for tensor in list(finish):
        close(tensor)
    done.sort(key=lambda r: (r.born, r.offset, r.tensor))
    return tuple(actions), tuple(done), {t: finish[t] for t in start}


class BadPlacement(PoetgenError):
    """What check() found; ``rule`` is its name."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


def check(plan: MemoryPlan) -> int:
    """Judge a placement from the definition, in O(n squared); the highest byte used.

    Raises:
        BadPlacement: rule ``alignment``, ``outside``, ``overlap``, ``size``, ``missing`` or ``moved home``.
    """
    costed = plan.schedule.costed
    end = len(plan.schedule.actions)
    top = 0
    for r in plan.residencies:
        if r.offset % ALIGN or r.nbytes % ALIGN or r.offset < 0:
            raise BadPlacement("alignment", f"{r.tensor}: {r.nbytes} B at {r.offset} is not aligned")
        if r.end > plan.arena_bytes:
            raise BadPlacement("outside", f"{r.tensor} ends at {r.end}, the arena at {plan.arena_bytes}")
        if r.tensor in costed.training.tensors and r.nbytes < costed.nbytes(r.tensor):
            raise BadPlacement("size", f"{r.tensor} has {r.nbytes} B, needs {costed.nbytes(r.tensor)}")
        top = max(top, r.end)
    moves = {k: a.tensor for k, a in enumerate(plan.schedule.actions) if isinstance(a, Move)}
    for i, a in enumerate(plan.residencies):
        for b in plan.residencies[i + 1 :]:
            if a.born < b.dies and b.born < a.dies and a.offset < b.end and b.offset < a.end:
                raise BadPlacement("overlap", f"{a.tensor} and {b.tensor} share bytes at action {b.born}")
    wanted = _expected(plan, moves)
    have = {(r.tensor, r.born, r.dies) for r in plan.residencies}
    if missing := wanted - have:
        tensor, born, dies = min(missing, key=lambda m: m[1])
        raise BadPlacement("missing", f"{tensor} has no place for actions {born} to {dies}")
    first = {r.tensor: r.offset for r in plan.residencies if r.born == 0}
    last = {r.tensor: r.offset for r in plan.residencies if r.dies == end}
    for tensor in plan.schedule.resident:
        if tensor not in plan.in_ram and first.get(tensor) != last.get(tensor):
            raise BadPlacement(
                "moved home", f"{tensor} starts at {first.get(tensor)} and ends at {last.get(tensor)}"
            )
    return top


def _expected(plan: MemoryPlan, moves: Mapping[int, str]) -> set[tuple[str, int, int]]:
    """Every stay that the schedule implies, cut where a Move takes it elsewhere."""
    wanted: set[tuple[str, int, int]] = set()
    for tensor, _, born, dies, _ in _stays(plan.schedule, set(plan.in_ram)):
        cuts = [k for k, t in sorted(moves.items()) if t == tensor and born < k < dies]
        edges = [born, *cuts, dies]
        wanted |= {(tensor, a, b) for a, b in itertools.pairwise(edges)}
    return wanted


def to_csv(plan: MemoryPlan) -> str:
    """The allocation problem and its answer as ``id,lower,upper,size,offset``."""
    rows = [f"{r.tensor}#{r.stay},{r.born},{r.dies},{r.nbytes},{r.offset}" for r in plan.residencies]
    return "\n".join(["id,lower,upper,size,offset", *rows]) + "\n"
