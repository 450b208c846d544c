"""The gap model: a schedule as a mixed-integer program. In: CostedGraph, depth. Out: GapModel, arrays.

For each tensor, between consecutive *events* (the slots that make or read it), the program chooses
whether it stays in RAM. Slots are the base order, and before each node s the recomputes that could
serve it. Letters, with tau a slot, i a tensor, e its e-th event:

    R[tau]   the recompute at slot tau runs (base slots always run)
    X[i,e]   i stays in RAM from event e to event e+1
    P[i,e]   i is paged in just before event e
    O[i]     i is written to the store: an activation once made, a parameter once updated
    c[i]     a persistent tensor stays in RAM from its last event to its first of the next step
    Z[tau,i] the op at tau takes i's bytes in place
    y[tau,v] the op at tau runs as variant v; one that streams i reads or makes it in the store

At a base slot an operand is there or paged in, P = 1 - X[i,e-1], so P is no variable there and the
operand's bytes are a constant of the memory row. Memory rows count in the greatest common divisor of
all sizes, right-hand side floor + 1/2: all-integer rows do not suffer from a solver's tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from poetgen.cost import ALIGN, Variant, aligned
from poetgen.schedule.actions import Action, Compute, Free, PageIn, PageOut, Schedule
from poetgen.schedule.facts import Facts, prune

Objective = Literal["energy", "time", "peak"]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
NONE = -1
"""No column: the variable does not exist and is 0."""
UNIT = 1e4
"""The objective is scaled so that computing every node once is worth this much."""


@dataclass
class Track:
    """One tensor's events and columns. ``stays[e]`` is X after event e (c after a persistent's last)."""

    name: str
    size: int
    persistent: bool
    slots: list[int] = field(default_factory=list)
    makes: list[bool] = field(default_factory=list)
    stays: list[int] = field(default_factory=list)
    lands: list[int] = field(default_factory=list)
    out: int = NONE
    across: int = NONE
    born: list[int] = field(default_factory=list)
    """y of the base variants that make or change the tensor in the store."""
    at: dict[int, int] = field(default_factory=dict)
    """Slot -> event."""

    def before(self, e: int) -> int:
        """x-: the column that says whether the tensor is in RAM when event e comes."""
        return self.stays[e - 1] if e else self.across


@dataclass(eq=False)
class Lp:
    """Minimise cost x, lo <= A x <= hi, x binary (but column ``real``); A by rows."""

    cost: Floats
    upper: Floats
    lower: Floats
    start: Ints
    index: Ints
    value: Floats
    lo: Floats
    hi: Floats
    real: int = NONE

    @property
    def columns(self) -> int:
        """Number of variables."""
        return len(self.cost)

    @property
    def rows(self) -> int:
        """Number of constraints."""
        return len(self.lo)


@dataclass(eq=False)
class GapModel:
    """The program, and how its columns read. Objective in joules = offset + scale * cost x."""

    facts: Facts
    depth: int
    slots: list[tuple[int, int]]
    """(s, j): node j runs before or, where j = s, as base node s."""
    runs: list[int]
    """R of each slot, NONE at base slots."""
    tracks: dict[str, Track]
    chosen: dict[int, list[int]]
    """Slot -> y of each variant, where there are several."""
    takes: dict[tuple[int, str], int]
    """(slot, operand) -> Z."""
    lp: Lp
    offset: float
    scale: float

    def value(self, objective: float) -> float:
        """The solver's objective (or bound) in joules, seconds or bytes."""
        return self.offset + self.scale * objective

    def actions(self, x: npt.NDArray[np.bool_]) -> tuple[tuple[Action, ...], tuple[str, ...]]:
        """The actions that a solution means, and what is resident between steps."""
        return _actions(self, x)

    def solution(self, schedule: Schedule) -> Floats | None:
        """The columns that mean a schedule; None where it recomputes what the model cannot say."""
        return _solution(self, schedule)


