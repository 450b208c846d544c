"""The judge of schedules. In: Schedule. Out: Verdict, or BrokenSchedule naming the first broken rule.

It replays the actions, holding for each tensor whether it is in RAM, whether the store has a copy that
may be read, and how often it was changed; it adds up bytes, joules and seconds from their definitions
and knows nothing of how a schedule was found.

The yardstick is the graph run in its own order with everything in RAM. A schedule is right if each
node runs once, each run (the first, or a recompute) reads the values that it reads there, and at the
end every change is in RAM or in the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from poetgen.cost import PageCost, Variant, aligned
from poetgen.errors import PoetgenError
from poetgen.graph import Node
from poetgen.schedule.actions import Compute, Free, Move, PageIn, PageOut, Schedule


class BrokenSchedule(PoetgenError):
    """A schedule breaks ``rule`` at action number ``action`` (-1: before the first)."""

    def __init__(self, rule: str, action: int, message: str) -> None:
        super().__init__(f"schedule breaks rule {rule} at action {action}: {message}")
        self.rule = rule
        self.action = action


@dataclass(frozen=True)
class Verdict:
    """What a legal schedule needs and does in one training step.

    ``bytes_at[k]`` is what action k occupies while it runs, workspace included; its largest is
    ``peak_bytes``, at action ``peak_action``, made of ``at_peak``.
    """

    peak_bytes: int
    peak_action: int
    at_peak: tuple[tuple[str, int], ...]
    energy_j: float
    time_s: float
    pages_in: int
    pages_out: int
    page_bytes_in: int
    page_bytes_out: int
    recomputes: int
    bytes_at: tuple[int, ...]


WORKSPACE = "workspace"
"""Name under which a node's scratch bytes stand in ``Verdict.at_peak``."""


def check(schedule: Schedule) -> Verdict:
    """Replay a schedule; raises BrokenSchedule for the first rule it breaks."""
    return _Replay(schedule).run()


@dataclass
class _Run:
    """One execution of a node, to see that a recompute serves somebody."""

    node: str
    again: bool
    live: set[str]
    read: bool = False


