"""Graphs as frozen values: a Model as the user exported it, a TrainingGraph as it will run.

In a graph every tensor has a name and one producer; nodes stand in the order in which they run.
Names are the user's (ONNX) names, and for what training adds ``LAYER/role``: ``conv1.weight/grad``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from poetgen.op import Array, Op, Spec

Kind = Literal[
    "input",  # the caller's, only read
    "label",  # the caller's, only read
    "scalar",  # an argument passed by value, such as lr
    "result",  # the caller's, written: the loss, _infer's output
    "param",  # trained; persists across training steps and is changed by an update
    "state",  # the optimizer's, persistent
    "statistic",  # batch-norm statistics that training moves, persistent
    "const",  # frozen: read from code flash in place, no RAM
    "act",  # everything else: activations, gradients
]
PERSISTENT: frozenset[str] = frozenset({"param", "state", "statistic"})
IN_ARENA: frozenset[str] = frozenset({"act", "param", "state", "statistic"})
Phase = Literal["forward", "loss", "backward", "update"]


@dataclass(frozen=True)
class Tensor:
    """A value in a graph: ``Tensor("conv1.weight", Spec((16, 6, 5)), "param")``."""

    name: str
    spec: Spec
    kind: Kind = "act"

    @property
    def persistent(self) -> bool:
        """Does it live on from one training step to the next?"""
        return self.kind in PERSISTENT

    @property
    def in_arena(self) -> bool:
        """Does it take bytes of the arena when it is resident?"""
        return self.kind in IN_ARENA


@dataclass(frozen=True)
class Node:
    """One use of an op: ``Node("conv1", Conv(pads=(2, 2)), ("x", "conv1.weight"), ("conv1/y",), ...)``.

    ``in_specs`` and ``out_specs`` are how *this* node sees its operands: a flattened view of a tensor
    has the tensor's name and another shape.
    """

    name: str
    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]
    phase: Phase = "forward"
    layer: str = ""
    """The user's node that this one comes from; for messages."""

    @property
    def mutates(self) -> tuple[str, ...]:
        """Persistent tensors that this node changes in place."""
        return tuple(self.inputs[i] for i in self.op.mutates)

    @property
    def reads(self) -> tuple[str, ...]:
        """Distinct inputs, in order."""
        return tuple(dict.fromkeys(self.inputs))


@dataclass(frozen=True, eq=False)
class Model:
    """A network as imported: float graph, shapes known, constants folded, nothing about training.

    ``parameters`` holds every initializer that a node reads, by its ONNX name.
    """

    name: str
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: Mapping[str, Array]
    sha256: str
    path: str = ""
    opset: int = 17
    notes: tuple[str, ...] = ()
    """What a user should know about the import, one sentence each."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Parameters that are constants by nature, and why they do not train: ``is a folded ...``."""

    def spec(self, tensor: str) -> Spec:
        """Shape and type of a tensor."""
        return self.tensors[tensor].spec


@dataclass(frozen=True)
class Hazard:
    """``reader`` may never run after ``update``: the parameter it reads is another one then."""

    reader: str
    update: str


@dataclass(frozen=True, eq=False)
class TrainingGraph:
    """What one call runs: forward, loss, backward and updates in one topological order.

    ``gradients`` names the gradient of each trained parameter. An inference graph is one with neither
    backward nodes nor updates. ``initial`` holds the value of each param, state, statistic and const.
    """

    model: Model
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    loss: str
    output: str
    gradients: Mapping[str, str]
    hazards: tuple[Hazard, ...]
    initial: Mapping[str, Array]
    batch: int
    loss_name: str = "cross_entropy"
    notes: tuple[str, ...] = ()
    forward: tuple[Node, ...] = ()
    """The model's nodes with batch norm in the form that was asked for."""

    @cached_property
    def node(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return MappingProxyType({n.name: n for n in self.nodes})

    @cached_property
    def producer(self) -> Mapping[str, Node]:
        """The node that makes each tensor."""
        return MappingProxyType({o: n for n in self.nodes for o in n.outputs})

    @cached_property
    def readers(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read each tensor, in order."""
        table: dict[str, list[Node]] = {name: [] for name in self.tensors}
        for n in self.nodes:
            for i in n.reads:
                table[i].append(n)
        return MappingProxyType({k: tuple(v) for k, v in table.items()})

    def of_kind(self, *kinds: Kind) -> tuple[Tensor, ...]:
        """Tensors of these kinds, in the table's order."""
        return tuple(t for t in self.tensors.values() if t.kind in kinds)


@dataclass
class NameTable:
    """Hands out unique names: the wanted one, or ``wanted.2``, ``wanted.3``, ..."""

    taken: set[str] = field(default_factory=set)

    def unique(self, wanted: str) -> str:
        """A name nobody has yet."""
        name, n = wanted, 1
        while name in self.taken:
            n += 1
            name = f"{wanted}.{n}"
        self.taken.add(name)
        return name


def topological(nodes: Iterable[Node], after: Iterable[Hazard] = ()) -> tuple[Node, ...]:
    """Nodes in an order that respects data and hazards, as near to the given one as possible.

    Raises ValueError naming a cycle.
    """
    todo = list(nodes)
    producer = {o: n.name for n in todo for o in n.outputs}
    needs: dict[str, set[str]] = {n.name: set() for n in todo}
    for n in todo:
        needs[n.name] |= {producer[i] for i in n.inputs if i in producer}
    for h in after:
        needs[h.update].add(h.reader)
    done: set[str] = set()
    order: list[Node] = []
    while todo:
        ready = next((n for n in todo if needs[n.name] <= done), None)
        if ready is None:
            cycle = " -> ".join(_cycle(needs, done))
            raise ValueError(f"graph has a cycle ({cycle})")
        todo.remove(ready)
        done.add(ready.name)
        order.append(ready)
    return tuple(order)


def _cycle(needs: Mapping[str, set[str]], done: set[str]) -> list[str]:
    at = next(n for n in needs if n not in done)
    path: list[str] = []
    while at not in path:
        path.append(at)
        at = min(n for n in needs[at] if n not in done)
    return list(reversed([*path[path.index(at) :], at]))