@dataclass
class _Columns:
    """Columns and rows while the model grows."""

    cost: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    start: list[int] = field(default_factory=lambda: [0])
    lo: list[float] = field(default_factory=list)
    hi: list[float] = field(default_factory=list)
    fixed_cost: float = 0.0

    def column(self, cost: float = 0.0, upper: float = 1.0) -> int:
        self.cost.append(cost)
        self.lower.append(0.0)
        self.upper.append(upper)
        return len(self.cost) - 1

    def at_least(self, low: float, *terms: tuple[int, float]) -> None:
        self.row(low, math.inf, terms)

    def at_most(self, high: float, *terms: tuple[int, float]) -> None:
        self.row(-math.inf, high, terms)

    def row(self, low: float, high: float, terms: Iterable[tuple[int, float]]) -> None:
        for col, factor in _merged(terms):
            self.index.append(col)
            self.value.append(factor)
        if len(self.index) > self.start[-1]:
            self.start.append(len(self.index))
            self.lo.append(low)
            self.hi.append(high)
        elif not low <= 0 <= high:  # nothing can mend it: a column that must be 2 says so
            self.index.append(self.column())
            self.value.append(1.0)
            self.start.append(len(self.index))
            self.lo.append(2.0)
            self.hi.append(math.inf)


def recomputes(facts: Facts, depth: int, dominance: bool = True) -> list[list[int]]:
    """C_s of each base node s: what may be recomputed just before it, ascending.

    From the operands of s backwards through nodes that may run again then, ``depth`` nodes deep. A node
    whose outputs are cheaper to page than to make again is left out (dominance).
    """
    costed = facts.costed

    def cheaper_to_page(j: int) -> bool:
        if not all(o in costed.pages for o in facts.makes[j]):
            return False
        pages = [costed.pages[o] for o in facts.makes[j]]
        variants = costed.variants[facts.nodes[j].name]
        return min(v.cost.energy_j for v in variants) >= sum(
            p.out.energy_j + p.back.energy_j for p in pages
        ) and min(v.cost.time_s for v in variants) >= sum(p.out.time_s + p.back.time_s for p in pages)

    wasteful = [dominance and cheaper_to_page(j) for j in range(len(facts.nodes))]
    sets = []
    for s in range(len(facts.nodes)):
        found: set[int] = set()
        front = {s}
        for _ in range(depth):
            makers = {facts.maker[t] for k in front for t in facts.reads[k] if t in facts.maker}
            front = {
                j
                for j in makers
                if j < s - 1 and j not in found and not wasteful[j] and facts.may_rerun(j, s)
            }
            if not front:
                break
            found |= front
        sets.append(sorted(found))
    return sets


def build(
    facts: Facts,
    depth: int,
    arena_bytes: int | None,
    time_s: float | None = None,
    objective: Objective = "energy",
) -> GapModel:
    """State the program for a budget, a deadline and a recompute depth.

    ``objective="peak"`` looks for the least arena instead (``arena_bytes`` does not count then).
    """
    return _Build(facts, depth, arena_bytes, time_s, objective).model()