@dataclass
class _Replay:
    schedule: Schedule
    at: int = -1
    live: dict[str, int] = field(default_factory=dict)
    """Bytes of each tensor in RAM."""
    changes: dict[str, int] = field(default_factory=dict)
    """How often a persistent tensor was changed in this step."""
    copy: dict[str, int] = field(default_factory=dict)
    """Number of changes in the store's newest copy of a tensor."""
    runs: dict[str, int] = field(default_factory=dict)
    landed: set[str] = field(default_factory=set)
    """Paged in and not read yet."""
    maker: dict[str, _Run] = field(default_factory=dict)
    unread_copy: dict[str, int] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    """Tensors that a node has made in this step."""
    paged: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        costed = self.costed = self.schedule.costed
        graph = self.graph = costed.training
        self.budget = costed.arena_budget_bytes
        self.produced_by = {o: n.name for n in graph.nodes for o in n.outputs}
        # The version that each node reads when the graph runs in its own order.
        seen: dict[str, int] = {}
        self.reads_version: dict[tuple[str, str], int] = {}
        for n in graph.nodes:
            for t in n.inputs:
                self.reads_version[n.name, t] = seen.get(t, 0)
            for t in dict.fromkeys(n.mutates):
                seen[t] = seen.get(t, 0) + 1
        self.final = seen
        self.updates_of: dict[str, list[str]] = {}
        for h in graph.hazards:
            self.updates_of.setdefault(h.reader, []).append(h.update)
        self.energy_j = self.time_s = 0.0
        self.pages_in = self.pages_out = self.sectors_in = self.sectors_out = self.recomputes = 0
        self.streamed_in = self.streamed_out = 0
        self.bytes_at: list[int] = []
        self.peak: tuple[int, int, tuple[tuple[str, int], ...]] = (-1, -1, ())

    # The replay

    def run(self) -> Verdict:
        self.begin()
        for self.at, action in enumerate(self.schedule.actions):
            match action:
                case Compute():
                    self.compute(action)
                case Free():
                    self.free(action.tensor)
                case PageOut():
                    self.page_out(action.tensor)
                case PageIn():
                    self.page_in(action.tensor)
                case Move():
                    self.present(action.tensor, "move")
                    self.bytes_at.append(self.resident_bytes)
                case _:
                    self.fail("unknown_action", f"{action!r} is no action")
        self.at = len(self.schedule.actions)
        self.end()
        sector = self.costed.board.store.sector_bytes if self.costed.board.store else 0
        peak_bytes, peak_action, at_peak = self.peak
        return Verdict(
            max(0, peak_bytes),
            peak_action,
            tuple(at_peak),
            self.energy_j,
            self.time_s,
            self.pages_in,
            self.pages_out,
            self.sectors_in * sector + self.streamed_in,
            self.sectors_out * sector + self.streamed_out,
            self.recomputes,
            tuple(self.bytes_at),
        )

    def begin(self) -> None:
        resident = self.schedule.resident
        for t in resident:
            self.known(t)
            if not self.graph.tensors[t].persistent:
                self.fail("resident_not_persistent", f"{t} does not live on between training steps")
            if resident.count(t) > 1:
                self.fail("resident_twice", f"{t} is named twice among the resident tensors")
            self.live[t] = self.bytes_of(t)
        homes = self.costed.homes
        if homes is not None and set(resident) != homes:
            odd = min(set(resident) ^ homes)
            self.fail("home", f"{odd} is {'not ' * (odd in homes)}in RAM between steps, against its home")
        # The store has what the step before left there: a change that is not written back in this
        # step is not written back in any, so the copy from before the step is not there either.
        changes: dict[str, int] = {}
        back: set[str] = set()
        for action in self.schedule.actions:
            if isinstance(action, Compute) and action.node in self.graph.node:
                for t in dict.fromkeys(self.graph.node[action.node].mutates):
                    changes[t] = changes.get(t, 0) + 1
                    if t in self.streamed(action) and changes[t] == self.final[t]:
                        back.add(t)
            elif isinstance(action, PageOut) and changes.get(action.tensor) == self.final.get(action.tensor):
                back.add(action.tensor)
        for tensor in self.graph.tensors.values():
            t = tensor.name
            if tensor.persistent and (t in back or t not in self.final):
                self.copy[t] = 0
            if tensor.persistent and t not in resident and t not in self.costed.pages:
                self.fail("no_home", f"{t} is neither in RAM between steps nor in a page store")
        self.occupy("ram_start", "before the first action", self.live.items(), record=False)

    def compute(self, action: Compute) -> None:
        if action.node not in self.graph.node:
            self.fail("unknown_node", f"the graph has no node {action.node}")
        node = self.graph.node[action.node]
        variants = self.costed.variants[node.name]
        if not 0 <= action.variant < len(variants):
            self.fail(
                "unknown_variant", f"{node.name} has {len(variants)} variants, not number {action.variant}"
            )
        variant = variants[action.variant]
        again = self.runs.get(node.name, 0) > 0
        if again:
            self.rerun_allowed(node)
        for u in self.updates_of.get(node.name, ()):
            if self.runs.get(u):
                self.fail("hazard", f"{node.name} runs after {u}, which changed what it reads")
        for t in node.reads:
            self.operand(node, t, variant)
        outputs = [o for o in dict.fromkeys(node.outputs) if self.graph.tensors[o].in_arena]
        for o in outputs:
            if o in self.live:
                self.fail("output_resident", f"{node.name} would make {o}, which is in RAM already")
            if o in variant.streamed and o in self.copy:
                self.fail("stream_out_twice", f"{node.name} would stream out {o}, which the store has")
        for t in node.mutates:
            if t in variant.streamed and t in self.live:
                self.fail("stream_update_resident", f"{node.name} changes {t} in the store, RAM has it too")
        if action.in_place is not None:
            self.in_place_allowed(node, action.in_place, variant)

        for t in node.reads:
            self.note_read(t)
        new = {o: self.bytes_of(o) for o in outputs if o not in variant.streamed}
        during = {**self.live, **new}
        if action.in_place is not None:
            del during[action.in_place]  # its bytes are the output's from here
        workspace = aligned(variant.workspace_bytes)
        self.occupy("ram_compute", f"{node.name}", during.items())
        if workspace:
            self.occupy(
                "ram_workspace", f"{node.name}", (*during.items(), (WORKSPACE, workspace)), again=True
            )
        if action.in_place is not None:
            self.drop(action.in_place)
        run = _Run(node.name, again, set(new))
        for o, size in new.items():
            self.live[o] = size
            self.maker[o] = run
        self.written.update(node.outputs)
        for t in dict.fromkeys(node.mutates):
            self.changes[t] = self.changes.get(t, 0) + 1
            if t in variant.streamed:
                self.copy[t] = self.changes[t]
        for o in outputs:
            if o in variant.streamed:
                self.copy[o] = 0
                if self.graph.readers[o]:
                    self.unread_copy[o] = self.at
        self.stream(variant)
        self.runs[node.name] = self.runs.get(node.name, 0) + 1
        self.recomputes += again
        self.spend(variant.cost.time_s, variant.cost.energy_j)

    def streamed(self, action: Compute) -> tuple[str, ...]:
        """What a variant streams; nothing for one that does not exist."""
        variants = self.costed.variants[action.node]
        return variants[action.variant].streamed if 0 <= action.variant < len(variants) else ()

    def stream(self, variant: Variant) -> None:
        """Count what a streamed variant moves."""
        for t in variant.streamed:
            if t in self.costed.pages:
                self.paged.add(t)
            elif self.graph.tensors[t].in_arena:
                self.fail("not_pageable", f"{t} has no place in the page store")
        if variant.stream is not None:
            self.streamed_in += variant.stream.bytes_in
            self.streamed_out += variant.stream.bytes_out

    def free(self, t: str) -> None:
        self.present(t, "free")
        if t in (self.costed.homes or ()):
            self.fail("home_left", f"{t} has its home in RAM and is freed")
        if self.changes.get(t, 0) and self.copy.get(t, -1) != self.changes[t]:
            self.fail("lost_update", f"{t} is freed after its update and before it is written back")
        self.bytes_at.append(self.resident_bytes)
        self.drop(t)

    def page_out(self, t: str) -> None:
        page = self.page(t)
        self.present(t, "page_out")
        if self.graph.tensors[t].persistent:
            if t not in self.final:
                self.fail("page_out_unchanged", f"{t} never changes: the store has it")
            if self.changes.get(t, 0) < self.final[t]:
                self.fail("page_out_early", f"{t} is written back before its update")
        if t in self.copy and self.copy[t] == self.changes.get(t, 0):
            self.fail("page_out_twice", f"the store has this {t} already")
        self.copy[t] = self.changes.get(t, 0)
        if not self.graph.tensors[t].persistent:
            self.unread_copy[t] = self.at
            self.note_read(t)
        self.bytes_at.append(self.resident_bytes)
        self.pages_out += 1
        self.sectors_out += page.sectors
        self.spend(page.out.time_s, page.out.energy_j)

    def page_in(self, t: str) -> None:
        page = self.page(t)
        if t in self.live:
            self.fail("page_in_resident", f"{t} is in RAM already")
        self.readable(t, "page_in", f"paging in {t}")
        self.live[t] = self.bytes_of(t)
        self.landed.add(t)
        self.occupy("ram_page_in", f"the landing of {t}", self.live.items())
        self.pages_in += 1
        self.sectors_in += page.sectors
        self.spend(page.back.time_s, page.back.energy_j)

    def end(self) -> None:
        for n in self.graph.nodes:
            if n.name not in self.runs:
                self.fail("node_missing", f"{n.name} never runs")
        for t in self.live:
            if not self.graph.tensors[t].persistent:
                self.fail("left_in_ram", f"{t} is in RAM when the step ends")
            if t not in self.schedule.resident:
                self.fail("resident_gained", f"{t} ends the step in RAM and did not begin it there")
            if t in self.landed:
                self.fail("page_in_unread", f"{t} was paged in and nobody reads it")
        for t in self.schedule.resident:
            if t not in self.live:
                self.fail("resident_lost", f"{t} begins the step in RAM and does not end it there")
        for t, at in self.unread_copy.items():
            self.at = at
            self.fail("page_out_unread", f"{t} is written to the store and nobody reads it from there")
        self.at = len(self.schedule.actions)
        self.store_space()
        limit = self.costed.budget.time_s
        if limit is not None and self.time_s > limit * (1 + 1e-9):
            self.fail("deadline", f"the step takes {self.time_s:.6g} s, the deadline is {limit:.6g} s")
        solved = self.schedule.solved
        if abs(solved.energy_j - self.energy_j) > 1e-6 * max(self.energy_j, 1e-300):
            self.fail("energy_claim", f"it claims {solved.energy_j:.9g} J and takes {self.energy_j:.9g} J")
        if solved.bound_j is not None and solved.bound_j > self.energy_j * (1 + 1e-6):
            self.fail("bound_claim", f"its bound {solved.bound_j:.9g} J is above its {self.energy_j:.9g} J")

    # The rules, one by one

    def rerun_allowed(self, node: Node) -> None:
        if node.mutates:
            self.fail("update_twice", f"{node.name} would change {', '.join(node.mutates)} a second time")
        if not node.op.recomputable:
            self.fail("not_recomputable", f"{node.name} is no pure function of its operands")

    def operand(self, node: Node, t: str, variant: Variant) -> None:
        tensor = self.graph.tensors[t]
        want, have = self.reads_version[node.name, t], self.changes.get(t, 0)
        if want < have:
            self.fail("hazard", f"{node.name} reads {t}, which an update has changed")
        if want > have:
            self.fail("too_early", f"{node.name} reads {t} before the update it waits for")
        if not tensor.in_arena:
            if t in self.produced_by and t not in self.written:
                self.fail("not_produced", f"{node.name} reads {t}, which no node has made yet")
        elif t in variant.streamed:
            self.readable(t, "stream", f"{node.name} streams {t}")
            self.unread_copy.pop(t, None)
        elif t not in self.live:
            made = tensor.persistent or t in self.written
            rule, why = ("operand_absent", "is not in RAM") if made else ("not_produced", "no node has made")
            self.fail(rule, f"{node.name} reads {t}, which {why}")

    def in_place_allowed(self, node: Node, t: str, variant: Variant) -> None:
        op, tensor = node.op, self.graph.tensors.get(t)
        if t not in node.inputs or tensor is None:
            self.fail("in_place_no_operand", f"{node.name} does not read {t}")
        if tensor.persistent:
            self.fail("in_place_persistent", f"{node.name} would overwrite {t}, which lives on")
        if not tensor.in_arena:
            self.fail("in_place_not_ours", f"{node.name} would overwrite {t}, which is not the arena's")
        if t in variant.streamed:
            self.fail("in_place_streamed", f"{node.name} streams {t} and cannot take its bytes")
        allowed = {*op.in_place, *(() if op.continues is None else (op.continues,))}
        at = {i for i, name in enumerate(node.inputs) if name == t}
        if not at & allowed:
            self.fail("in_place_not_allowed", f"{node.name} cannot write over its operand {t}")
        if at - allowed:
            self.fail("in_place_read_twice", f"{node.name} reads {t} twice, once where it must not change")
        if node.outputs and node.outputs[0] in variant.streamed:
            self.fail("in_place_streamed", f"{node.name} streams out {node.outputs[0]}")
        if not node.outputs or not self.graph.tensors[node.outputs[0]].in_arena:
            self.fail("in_place_no_output", f"{node.name} makes nothing that could take {t}'s bytes")
        if self.bytes_of(node.outputs[0]) != self.bytes_of(t):
            self.fail(
                "in_place_size",
                f"{node.name}: {node.outputs[0]} has {self.bytes_of(node.outputs[0])} bytes,"
                f" {t} has {self.bytes_of(t)}",
            )

    def readable(self, t: str, rule: str, what: str) -> None:
        """Is there a copy in the store that may be read now?"""
        if self.graph.tensors[t].persistent and self.changes.get(t, 0):
            self.fail(f"{rule}_uncommitted", f"{what}: its update is in the store only when the step commits")
        if t not in self.copy:
            if self.graph.tensors[t].persistent:
                self.fail(f"{rule}_stale", f"{what}: it changes in RAM and is never written back")
            self.fail(f"{rule}_no_copy", f"{what}: it was not paged out in this step")

    def page(self, t: str) -> PageCost:
        self.known(t)
        if self.costed.board.store is None:
            self.fail("no_store", f"board {self.costed.board.name} has no page store for {t}")
        if t not in self.costed.pages:
            self.fail("not_pageable", f"{t} has no place in the page store")
        self.paged.add(t)
        return self.costed.pages[t]

    def store_space(self) -> None:
        store = self.costed.board.store
        if store is None:
            return
        homed = {
            t.name
            for t in self.graph.tensors.values()
            if t.persistent and t.name not in self.schedule.resident and t.name in self.costed.pages
        }
        used = sum(
            self.costed.pages[t].sectors * (2 if t in self.final else 1)  # a changed tensor has two slots
            for t in sorted(self.paged | homed)
        )
        if used * store.sector_bytes > store.size_bytes:
            self.fail(
                "store_full",
                f"pages take {used * store.sector_bytes} bytes of {store.size_bytes} in the store",
            )

    # Bookkeeping

    @property
    def resident_bytes(self) -> int:
        return sum(self.live.values())

    def bytes_of(self, t: str) -> int:
        return self.costed.nbytes(t)

    def known(self, t: str) -> None:
        if t not in self.graph.tensors:
            self.fail("unknown_tensor", f"the graph has no tensor {t}")

    def present(self, t: str, verb: str) -> None:
        self.known(t)
        if not self.graph.tensors[t].in_arena:
            self.fail(f"{verb}_not_ours", f"{t} is not the arena's")
        if t not in self.live:
            self.fail(f"{verb}_absent", f"{t} is not in RAM")

    def note_read(self, t: str) -> None:
        if t in self.landed:
            self.landed.discard(t)
            self.unread_copy.pop(t, None)
        if t in self.maker:
            self.maker[t].read = True

    def drop(self, t: str) -> None:
        if t in self.landed:
            self.fail("page_in_unread", f"{t} was paged in and nobody read it")
        del self.live[t]
        run = self.maker.pop(t, None)
        if run is not None:
            run.live.discard(t)
            if run.again and not run.live and not run.read:
                self.fail("recompute_unread", f"{run.node} was recomputed and nobody read what it made")

    def occupy(
        self,
        rule: str,
        who: str,
        parts: Iterable[tuple[str, int]],
        *,
        record: bool = True,
        again: bool = False,
    ) -> None:
        """Count the bytes of ``parts``; ``again`` replaces what this action was counted with before."""
        table = tuple(parts)
        size = sum(n for _, n in table)
        if record and again:
            self.bytes_at[-1] = size
        elif record:
            self.bytes_at.append(size)
        if size > self.peak[0]:
            self.peak = (size, self.at, table)
        if self.budget is not None and size > self.budget:
            self.fail(rule, f"{who} needs {size} bytes, the arena has {self.budget}")

    def spend(self, time_s: float, energy_j: float) -> None:
        self.time_s += time_s
        self.energy_j += energy_j

    def fail(self, rule: str, message: str) -> NoReturn:
        raise BrokenSchedule(rule, self.at, message)
