"""What a file says, as plain values: everything after ``read`` works on these, not on protobufs."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from poetgen.errors import ModelError
from poetgen.op import Array

Origin = Literal["initializer", "constant node", "folded"]
Dim = int | str | None


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor whose values are in the file, or follow from it."""

    array: Array
    origin: Origin


@dataclass(frozen=True)
class RawInput:
    """A graph input: ``RawInput("x", "float32", ("batch", 3, 32, 32))``; ``dims`` None: no shape."""

    name: str
    dtype: str
    dims: tuple[Dim, ...] | None


@dataclass(frozen=True, eq=False)
class RawNode:
    """A node as the file has it. ``index`` counts nodes of its graph from 0."""

    index: int
    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    """int, float, str, Array, RawGraph, or a tuple of one of these."""

    @property
    def label(self) -> str:
        """How messages call it: by name, or by place and output where it has none."""
        return f"{self.kind} node {self.short}"

    @property
    def short(self) -> str:
        """The name, or place and output."""
        if self.name:
            return shorten(self.name)
        made = next((o for o in self.outputs if o), "")
        return f"{self.index} (unnamed, makes {shorten(made)})"

    @property
    def kind(self) -> str:
        """The op type, with its domain where that is not ONNX's own."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    @property
    def subgraphs(self) -> Iterator[RawGraph]:
        """Bodies of If, Loop and Scan."""
        for value in self.attributes.values():
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, RawGraph):
                    yield item


@dataclass(frozen=True, eq=False)
class RawGraph:
    """A graph or a subgraph as the file has it; initializers are no inputs here."""

    name: str
    nodes: tuple[RawNode, ...]
    constants: Mapping[str, Constant]
    inputs: tuple[RawInput, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Source:
    """A file that was read and checked."""

    path: str
    sha256: str
    opset: int
    graph: RawGraph
    notes: tuple[str, ...]


LONGEST_NAME = 80


def shorten(name: str) -> str:
    """A quoted name for a message; real files have names of hundreds of characters."""
    half = (LONGEST_NAME - 3) // 2
    return repr(name if len(name) <= LONGEST_NAME else f"{name[:half]}...{name[-half:]}")


def sort_nodes(graph: RawGraph, outer: frozenset[str] = frozenset()) -> tuple[RawNode, ...]:
    """The graph's nodes, producers first; the file's own order where that is one.

    Raises ModelError for a cycle, a tensor nobody makes and a tensor made twice.
    """
    known = outer | set(graph.constants) | {i.name for i in graph.inputs}
    producer = _producers(graph, known)
    waiting: dict[int, set[int]] = {}
    readers: dict[int, list[int]] = {n.index: [] for n in graph.nodes}
    for node in graph.nodes:
        needs = set()
        for name in reads(node):
            if name in producer:
                needs.add(producer[name].index)
            elif name not in known:
                raise ModelError(
                    f"{node.label} reads undefined tensor {shorten(name)}",
                    hint="neither an input, nor an initializer, nor another node gives it; "
                    "export the model again",
                )
        waiting[node.index] = needs
        for need in needs:
            readers[need].append(node.index)
    return _in_order(graph, waiting, readers)


def _in_order(
    graph: RawGraph, waiting: dict[int, set[int]], readers: dict[int, list[int]]
) -> tuple[RawNode, ...]:
    by_index = {n.index: n for n in graph.nodes}
    order: list[RawNode] = []
    done: set[int] = set()
    ready = [i for i, needs in waiting.items() if not needs]
    heapq.heapify(ready)
    missing = {i: len(needs) for i, needs in waiting.items()}
    while ready:
        index = heapq.heappop(ready)
        done.add(index)
        order.append(by_index[index])
        for reader in readers[index]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(graph.nodes):
        at = next(i for i in waiting if i not in done)
        path: list[int] = []
        while at not in path:
            path.append(at)
            at = min(waiting[at] - done)
        cycle = [by_index[i].short for i in (at, *reversed(path[path.index(at) :]))]
        raise ModelError(f"graph has a cycle ({' -> '.join(cycle)})", hint="export the model again")
    return tuple(order)


def reads(node: RawNode) -> tuple[str, ...]:
    """Tensors that a node reads, those its subgraphs take from outside included."""
    names = [i for i in node.inputs if i]
    for body in node.subgraphs:
        own = set(body.constants) | {i.name for i in body.inputs}
        own |= {o for n in body.nodes for o in n.outputs}
        names += [i for n in body.nodes for i in reads(n) if i not in own]
        names += [o for o in body.outputs if o not in own]
    return tuple(dict.fromkeys(names))


def _producers(graph: RawGraph, known: frozenset[str] | set[str]) -> dict[str, RawNode]:
    producer: dict[str, RawNode] = {}
    for node in graph.nodes:
        for name in node.outputs:
            if not name:
                continue
            if name in producer or name in known:
                other = producer[name].label if name in producer else "an input or initializer"
                raise ModelError(
                    f"tensor {shorten(name)} is made twice: by {node.label} and by {other}",
                    hint="tensor names must be unique; export the model again",
                )
            producer[name] = node
    return producer