class _Build:
    def __init__(
        self,
        facts: Facts,
        depth: int,
        arena_bytes: int | None,
        time_s: float | None,
        objective: Objective,
    ) -> None:
        self.facts, self.depth, self.arena_bytes = facts, depth, arena_bytes
        self.deadline_s, self.objective = time_s, objective
        self.costed = facts.costed
        self.cols = _Columns()
        self.seconds: list[tuple[int, float]] = []
        self.fixed_s = 0.0
        self.store_units: list[tuple[int, float]] = []
        self.chosen: dict[int, list[int]] = {}
        self.takes: dict[tuple[int, str], int] = {}
        # Memory rows: entries (slot, column, bytes) and constants by slot.
        self.entry_row: list[int] = []
        self.entry_col: list[int] = []
        self.entry_bytes: list[int] = []

    def model(self) -> GapModel:
        facts = self.facts
        store = self.costed.board.store
        sectors = sum(
            self.costed.pages[t].sectors * (2 if t in facts.changed_at else 1)
            for t in facts.size
            if t in self.costed.pages
        )
        self.store_binds = store is not None and sectors * store.sector_bytes > store.size_bytes
        sets = recomputes(facts, self.depth, dominance=not self.store_binds)
        self.slots: list[tuple[int, int]] = []
        self.base: list[int] = []
        for s, js in enumerate(sets):
            self.slots += [(s, j) for j in js]
            self.base.append(len(self.slots))
            self.slots.append((s, s))
        self.constant = [0] * len(self.slots)
        self.runs = [NONE] * len(self.slots)
        self._events()
        for slot, (s, j) in enumerate(self.slots):
            self._run(slot, s, j)
        for track in self.tracks.values():
            self._tensor(track)
        for slot, (s, j) in enumerate(self.slots):
            self._operate(slot, s, j)
        if self.deadline_s is not None:
            unit = UNIT / max(self.deadline_s, 1e-9)
            room = (self.deadline_s - self.fixed_s) * unit
            self.cols.row(-math.inf, room, ((col, t * unit) for col, t in self.seconds))
        if self.store_binds and store is not None:
            fixed = sum(
                self.costed.pages[t].sectors
                for t in facts.persistent
                if t in self.costed.pages and t not in facts.changed_at
            )
            self.cols.row(-math.inf, store.size_bytes // store.sector_bytes - fixed + 0.5, self.store_units)
        lp = self._arrays()
        return GapModel(
            facts,
            self.depth,
            self.slots,
            self.runs,
            self.tracks,
            self.chosen,
            self.takes,
            lp,
            self.offset,
            self.scale,
        )

    # Columns

    def _events(self) -> None:
        facts = self.facts
        self.tracks: dict[str, Track] = {
            t: Track(t, size, t not in facts.maker) for t, size in facts.size.items()
        }
        for slot, (_, j) in enumerate(self.slots):
            for t, makes in (*((t, False) for t in facts.reads[j]), *((t, True) for t in facts.makes[j])):
                track = self.tracks[t]
                track.slots.append(slot)
                track.makes.append(makes)
        for track in self.tracks.values():
            if not track.persistent:
                while len(track.slots) > 1 and track.makes[-1]:  # nobody reads it after that
                    track.slots.pop()
                    track.makes.pop()
            track.at = {slot: e for e, slot in enumerate(track.slots)}

    def _spend(self, col: int, energy_j: float, time_s: float, factor: float = 1.0) -> None:
        """Charge a cost to a column (NONE: to the constants)."""
        price = {"energy": energy_j, "time": time_s, "peak": 0.0}[self.objective] * factor
        if col == NONE:
            self.cols.fixed_cost += price
            self.fixed_s += time_s * factor
        else:
            self.cols.cost[col] += price
            self.seconds.append((col, time_s * factor))

    def _run(self, slot: int, s: int, j: int) -> None:
        """R and y, and what running costs."""
        variants = self.costed.variants[self.facts.nodes[j].name]
        base = s == j
        run = NONE if base else self.cols.column()
        self.runs[slot] = run
        if len(variants) == 1:
            self._spend(run, variants[0].cost.energy_j, variants[0].cost.time_s)
            return
        columns = [self.cols.column() for _ in variants]
        self.chosen[slot] = columns
        for col, v in zip(columns, variants, strict=True):
            self._spend(col, v.cost.energy_j, v.cost.time_s)
        terms = [(col, 1.0) for col in columns]
        if base:
            self.cols.row(1, 1, terms)
        else:
            self.cols.row(0, 0, [*terms, (run, -1.0)])

    def _tensor(self, track: Track) -> None:
        """X, P, O and c of one tensor, and its rows."""
        facts, cols = self.facts, self.cols
        t, page = track.name, self.costed.pages.get(track.name)
        events = len(track.slots)
        changed = facts.changed_at.get(t, ())
        track.stays = [cols.column() for _ in range(events - 1)]
        if track.persistent:
            track.across = cols.column()
        track.stays.append(track.across)
        if not events:
            if page is None:
                cols.lower[track.across] = 1.0
            else:
                cols.upper[track.across] = 0.0
            return
        may_leave = page is not None and (not track.persistent or bool(changed))
        if may_leave and page is not None and (track.persistent or events > 1):
            track.out = cols.column()
            self._spend(track.out, page.out.energy_j, page.out.time_s)
            factor = 2.0 if track.persistent else 1.0
            self.store_units.append((track.out, factor * page.sectors))
        from_store = page is not None and (track.out != NONE or track.persistent)
        if track.persistent and page is None:
            cols.lower[track.across] = 1.0
        track.born = self._born(track) if track.out != NONE else []
        there = [(track.out, 1.0), *((y, 1.0) for y in track.born)]
        """The store has a copy: written as a whole, or born there."""
        if track.persistent and track.out != NONE:
            cols.at_least(1, (track.across, 1.0), *there)
        if track.born and page is not None:
            factor = 2.0 if track.persistent else 1.0
            self.store_units += [(y, factor * page.sectors) for y in track.born]
            cols.at_most(1, *there)
            if track.persistent:
                cols.at_most(1, (track.across, 1.0), *((y, 1.0) for y in track.born))
            elif track.stays[0] != NONE:
                cols.at_most(1, (track.stays[0], 1.0), *((y, 1.0) for y in track.born))
        if track.persistent and self.costed.homes is not None:
            for col in track.stays if t in self.costed.homes else ():
                cols.lower[col] = 1.0
            if t not in self.costed.homes:
                cols.upper[track.across] = 0.0
        track.lands = [NONE] * events
        for e, slot in enumerate(track.slots):
            s, j = self.slots[slot]
            before, after = track.before(e), track.stays[e]
            run = self.runs[slot]
            # Changed and read again: it must not leave before, for the store's copy is of the next step.
            pinned = bool(changed) and s > changed[0]
            if track.makes[e]:
                if run != NONE:
                    cols.at_most(0, (after, 1.0), (before, -1.0), (run, -1.0))
                    cols.at_most(1, (run, 1.0), (before, 1.0))
                    if len(facts.makes[j]) == 1:
                        cols.at_most(0, (run, 1.0), (after, -1.0))
                continue
            if changed and e and slot > self.base[changed[0]]:
                cols.lower[before] = 1.0
            streams = self._streaming(slot, j, t) if not pinned else []
            if run == NONE and not streams:
                if not from_store or pinned:
                    cols.lower[before] = 1.0
                    continue
                assert page is not None
                self._spend(NONE, page.back.energy_j, page.back.time_s)
                self._spend(before, page.back.energy_j, page.back.time_s, -1.0)
                if track.out != NONE:
                    cols.at_least(1, (before, 1.0), *there)
                continue
            land = NONE
            if from_store and not pinned:
                assert page is not None
                land = track.lands[e] = cols.column()
                self._spend(land, page.back.energy_j, page.back.time_s)
                cols.at_most(1, (land, 1.0), (before, 1.0))
                if track.out != NONE:
                    cols.at_most(0, (land, 1.0), *((c, -f) for c, f in there))
                if run != NONE:
                    cols.at_most(0, (land, 1.0), (run, -1.0))
            ways = ((before, -1.0), (land, -1.0))
            if run == NONE:
                cols.at_most(-1, *ways, *((y, -1.0) for y in streams))
            else:
                cols.at_most(0, (run, 1.0), *ways, *((y, -1.0) for y in streams))
            if after != NONE:
                cols.at_most(0, (after, 1.0), *ways)
            for y in streams:
                if y in track.born:  # it changes the tensor: old copy read, new one written
                    if before != NONE:
                        cols.at_most(1, (y, 1.0), (before, 1.0))
                elif track.out != NONE:
                    cols.at_most(0, (y, 1.0), *((c, -f) for c, f in there))
                elif page is None:
                    cols.upper[y] = 0.0
            if track.persistent and track.out != NONE and before != NONE:
                cols.at_least(1, (before, 1.0), *there)  # never written back: never leaves

    def _streaming(self, slot: int, j: int, t: str) -> list[int]:
        """y of the variants that stream t at a slot."""
        variants = self.costed.variants[self.facts.nodes[j].name]
        return [y for y, v in zip(self.chosen.get(slot, ()), variants, strict=False) if t in v.streamed]

    def _born(self, track: Track) -> list[int]:
        """y of the variants that make (an activation) or change (a parameter) a tensor in the store."""
        facts, t = self.facts, track.name
        at = facts.changed_at.get(t, ()) if track.persistent else (facts.maker[t],)
        if track.persistent and len(at) > 1:  # changed twice: the second would read what is not committed
            for s in at:
                for y in self._streaming(self.base[s], s, t):
                    self.cols.upper[y] = 0.0
            return []
        for slot, (s, j) in enumerate(self.slots):
            if not track.persistent and j == at[0] and s != j:  # a recompute makes it in RAM
                for y in self._streaming(slot, j, t):
                    self.cols.upper[y] = 0.0
        return self._streaming(self.base[at[0]], at[0], t) if at else []

    # Memory rows

    def _bytes(self, slot: int, col: int, nbytes: int) -> None:
        if col != NONE and nbytes:
            self.entry_row.append(slot)
            self.entry_col.append(col)
            self.entry_bytes.append(nbytes)

    def _operate(self, slot: int, s: int, j: int) -> None:
        """Bytes of the op's operands, outputs and scratch while slot runs, and what in place saves."""
        facts, cols = self.facts, self.cols
        run, base = self.runs[slot], s == j
        variants: tuple[Variant, ...] = self.costed.variants[facts.nodes[j].name]
        if slot in self.chosen:
            for y, v in zip(self.chosen[slot], variants, strict=True):
                self._bytes(slot, y, aligned(v.workspace_bytes))
        elif base:
            self.constant[slot] += aligned(variants[0].workspace_bytes)
        else:
            self._bytes(slot, run, aligned(variants[0].workspace_bytes))
        for t in facts.reads[j]:
            track = self.tracks[t]
            e = track.at[slot]
            if base and not self._streaming(slot, j, t):
                self.constant[slot] += track.size
            else:
                self._bytes(slot, track.before(e), track.size)
                self._bytes(slot, track.lands[e], track.size)
        kept: list[tuple[int, float]] = []
        for t in facts.makes[j]:
            track = self.tracks[t]
            if base:
                self.constant[slot] += track.size
                for y in self._streaming(slot, j, t):
                    self._bytes(slot, y, -track.size)
            else:
                self._bytes(slot, run, track.size)
                if slot in track.at:
                    self._bytes(slot, track.before(track.at[slot]), track.size)
                    kept.append((track.stays[track.at[slot]], -1.0))
        if not base and len(facts.makes[j]) > 1:
            cols.at_most(0, (run, 1.0), *kept)  # a recompute that serves nobody is none
        self._in_place(slot, j, run)

    def _in_place(self, slot: int, j: int, run: int) -> None:
        cols = self.cols
        choices = []
        made = self.facts.nodes[j].outputs[:1]
        for t in self.facts.in_place[j]:
            track = self.tracks[t]
            stays = track.stays[track.at[slot]]
            streams = list(dict.fromkeys(y for u in (t, *made) for y in self._streaming(slot, j, u)))
            if stays == NONE and not streams:  # it dies here anyway
                if run == NONE:
                    self.constant[slot] -= track.size
                else:
                    self._bytes(slot, run, -track.size)
                return
            choices.append((t, stays, streams))
        if not choices:
            return
        for t, stays, streams in choices:
            z = self.takes[slot, t] = cols.column()
            cols.at_most(1, (z, 1.0), (stays, 1.0))
            if run != NONE:
                cols.at_most(0, (z, 1.0), (run, -1.0))
            for y in streams:
                cols.at_most(1, (z, 1.0), (y, 1.0))
            self._bytes(slot, z, -self.tracks[t].size)
        if len(choices) > 1:
            cols.at_most(1, *((self.takes[slot, t], 1.0) for t, _, _ in choices))

    def _covering(self) -> tuple[Ints, Ints, npt.NDArray[np.int64]]:
        """Entries of tensors that only wait: (slot, column, bytes) for every slot inside a gap."""
        first: list[int] = []
        last: list[int] = []
        col: list[int] = []
        size: list[int] = []
        for track in self.tracks.values():
            for e in range(len(track.slots) - 1):
                first.append(track.slots[e] + 1)
                last.append(track.slots[e + 1])
                col.append(track.stays[e])
                size.append(track.size)
            if track.persistent:
                ends = (track.slots[0], track.slots[-1] + 1) if track.slots else (len(self.slots),) * 2
                for a, b in ((0, ends[0]), (ends[1], len(self.slots))):
                    first.append(a)
                    last.append(b)
                    col.append(track.across)
                    size.append(track.size)
        length = np.array(last, np.int64) - np.array(first, np.int64)
        within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        return (
            (np.repeat(np.array(first, np.int64), length) + within).astype(np.int32),
            np.repeat(np.array(col, np.int32), length),
            np.repeat(np.array(size, np.int64), length),
        )

    def _arrays(self) -> Lp:
        cols = self.cols
        wait_row, wait_col, wait_bytes = self._covering()
        row = np.concatenate([np.array(self.entry_row, np.int32), wait_row])
        col = np.concatenate([np.array(self.entry_col, np.int32), wait_col])
        size = np.concatenate([np.array(self.entry_bytes, np.int64), wait_bytes])
        real = NONE
        peak = self.objective == "peak"
        if peak:
            real = cols.column(1.0, math.inf)
        columns = len(cols.cost)
        key, where = np.unique(row.astype(np.int64) * columns + col, return_inverse=True)
        total = np.zeros(len(key), np.int64)
        np.add.at(total, where, size)
        row, col = (key // columns).astype(np.int32), (key % columns).astype(np.int32)
        constant = np.array(self.constant, np.int64)
        unit = int(np.gcd.reduce(np.concatenate([np.abs(total), np.abs(constant)]))) or ALIGN
        unit = max(unit, 1)
        widest = constant.copy()
        np.add.at(widest, row, np.where(total > 0, total, 0))
        slots = len(self.slots)
        if peak:
            binds = np.ones(slots, bool)
        elif self.arena_bytes is None:
            binds = np.zeros(slots, bool)
        else:
            binds = widest > self.arena_bytes
        use = binds[row] & (total != 0)
        row, col, total = row[use], col[use], total[use]
        counts = np.bincount(row, minlength=slots)[binds]
        lo = np.full(int(binds.sum()), -np.inf)
        if peak:
            hi = -(constant / unit)
            ends = np.cumsum(counts)  # one more entry at each row's end: the peak itself
            index = np.insert(col, ends, real)
            value = np.insert(total / unit, ends, -1.0)
            counts = counts + 1
        else:
            budget = 0 if self.arena_bytes is None else self.arena_bytes
            hi = (np.floor_divide(budget - constant, unit) + 0.5)[binds]
            index, value = col, total / unit
        mem_start = len(cols.index) + np.cumsum(counts)
        price = np.array(cols.cost)
        if peak:
            self.scale, self.offset = float(unit), 0.0
        else:
            once = getattr(self.facts.compute, "energy_j" if self.objective == "energy" else "time_s")
            self.scale = (once or float(np.abs(price).sum()) or 1.0) / UNIT
            self.offset = cols.fixed_cost
            price = price / self.scale
        return Lp(
            price,
            np.array(cols.upper),
            np.array(cols.lower),
            np.concatenate([np.array(cols.start), mem_start]).astype(np.int32),
            np.concatenate([np.array(cols.index), index]).astype(np.int32),
            np.concatenate([np.array(cols.value), value]),
            np.concatenate([np.array(cols.lo), lo]),
            np.concatenate([np.array(cols.hi), hi]),
            real,
        )


def _merged(terms: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """Terms with one entry a column, those without a column left out."""
    table: dict[int, float] = {}
    for col, factor in terms:
        if col != NONE:
            table[col] = table.get(col, 0.0) + factor
    return [(c, f) for c, f in table.items() if f]


def _actions(model: GapModel, x: npt.NDArray[np.bool_]) -> tuple[tuple[Action, ...], tuple[str, ...]]:
    facts = model.facts

    def on(col: int) -> bool:
        return col != NONE and bool(x[col])

    home = tuple(t for t in facts.persistent if on(model.tracks[t].across))
    live = set(home)
    actions: list[Action] = []
    for slot, (s, j) in enumerate(model.slots):
        node = facts.nodes[j]
        if s == j or on(model.runs[slot]):
            variant = next((v for v, y in enumerate(model.chosen.get(slot, ())) if on(y)), 0)
            streamed = facts.costed.variants[node.name][variant].streamed
            for t in facts.reads[j]:
                if t not in live and t not in streamed:
                    actions.append(PageIn(t))
                    live.add(t)
            resident = not set(node.outputs[:1]) & set(streamed)
            dying = [
                t
                for t in facts.in_place[j]
                if resident
                and t in live
                and t not in streamed
                and not on(model.tracks[t].stays[model.tracks[t].at[slot]])
            ]
            in_place = dying[0] if dying else None
            actions.append(Compute(node.name, variant, in_place))
            live -= set(dying[:1])
            live |= set(facts.makes[j]) - set(streamed)
            if s == j:
                written = [t for t in facts.changes[j] if facts.changed_at[t][-1] == s]
                for t in (*facts.makes[j], *written):
                    if t in model.tracks and on(model.tracks[t].out):
                        actions.append(PageOut(t))
        for t in (*facts.reads[j], *facts.makes[j]):
            track = model.tracks[t]
            if t in live and not (slot in track.at and on(track.stays[track.at[slot]])):
                actions.append(Free(t))
                live.discard(t)
    return prune(facts.costed, actions), home


def _solution(model: GapModel, schedule: Schedule) -> Floats | None:
    facts = model.facts
    where = {pair: slot for slot, pair in enumerate(model.slots)}
    done: set[str] = set()
    stays: dict[str, list[tuple[int, int]]] = {}
    born: dict[str, int] = dict.fromkeys(schedule.resident, NONE)
    fresh: list[str] = []
    written: set[str] = set()
    ran: dict[int, Compute] = {}
    s, slot = 0, NONE
    for action in schedule.actions:
        match action:
            case Compute():
                j = facts.index[action.node]
                if action.node in done:
                    at = where.get((s, j))
                elif j == s:
                    at, s = where[s, s], s + 1
                else:
                    at = None  # another order than the base order
                if at is None or at <= slot:
                    return None
                slot = at
                ran[slot] = action
                done.add(action.node)
                born.update(dict.fromkeys(fresh, slot))
                fresh.clear()
                if action.in_place is not None:
                    stays.setdefault(action.in_place, []).append((born.pop(action.in_place), slot))
                streamed = facts.costed.variants[action.node][action.variant].streamed
                born.update(dict.fromkeys((t for t in facts.makes[j] if t not in streamed), slot))
            case PageIn():
                fresh.append(action.tensor)
            case PageOut():
                written.add(action.tensor)
            case Free():
                if action.tensor in fresh:
                    return None
                stays.setdefault(action.tensor, []).append((born.pop(action.tensor), slot))
    for t, b in born.items():
        stays.setdefault(t, []).append((b, len(model.slots)))
    x = np.zeros(model.lp.columns)

    def put(col: int, on: bool) -> bool:
        if col != NONE and on:
            x[col] = 1.0
        return col != NONE and on

    for slot in ran:
        put(model.runs[slot], True)
        for v, y in enumerate(model.chosen.get(slot, ())):
            put(y, v == ran[slot].variant)
        if ran[slot].in_place is not None:
            put(model.takes.get((slot, ran[slot].in_place or ""), NONE), True)
    for t, track in model.tracks.items():
        mine = stays.get(t, [])
        put(track.out, t in written)

        def covers(a: int, b: int, mine: list[tuple[int, int]] = mine) -> bool:
            return any(first <= a and last >= b for first, last in mine)

        there = False
        if track.persistent:
            end = len(model.slots)
            first, last = (track.slots[0], track.slots[-1]) if track.slots else (end, NONE)
            there = put(track.across, covers(NONE, first) and covers(last, end))
        for e, slot in enumerate(track.slots):
            executed = slot in ran
            if executed and not track.makes[e] and not there and track.lands[e] != NONE:
                streamed = facts.costed.variants[ran[slot].node][ran[slot].variant].streamed
                there = put(track.lands[e], t not in streamed)
            elif executed and track.makes[e]:
                there = t not in facts.costed.variants[ran[slot].node][ran[slot].variant].streamed
            there = there or (executed and not track.makes[e])
            if e < len(track.slots) - 1:
                there = put(track.stays[e], there and covers(slot, track.slots[e + 1]))
    if model.lp.real != NONE:
        return None
    return x


__all__ = ["GapModel", "Lp", "Objective", "build", "recomputes"]
