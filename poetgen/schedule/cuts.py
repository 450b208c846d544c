"""Cuts for the gap model: what is used must have come from somewhere. In: GapModel. Out: rows.

Take a time f, just after a slot, and a use of tensor n at a later slot k. Whatever is used at k was in RAM
at f, or was paged in since, or was recomputed since from operands of which the same holds:

    need(a) = X[a,f] + min(O[a], sum of P[a,g], f < g <= k) + rec(a)
    rec(a)  = min(sum of R[a,tau], f < tau < k; need(b) of each operand b of a's node)
    cut:      need(n) >= 1 at a base slot k;  need(n) >= R[k] at a recompute slot

Each min may be taken either way, so a cut is a path from n back through its ancestors. An integer point
in which the path sums to 0 has no way to n: every cut holds in every schedule, whatever the budget,
deadline or objective. The relaxation, though, collects a tensor from shares (a sixth of a write, read six
times); these rows forbid that. At a base slot P = 1 - X of the gap before it, as in gaps.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from poetgen.schedule.gaps import NONE, Floats, GapModel

VIOLATION = 0.02
"""How far a relaxed solution must be beyond a cut for the cut to be worth a row."""


@dataclass(frozen=True)
class Row:
    """``sum of factors x columns >= low``."""

    columns: tuple[int, ...]
    factors: tuple[float, ...]
    low: float


@dataclass(eq=False)
class Cuts:
    """What separation needs of a model, in plain arrays that a worker process can be given."""

    covers: npt.NDArray[np.int64]
    """[tensor, slot]: the column that says whether the tensor is in RAM just after the slot."""
    out: list[int]
    """[tensor]: O; NONE where no write is needed or none is possible."""
    free: list[bool]
    """[tensor]: may it be paged in without having been written in this step?"""
    pages: list[list[tuple[int, int, int]]]
    """[tensor]: (slot, P, NONE), or (slot, NONE, X before it) at a base slot."""
    remakes: list[list[tuple[int, int]]]
    """[tensor]: (slot, R) of the recomputes that make it."""
    operands: list[list[int]]
    """[tensor]: the arena's operands of its maker."""
    first: list[int]
    """[tensor]: the base slot that makes it, 0 for what persists."""
    uses: list[tuple[int, int, list[int]]]
    """(slot, R or NONE, tensors read there)."""
    order: list[int]
    """Tensors so that operands come first."""
    known: set[tuple[tuple[int, ...], tuple[float, ...]]] = field(default_factory=set)

    def separate(self, x: Floats) -> list[Row]:
        """For each use the cut that x violates most, if it is worth a row and not a row yet."""
        wide = np.append(x, 0.0)
        there = wide[self.covers]
        slots = self.covers.shape[1]
        paged = np.zeros_like(there)
        for t, events in enumerate(self.pages):
            for slot, land, before in events:
                paged[t, slot] = x[land] if land != NONE else 1.0 - x[before]
        paged = np.cumsum(paged, axis=1)
        remade: dict[int, Floats] = {}
        for t, runs in enumerate(self.remakes):
            amount = np.zeros(slots)
            for slot, run in runs:
                amount[slot] = x[run]
            if amount.sum() > 1e-9:
                remade[t] = np.cumsum(amount)
        rows: list[Row] = []
        for k, run, tensors in self.uses:
            wanted = 1.0 if run == NONE else float(x[run])
            if wanted < VIOLATION:
                continue
            need: dict[int, Floats] = {}
            for t in self._ancestors(tensors, remade):
                pg = paged[t, k] - paged[t, :k]
                if not self.free[t]:
                    pg = np.minimum(pg, x[self.out[t]] if self.out[t] != NONE else 0.0)
                total = there[t, :k] + pg
                if t in remade:
                    rec = remade[t][k - 1] - remade[t][:k]
                    for b in self.operands[t]:
                        rec = np.minimum(rec, need[b])
                    total = total + rec
                need[t] = total
            for t in tensors:
                low = self.first[t]
                if low >= k:
                    continue
                f = low + int(np.argmin(need[t][low:]))
                if wanted - need[t][f] >= VIOLATION:
                    row = self._row(t, f, k, run, x, paged, remade, need)
                    key = (row.columns, row.factors)
                    if key not in self.known:
                        self.known.add(key)
                        rows.append(row)
        return rows

    def _ancestors(self, tensors: list[int], remade: dict[int, Floats]) -> list[int]:
        """The tensors that a path from these may go through, operands first."""
        found: set[int] = set()
        stack = list(tensors)
        while stack:
            t = stack.pop()
            if t not in found:
                found.add(t)
                stack += self.operands[t] if t in remade else []
        return [t for t in self.order if t in found] if len(found) > 1 else list(found)

    def _row(
        self,
        t: int,
        f: int,
        k: int,
        run: int,
        x: Floats,
        paged: Floats,
        remade: dict[int, Floats],
        need: dict[int, Floats],
    ) -> Row:
        terms: dict[int, float] = {}
        constant = 0.0

        def add(col: int, factor: float = 1.0) -> None:
            if col != NONE:
                terms[col] = terms.get(col, 0.0) + factor

        at: int | None = t
        while at is not None:
            add(int(self.covers[at, f]) if self.covers[at, f] < len(x) else NONE)
            pages = float(paged[at, k] - paged[at, f])
            written = x[self.out[at]] if self.out[at] != NONE else 0.0
            if not self.free[at] and written <= pages:
                add(self.out[at])
            else:
                for slot, land, before in self.pages[at]:
                    if f < slot <= k:
                        add(land)
                        if land == NONE:
                            constant += 1.0
                            add(before, -1.0)
            through = None
            if self.remakes[at]:
                again = float(remade[at][k - 1] - remade[at][f]) if at in remade else 0.0
                operands = self.operands[at] if at in remade else []
                through = min(operands, key=lambda b: (need[b][f], b), default=None)
                if through is None or again <= need[through][f]:
                    through = None
                    for slot, col in self.remakes[at]:
                        if f < slot < k:
                            add(col)
            at = through
        low = 1.0 - constant
        if run != NONE:
            low -= 1.0
            add(run, -1.0)
        items = sorted((c, v) for c, v in terms.items() if v)
        return Row(tuple(c for c, _ in items), tuple(v for _, v in items), low)


