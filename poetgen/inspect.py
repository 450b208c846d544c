"""What is in a model: inputs, ops, parameters, what can be trained and why the rest cannot.

In: a Model. Out: an Inspection, which prints itself as text or as plain data for JSON.

>>> from poetgen.inspect import inspect_model
>>> print(inspect_model(import_onnx("tinycnn.onnx")).text())  # doctest: +SKIP
tinycnn: 6 nodes, opset 17, sha256 3f9a...
  input   x          float32 [1, 1, 28, 28]
  output  logits     float32 [1, 10]
...
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from poetgen.autodiff import trainable
from poetgen.graph import Model
from poetgen.op import Op, Spec

DTYPE_NAMES = {"f32": "float32", "i32": "int32", "u8": "uint8"}


@dataclass(frozen=True)
class TensorLine:
    """An input or an output: ``TensorLine("x", (1, 1, 28, 28), "float32", 3136)``."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int


@dataclass(frozen=True)
class ParameterLine:
    """A parameter: can it be trained by default, and if not, why."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    trainable: bool
    why_not: str
    """Empty where it can."""
    readers: tuple[str, ...]


@dataclass(frozen=True)
class OpLine:
    """One kind of op: how often, on how much work, and does a gradient pass it."""

    op: str
    nodes: int
    parameters: int
    """Elements of the parameters that these nodes read."""
    output_bytes: int
    work: dict[str, int]
    """By class of work: multiply-accumulates for conv and gemm, elements or bytes else."""
    gradient: bool


@dataclass(frozen=True)
class Inspection:
    """All that ``poetgen inspect`` says about a model by itself; boards come later."""

    name: str
    path: str
    sha256: str
    opset: int
    nodes: int
    inputs: tuple[TensorLine, ...]
    outputs: tuple[TensorLine, ...]
    parameters: tuple[ParameterLine, ...]
    ops: tuple[OpLine, ...]
    activation_bytes: int
    """Every tensor that a forward pass makes, views left out; no plan needs that much at once."""
    largest_tensor: TensorLine
    notes: tuple[str, ...]

    @property
    def trainable_elements(self) -> int:
        """Numbers that training would change by default."""
        return sum(p.bytes // 4 for p in self.parameters if p.trainable)

    def json(self) -> dict[str, Any]:
        """Plain data, ready for ``json.dumps``."""
        return {**asdict(self), "trainable_elements": self.trainable_elements}

    def text(self) -> str:
        """For a person at a terminal."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterable[str]:
        yield f"{self.name}: {self.nodes} nodes, opset {self.opset}, sha256 {self.sha256[:16]}"
        yield ""
        yield from _table(
            ("", "name", "type", "shape", "bytes"),
            [
                (role, t.name, t.dtype, _shape(t.shape), _grouped(t.bytes))
                for role, tensors in (("input", self.inputs), ("output", self.outputs))
                for t in tensors
            ],
            right=(4,),
        )
        yield ""
        yield from _table(
            ("op", "nodes", "parameters", "output bytes", "work", "gradient"),
            [
                (
                    o.op,
                    str(o.nodes),
                    _grouped(o.parameters),
                    _grouped(o.output_bytes),
                    ", ".join(f"{_grouped(n)} {_UNITS.get(k, k)}" for k, n in o.work.items()) or "-",
                    "yes" if o.gradient else "no: only below frozen layers",
                )
                for o in self.ops
            ],
            right=(1, 2, 3),
        )
        yield ""
        yield from _table(
            ("parameter", "shape", "bytes", "trains"),
            [
                (p.name, _shape(p.shape), _grouped(p.bytes), "yes" if p.trainable else f"no: {p.why_not}")
                for p in self.parameters
            ],
            right=(2,),
        )
        yield ""
        total = sum(p.bytes for p in self.parameters)
        count = sum(p.trainable for p in self.parameters)
        yield (
            f"{count} of {len(self.parameters)} parameters train by default: "
            f"{_grouped(self.trainable_elements)} numbers, {_grouped(self.trainable_elements * 4)} of "
            f"{_grouped(total)} bytes."
        )
        yield (
            f"A forward pass makes {_grouped(self.activation_bytes)} bytes of tensors; the largest is "
            f"{self.largest_tensor.name} {_shape(self.largest_tensor.shape)}, "
            f"{_grouped(self.largest_tensor.bytes)} bytes."
        )
        for note in self.notes:
            yield f"note: {note}"


_UNITS = {"conv": "MAC", "gemm": "MAC", "move": "bytes"}


def inspect_model(model: Model) -> Inspection:
    """See the module's docstring."""
    why_not = trainable(model)
    readers: dict[str, list[str]] = {name: [] for name in model.parameters}
    for node in model.nodes:
        for name in node.reads:
            if name in readers:
                readers[name].append(node.name)
    parameters = tuple(
        ParameterLine(
            name,
            tuple(int(d) for d in array.shape),
            str(array.dtype),
            int(array.nbytes),
            not why_not[name],
            why_not[name],
            tuple(readers[name]),
        )
        for name, array in model.parameters.items()
    )
    made = [(o, s) for n in model.nodes if not n.op.view for o, s in zip(n.outputs, n.out_specs, strict=True)]
    everything = made + [(i, model.spec(i)) for i in model.inputs]
    largest = max(everything, key=lambda pair: pair[1].nbytes)
    return Inspection(
        name=model.name,
        path=model.path,
        sha256=model.sha256,
        opset=model.opset,
        nodes=len(model.nodes),
        inputs=tuple(_tensor(i, model.spec(i)) for i in model.inputs),
        outputs=tuple(_tensor(o, model.spec(o)) for o in model.outputs),
        parameters=parameters,
        ops=_ops(model),
        activation_bytes=sum(s.nbytes for _, s in made),
        largest_tensor=_tensor(*largest),
        notes=model.notes,
    )


def _tensor(name: str, spec: Spec) -> TensorLine:
    return TensorLine(name, spec.shape, DTYPE_NAMES[spec.dtype], spec.nbytes)


def _ops(model: Model) -> tuple[OpLine, ...]:
    """One line for each kind of op, in the order in which they first run."""
    kinds: dict[str, list[int]] = {}
    for index, node in enumerate(model.nodes):
        kinds.setdefault(type(node.op).__name__, []).append(index)
    lines = []
    for kind, indices in kinds.items():
        nodes = [model.nodes[i] for i in indices]
        work: dict[str, int] = {}
        for n in nodes:
            w = n.op.work(n.in_specs, n.out_specs)
            if w.count:
                work[w.kind] = work.get(w.kind, 0) + w.count
        read = {i for n in nodes for i in n.inputs if i in model.parameters}
        lines.append(
            OpLine(
                kind,
                len(nodes),
                sum(int(model.parameters[p].size) for p in read),
                0 if nodes[0].op.view else sum(s.nbytes for n in nodes for s in n.out_specs),
                work,
                type(nodes[0].op).gradient is not Op.gradient,
            )
        )
    return tuple(lines)


def _shape(shape: Sequence[int]) -> str:
    return "[" + ", ".join(str(d) for d in shape) + "]"


def _grouped(n: int) -> str:
    return f"{n:,}".replace(",", " ")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: tuple[int, ...]) -> Iterable[str]:
    """Columns aligned under their heads; ``right``: columns of numbers."""
    widths = [max(len(r[c]) for r in (head, *rows)) for c in range(len(head))]
    for row in (head, *rows):
        cells = (
            cell.rjust(width) if c in right else cell.ljust(width)
            for c, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
