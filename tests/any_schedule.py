"""Any legal schedule: a random walk over a costed graph that keeps, frees, pages, recomputes at whim.

Order of nodes, homes of persistent tensors, what is copied out, dropped, brought back early or late, and
whose bytes are taken: all of it is drawn. The judge of schedules has the last word.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from poetgen.cost import Budget, CostedGraph
from poetgen.graph import Node
from poetgen.schedule import Action, Compute, Free, PageIn, PageOut, Schedule, Solved, check
from poetgen.schedule.actions import total
from poetgen.schedule.facts import Facts, prune


class LostError(Exception):
    """A tensor was dropped and cannot be had again."""

    def __init__(self, tensor: str) -> None:
        super().__init__(tensor)
        self.tensor = tensor


def any_schedule(costed: CostedGraph, seed: int) -> Schedule:
    """The schedule of a seed; what a walk has lost for good, the next one does not drop without a copy."""
    keep: set[str] = set()
    while True:
        walk = _Walk(costed, random.Random(seed), frozenset(keep))
        try:
            walk.run()
        except LostError as lost:
            assert lost.tensor not in keep, f"{lost.tensor} was kept and lost"
            keep.add(lost.tensor)
            continue
        actions = prune(costed, walk.useful())
        solved = Solved("baseline", total(costed, actions).energy_j, None, 9, 0.0, "random")
        return Schedule(costed, actions, walk.resident, solved, "milp")


def tightened(schedule: Schedule) -> Schedule:
    """The same within a budget of exactly what it needs."""
    costed = schedule.costed
    budget = Budget(costed.static_bytes + check(schedule).peak_bytes)
    return replace(schedule, costed=replace(costed, budget=budget))


@dataclass
class _Walk:
    costed: CostedGraph
    rng: random.Random
    keep: frozenset[str]
    """Not given up before the end unless the store has a copy."""
    actions: list[Action] = field(default_factory=list)
    live: list[str] = field(default_factory=list)
    copied: set[str] = field(default_factory=set)
    """The store has it, as it is now."""
    changes: dict[str, int] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)
    """Brought back and not read yet."""
    streamed_out: set[str] = field(default_factory=set)
    """Made in the store."""
    locked: list[str] = field(default_factory=list)
    """Operands of the nodes that are being made ready."""

    def __post_init__(self) -> None:
        rng = self.rng
        self.graph = self.costed.training
        self.facts = Facts(self.costed)
        share = {k: rng.choice((0.0, 0.1, 0.3, 0.7)) for k in ("page", "drop", "early", "order")}
        share["stream"] = rng.choice((0.3, 1.0))
        share["in place"] = rng.choice((0.0, 0.5, 1.0))
        self.share = share
        persistent = self.facts.persistent
        at_home = rng.choice((0.0, 0.3, 0.7, 1.0))
        self.resident = tuple(t for t in persistent if rng.random() < at_home)
        goes = rng.choice((0.0, 0.3, 1.0))
        # A resident tensor that leaves within the step is written back, so the store has it at the start.
        self.leavers = {t for t in self.resident if rng.random() < goes}
        self.live = list(self.resident)
        self.copied = (set(persistent) - set(self.resident)) | self.leavers
        self.todo = list(self.graph.nodes)
        self.readers_left = {t: len(readers) for t, readers in self.graph.readers.items()}
        self.version: dict[tuple[str, str], int] = {}
        self.final: dict[str, int] = {}
        for n in self.graph.nodes:
            self.version.update(((n.name, t), self.final.get(t, 0)) for t in n.inputs)
            for t in n.mutates:
                self.final[t] = self.final.get(t, 0) + 1

    def run(self) -> None:
        while self.todo:
            ready = (n for n in self.todo if self.may_begin(n))
            node = self.rng.choice([*ready]) if self.chance("order") else next(ready)
            self.todo.remove(node)
            for t in node.reads:
                self.readers_left[t] -= 1
            self.execute(node)
            for t in [*self.live]:
                self.whim(t)
        for t in [*self.live]:
            self.write_back(t)
            if t not in self.resident:
                self.free(t)

    def useful(self) -> list[Action]:
        """Without write-backs of what turned out never to leave: its home is RAM."""
        left = {a.tensor for a in self.actions if isinstance(a, Free)}
        stays = {t for t in self.resident if t not in left}
        return [a for a in self.actions if not (isinstance(a, PageOut) and a.tensor in stays)]

    # Which node next

    def may_begin(self, node: Node) -> bool:
        makers = [self.graph.producer[t] for t in node.inputs if t in self.graph.producer]
        if not all(m.name in self.ran for m in makers) or not self.same_values(node):
            return False
        return not any(
            self.version[other.name, t] == self.changes.get(t, 0)
            for t in dict.fromkeys(node.mutates)
            for other in self.graph.readers[t]
            if other is not node and other.name not in self.ran
        )

    def same_values(self, node: Node) -> bool:
        return all(self.version[node.name, t] == self.changes.get(t, 0) for t in node.inputs)

    def may_rerun(self, node: Node) -> bool:
        late = any(h.update in self.ran for h in self.graph.hazards if h.reader == node.name)
        if self.streamed_out & {*node.outputs}:
            return False  # its place in the store is taken, and that copy is to be read
        return node.op.recomputable and not node.mutates and not late and self.same_values(node)

    # One node

    def execute(self, node: Node) -> None:
        variant = self.variant(node)
        streamed = self.costed.variants[node.name][variant].streamed
        operands = [t for t in node.reads if self.graph.tensors[t].in_arena and t not in streamed]
        self.locked += operands
        for t in self.shuffled(operands):
            if t not in self.live:
                self.fetch(t)
        self.unread.difference_update(node.reads)
        for t in operands:
            self.locked.remove(t)
        takes = [t for t in self.facts.in_place[self.facts.index[node.name]] if self.may_go(t)]
        if streamed:
            takes = [t for t in takes if t not in streamed and node.outputs[0] not in streamed]
        in_place = self.rng.choice(takes) if takes and self.chance("in place") else None
        self.actions.append(Compute(node.name, variant, in_place))
        if in_place is not None:
            self.live.remove(in_place)
        made = [t for t in node.outputs if self.graph.tensors[t].in_arena]
        self.live += [t for t in made if t not in streamed]
        for t in dict.fromkeys(node.mutates):
            self.changes[t] = self.changes.get(t, 0) + 1
            self.copied.discard(t)
        kept = {t for t in (*node.mutates, *made) if t in streamed}
        self.copied |= kept
        self.streamed_out |= kept
        self.ran.add(node.name)

    def variant(self, node: Node) -> int:
        """One of the ways to run a node that the store's copies allow."""
        variants = self.costed.variants[node.name]
        allowed = [v for v in range(len(variants)) if self.may_stream(node, variants[v].streamed)]
        streams = [v for v in allowed if variants[v].streamed]
        return self.rng.choice(streams if streams and self.chance("stream") else [allowed[0]])

    def may_stream(self, node: Node, streamed: tuple[str, ...]) -> bool:
        if any(t in streamed for t in node.outputs) and node.name in self.ran:
            return False  # the store has it
        for t in streamed:
            if t in node.inputs and (t in self.resident or t not in self.copied or self.changes.get(t)):
                return False
            if t in node.mutates and (t in self.live or self.final[t] > 1):
                return False
        return True

    def fetch(self, t: str) -> None:
        """Bring a tensor back, from the store or by computing it again."""
        maker = self.graph.producer.get(t)
        siblings = [] if maker is None else [o for o in maker.outputs if o in self.live]
        again = maker is not None and self.may_rerun(maker) and all(map(self.may_go, siblings))
        if t in self.copied and not (again and self.rng.random() < 0.3):
            self.actions.append(PageIn(t))
            self.live.append(t)
        elif maker is not None and again:
            for o in siblings:
                self.free(o)
            self.execute(maker)
        else:
            raise LostError(t)
        self.unread.add(t)

    # Between nodes

    def whim(self, t: str) -> None:
        """Write a tensor out, give it up, or bring another back before it is asked for."""
        if self.chance("early"):
            absent = [o for o in self.copied if o not in self.live and self.wanted(o)]
            if absent:
                early = self.rng.choice(sorted(absent))
                self.actions.append(PageIn(early))
                self.live.append(early)
                self.unread.add(early)
        if self.rng.random() < 0.7:
            self.write_back(t)
        if self.graph.tensors[t].kind == "act" and t not in self.copied and self.chance("page"):
            self.copied.add(t)
            self.actions.append(PageOut(t))
        done = not self.wanted(t) and not self.graph.tensors[t].persistent
        gone = self.rng.random() < 0.8 if done else self.chance("drop")
        if gone and self.may_go(t):
            self.free(t)

    def wanted(self, t: str) -> bool:
        return self.readers_left[t] > 0

    def may_go(self, t: str) -> bool:
        if t in self.locked or t in self.unread:
            return False
        if self.graph.tensors[t].persistent:
            if not self.changes.get(t):
                return t in self.copied
            return t not in self.resident and t in self.copied and not self.wanted(t)
        return t in self.copied or t not in self.keep

    def write_back(self, t: str) -> None:
        goes = t not in self.resident or t in self.leavers
        if goes and self.changes.get(t) and self.changes[t] == self.final[t] and t not in self.copied:
            self.actions.append(PageOut(t))
            self.copied.add(t)

    def free(self, t: str) -> None:
        self.actions.append(Free(t))
        self.live.remove(t)

    def chance(self, what: str) -> bool:
        return self.rng.random() < self.share[what]

    def shuffled(self, names: list[str]) -> list[str]:
        return self.rng.sample(names, len(names))