def cuts(model: GapModel) -> Cuts | None:
    """The cuts of a model; None where some node has several variants (streaming: not worked out)."""
    if model.chosen:
        return None
    facts, slots = model.facts, len(model.slots)
    names = list(model.tracks)
    number = {t: i for i, t in enumerate(names)}
    runs_of: dict[int, list[tuple[int, int]]] = {}
    base: dict[int, int] = {}
    uses = []
    for slot, (s, j) in enumerate(model.slots):
        if s == j:
            base[s] = slot
        else:
            runs_of.setdefault(j, []).append((slot, model.runs[slot]))
        if facts.reads[j]:
            uses.append((slot, model.runs[slot], [number[t] for t in facts.reads[j]]))
    absent = model.lp.columns
    covers = np.full((len(names), slots), absent, np.int64)
    pages: list[list[tuple[int, int, int]]] = []
    for i, track in enumerate(model.tracks.values()):
        events: list[tuple[int, int, int]] = []
        if track.persistent:
            covers[i, :] = track.across if track.across != NONE else absent
        for e, slot in enumerate(track.slots):
            after = track.stays[e]
            covers[i, slot:] = after if after != NONE else absent
            if track.makes[e]:
                continue
            if track.lands[e] != NONE:
                events.append((slot, track.lands[e], NONE))
            elif model.runs[slot] == NONE and track.before(e) != NONE:
                events.append((slot, NONE, track.before(e)))
        pages.append(events)
    maker = [facts.maker.get(t) for t in names]
    changed = facts.changed_at
    return Cuts(
        covers,
        [track.out for track in model.tracks.values()],
        [track.persistent and t not in changed for t, track in model.tracks.items()],
        pages,
        [runs_of.get(j, []) if j is not None else [] for j in maker],
        [[] if j is None else [number[b] for b in facts.reads[j]] for j in maker],
        [0 if j is None else base[j] for j in maker],
        uses,
        sorted(range(len(names)), key=lambda i: -1 if maker[i] is None else int(maker[i] or 0)),
    )
