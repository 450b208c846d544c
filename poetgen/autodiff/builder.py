"""A graph while it grows: tensors, nodes, unique names, and views as other names for the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from poetgen.graph import Kind, NameTable, Node, Phase, Tensor
from poetgen.op import Op, Spec, Value


@dataclass
class Builder:
    """Grows a TrainingGraph. Tensors get the name asked for, or ``name.2``, ``name.3``, ..."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    names: NameTable = field(default_factory=NameTable)
    node_names: NameTable = field(default_factory=NameTable)
    storage: dict[str, str] = field(default_factory=dict)
    """View -> the tensor whose bytes it is."""

    def tensor(self, name: str, spec: Spec, kind: Kind) -> Value:
        """Add a tensor that no node makes."""
        self.names.taken.add(name)
        self.tensors[name] = Tensor(name, spec, kind)
        return Value(name, spec)

    def scalar(self, name: str, spec: Spec) -> Value:
        """The one scalar of this name; made at first use."""
        if name not in self.tensors:
            self.tensor(name, spec, "scalar")
        return Value(name, spec)

    def mark(self, name: str, kind: Kind) -> None:
        """Give a tensor another kind."""
        self.tensors[name] = replace(self.tensors[name], kind=kind)

    def source(self, name: str) -> str:
        """The tensor that holds a name's bytes."""
        return self.storage.get(name, name)

    def add(
        self, op: Op, inputs: Sequence[Value], wanted: Sequence[str], name: str, phase: Phase, layer: str
    ) -> tuple[Value, ...]:
        """Add a node and give its outputs; a view adds nothing but a name."""
        specs = op.infer(*(v.spec for v in inputs))
        if op.view:
            source = self.source(inputs[0].name)
            if wanted[0] != source:
                self.storage[wanted[0]] = source
            return (Value(source, specs[0]),)
        outputs = tuple(self.names.unique(w) for w in wanted)
        for out, spec in zip(outputs, specs, strict=True):
            self.tensors[out] = Tensor(out, spec)
        sources = tuple(self.source(v.name) for v in inputs)
        in_specs = tuple(v.spec for v in inputs)
        node_name = self.node_names.unique(name)
        self.nodes.append(Node(node_name, op, sources, outputs, in_specs, specs, phase, layer))
        return tuple(Value(o, s) for o, s in zip(outputs, specs, strict=True))


def prune(nodes: Sequence[Node], keep: set[str]) -> tuple[Node, ...]:
    """Drop what neither the kept tensors nor an update needs."""
    needed = set(keep)
    kept: list[Node] = []
    for node in reversed(nodes):
        if node.op.mutates or needed & set(node.outputs):
            needed |= set(node.inputs)
            kept.append(node)
    return tuple(reversed(kept))
