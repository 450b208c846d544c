"""Differentiate a model. In: Model, loss, optimizer, what to train. Out: TrainingGraph.

Reverse mode: each op emits the nodes of its own gradient; what no update needs is pruned, so nothing
is computed below the lowest trained parameter. An update is ordered after the last reader of what it
changes; each such pair is a hazard that a recompute must respect too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Protocol

import numpy as np

from poetgen.errors import ModelError, UsageError
from poetgen.graph import Hazard, Model, NameTable, Node, Phase, Tensor, TrainingGraph, topological
from poetgen.op import Op, Spec, Value
from poetgen.ops import by_onnx
from poetgen.ops.cross_entropy import CountCorrect, SoftmaxCrossEntropy
from poetgen.ops.sgd import MomentumUpdate, SgdUpdate


class Optimizer(Protocol):
    """What an optimizer adds for each parameter: its states and its update op."""

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the states, such as ``momentum``; all start at zero and have the parameter's shape."""

    def update(self) -> Op:
        """The op with inputs (w, dw, lr, *states)."""


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent as in PyTorch: v = momentum v + dw; w = w - lr v."""

    momentum: float = 0.0

    @property
    def states(self) -> tuple[str, ...]:
        """One velocity a parameter, if there is momentum."""
        return ("momentum",) if self.momentum else ()

    def update(self) -> Op:
        """The update op."""
        return MomentumUpdate(self.momentum) if self.momentum else SgdUpdate()


LOSSES: dict[str, type[Op]] = {"cross_entropy": SoftmaxCrossEntropy}


@dataclass
class _Builder:
    """The graph while it grows: tensors, nodes, names."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    names: NameTable = field(default_factory=NameTable)
    node_names: NameTable = field(default_factory=NameTable)
    storage: dict[str, str] = field(default_factory=dict)
    """View -> the tensor whose bytes it is."""

    def tensor(self, tensor: Tensor) -> None:
        self.names.taken.add(tensor.name)
        self.tensors[tensor.name] = tensor

    def add(
        self,
        op: Op,
        inputs: Sequence[Value],
        wanted: Sequence[str],
        name: str,
        phase: Phase,
        layer: str,
    ) -> tuple[Value, ...]:
        """Add a node, or for a view nothing but another name for the same bytes."""
        specs = op.infer(*(v.spec for v in inputs))
        if op.view:
            source = self.storage.get(inputs[0].name, inputs[0].name)
            if all(w != source for w in wanted):
                self.storage[wanted[0]] = source
            return (Value(source, specs[0]),)
        outputs = tuple(self.names.unique(w) for w in wanted)
        for out, spec in zip(outputs, specs, strict=True):
            self.tensors[out] = Tensor(out, spec)
        self.nodes.append(
            Node(
                self.node_names.unique(name),
                op,
                tuple(self.storage.get(v.name, v.name) for v in inputs),
                outputs,
                tuple(v.spec for v in inputs),
                specs,
                phase,
                layer,
            )
        )
        return tuple(Value(o, s) for o, s in zip(outputs, specs, strict=True))


def trainable(model: Model) -> Mapping[str, str]:
    """Each parameter and why it can or cannot be trained; an empty reason means it can.

    Rule (docs/contract): float32 with more than one element, reaches an output, and is no batch-norm
    statistic.
    """
    reached: set[str] = set(model.outputs)
    for node in reversed(model.nodes):
        if reached & set(node.outputs):
            reached |= set(node.inputs)
    readers: dict[str, list[tuple[Node, int]]] = {p: [] for p in model.parameters}
    for node in model.nodes:
        for index, name in enumerate(node.inputs):
            if name in readers:
                readers[name].append((node, index))
    reasons: dict[str, str] = {}
    for name, array in model.parameters.items():
        if array.dtype != np.float32:
            reasons[name] = f"is {array.dtype}, not float32"
        elif array.size <= 1:
            reasons[name] = "has a single element"
        elif name in model.fixed:
            reasons[name] = model.fixed[name]
        elif name not in reached:
            reasons[name] = "does not reach an output"
        elif all(i in getattr(n.op, "statistics", ()) for n, i in readers[name]):
            reasons[name] = "is a running statistic"
        else:
            reasons[name] = ""
    return reasons


def select(model: Model, train: Sequence[str], freeze: Sequence[str]) -> tuple[str, ...]:
    """Parameters to train: trainable ones that match a ``train`` glob and no ``freeze`` glob.

    Raises UsageError for a glob that matches nothing, with the nearest names.
    """
    can = trainable(model)
    for glob in (*train, *freeze):
        if not any(fnmatchcase(name, glob) for name in can):
            if glob == "*" and not can:
                continue
            near = difflib.get_close_matches(glob.rstrip("*"), can, n=3, cutoff=0.1)
            raise UsageError(
                f"{glob!r} matches none of the {len(can)} parameters of {model.name}",
                hint=f"nearest names: {', '.join(near)}" if near else "",
            )
    chosen = tuple(
        name
        for name, why_not in can.items()
        if not why_not
        and any(fnmatchcase(name, g) for g in train)
        and not any(fnmatchcase(name, g) for g in freeze)
    )
    if not chosen and can:
        named = [n for n in can if any(fnmatchcase(n, g) for g in train)]
        why = "; ".join(f"{n} {can[n]}" for n in named[:3] if can[n]) or "all are frozen"
        raise UsageError(
            f"nothing to train in {model.name}: {why}",
            hint="`poetgen inspect` lists what can train",
        )
    return chosen


def _forward(model: Model, trained: frozenset[str], training: bool) -> _Builder:
    """Copy the model's nodes; as they run in training, or as they run in inference."""
    b = _Builder()
    for name in model.inputs:
        b.tensor(Tensor(name, model.spec(name), "input"))
    for name, array in model.parameters.items():
        kind = "param" if name in trained else "const"
        b.tensor(Tensor(name, Spec(tuple(array.shape), model.spec(name).dtype), kind))
    for node in model.nodes:
        op, inputs, in_specs, outputs = node.op, node.inputs, node.in_specs, node.outputs
        if not training and (instead := op.inference()) is not None:
            op = instead[0]
            inputs = tuple(node.inputs[i] for i in instead[1])
            in_specs = tuple(node.in_specs[i] for i in instead[1])
            outputs = tuple(node.outputs[i] for i in instead[2])
        values = [Value(i, s) for i, s in zip(inputs, in_specs, strict=True)]
        b.add(op, values, outputs, node.name, "forward", node.layer or node.name)
    return b


def differentiate(
    model: Model,
    loss: str = "cross_entropy",
    optimizer: Optimizer | None = None,
    train: Sequence[str] = ("*",),
    freeze: Sequence[str] = (),
    output: str | None = None,
) -> TrainingGraph:
    """The graph of one training step.

    Args:
        model: what import_onnx gave.
        loss: ``cross_entropy`` (int32 class indices, mean over samples).
        optimizer: ``Sgd(momentum=0.9)``, say; plain SGD by default.
        train: globs of ONNX parameter names to train.
        freeze: globs removed from them.
        output: the graph output that takes the loss, where there are several.

    Raises:
        UsageError: a glob without a match, an unknown loss or output, nothing to train.
        ModelError: a gradient must pass an op that has none, or the loss does not fit the output.
    """
    optimizer = optimizer or Sgd()
    trained = select(model, train, freeze)
    out = _loss_output(model, output)
    b = _forward(model, frozenset(trained), training=True)
    logits = Value(b.storage.get(out, out), model.spec(out))
    label = Value("y", _label_spec(loss, logits.spec, model))
    if "y" in b.names.taken:
        label = Value(b.names.unique("label"), label.spec)
    b.tensor(Tensor(label.name, label.spec, "label"))
    b.tensor(Tensor(b.names.unique("lr"), Spec(()), "scalar"))
    lr = Value("lr", Spec(()))
    loss_op = _loss(loss)()
    (loss_value,) = _add_loss(b, loss_op, logits, label, loss, out)
    gradients = _backward(b, loss_value, trained)
    _updates(b, optimizer, gradients, lr)
    nodes = _prune(b.nodes, keep={loss_value.name})
    hazards = _hazards(nodes)
    nodes = topological(_place_updates(nodes), hazards)
    used = {t for n in nodes for t in (*n.inputs, *n.outputs)} | set(model.inputs) | {label.name}
    initial = dict(model.parameters)
    for t in b.tensors.values():
        if t.kind == "state":
            initial[t.name] = np.zeros(t.spec.shape, np.float32)
    return TrainingGraph(
        model=model,
        nodes=nodes,
        tensors={k: t for k, t in b.tensors.items() if k in used},
        loss=loss_value.name,
        output=logits.name,
        gradients={p: g.name for p, g in gradients.items()},
        hazards=hazards,
        initial={k: v for k, v in initial.items() if k in used},
        batch=model.spec(model.inputs[0]).shape[0] if model.inputs else 1,
        loss_name=loss,
    )


def inference_graph(training: TrainingGraph) -> TrainingGraph:
    """What ``_infer`` runs: forward only, ops in their inference form, the output left to the caller."""
    model = training.model
    b = _forward(model, frozenset(training.gradients), training=False)
    out = training_output(model, training)
    name = b.storage.get(out, out)
    nodes = _prune(b.nodes, keep={name})
    if b.tensors[name].kind == "act":
        b.tensors[name] = replace(b.tensors[name], kind="result")
    return _without_training(training, b, nodes, name, loss="")


def evaluation_graph(training: TrainingGraph) -> TrainingGraph:
    """What ``_evaluate`` runs: forward, loss, and for classes the count of correct samples."""
    model = training.model
    b = _forward(model, frozenset(training.gradients), training=False)
    out = training_output(model, training)
    logits = Value(b.storage.get(out, out), model.spec(out))
    (label_tensor,) = training.of_kind("label")
    b.tensor(label_tensor)
    label = Value(label_tensor.name, label_tensor.spec)
    (loss_value,) = _add_loss(b, _loss(training.loss_name)(), logits, label, training.loss_name, out)
    keep = {loss_value.name}
    if training.loss_name == "cross_entropy":
        (correct,) = b.add(CountCorrect(), (logits, label), ("correct",), "count_correct", "loss", "accuracy")
        b.tensors[correct.name] = replace(b.tensors[correct.name], kind="result")
        keep.add(correct.name)
    return _without_training(training, b, _prune(b.nodes, keep), logits.name, loss_value.name)


def training_output(model: Model, training: TrainingGraph) -> str:
    """The user's output that the loss was attached to."""
    for out in model.outputs:
        if out == training.output:
            return out
    return model.outputs[0]


def _without_training(
    training: TrainingGraph, b: _Builder, nodes: tuple[Node, ...], output: str, loss: str
) -> TrainingGraph:
    used = {t for n in nodes for t in (*n.inputs, *n.outputs)} | set(training.model.inputs)
    used |= {t.name for t in training.of_kind("label")} if loss else set()
    return TrainingGraph(
        model=training.model,
        nodes=nodes,
        tensors={k: t for k, t in b.tensors.items() if k in used},
        loss=loss,
        output=output,
        gradients={},
        hazards=(),
        initial={k: v for k, v in training.initial.items() if k in used},
        batch=training.batch,
        loss_name=training.loss_name,
    )


def _loss(name: str) -> type[Op]:
    if name not in LOSSES:
        raise UsageError(f"unknown loss {name!r}", hint=f"one of: {', '.join(LOSSES)}")
    return LOSSES[name]


def _loss_output(model: Model, output: str | None) -> str:
    if output is not None:
        if output not in model.outputs:
            raise UsageError(
                f"{model.name} has no output {output!r}",
                hint=f"outputs: {', '.join(model.outputs)}",
            )
        return output
    floats = [o for o in model.outputs if model.spec(o).dtype == "f32"]
    if len(floats) != 1:
        raise UsageError(
            f"{model.name} has {len(floats)} float outputs: {', '.join(floats)}",
            hint="say which one takes the loss: --output NAME",
        )
    return floats[0]


def _label_spec(loss: str, output: Spec, model: Model) -> Spec:
    if loss == "cross_entropy":
        return Spec(output.shape[:1], "i32")
    return output


def _add_loss(b: _Builder, op: Op, logits: Value, label: Value, loss: str, out: str) -> tuple[Value, ...]:
    try:
        values = b.add(op, (logits, label), ("loss",), loss, "loss", f"loss {loss}")
    except ValueError as error:
        raise ModelError(
            f"{loss} does not fit output {out!r} of shape {list(logits.spec.shape)}: {error}",
            hint="choose another --loss or --output",
        ) from error
    b.tensors[values[0].name] = replace(b.tensors[values[0].name], kind="result")
    return values


def _backward(b: _Builder, loss: Value, trained: Sequence[str]) -> dict[str, Value]:
    """Add gradient nodes from the loss down; the gradient of each trained parameter."""
    needs = set(trained)
    on_path: set[str] = set()
    forward = list(b.nodes)
    for node in forward:
        if needs & set(node.inputs):
            needs |= set(node.outputs)
            on_path.add(node.name)
    if loss.name not in needs:
        raise ModelError(
            f"the selected parameters do not reach the loss: {', '.join(trained[:3])}",
            hint="`poetgen inspect` says which parameters do",
        )
    gradient: dict[str, Value] = {}
    for node in reversed(forward):
        if node.name not in on_path:
            continue
        is_loss = loss.name in node.outputs
        douts = tuple(
            Value(gradient[o].name, s) if o in gradient else None
            for o, s in zip(node.outputs, node.out_specs, strict=True)
        )
        if not is_loss and not any(douts):
            continue

        def emit(op: Op, *inputs: Value, node: Node = node) -> tuple[Value, ...]:
            wanted = f"{node.name}/{role(op)}"
            count = len(op.infer(*(v.spec for v in inputs)))
            return b.add(op, inputs, [wanted] * count, wanted, "backward", node.layer)

        first = len(b.nodes)
        values = tuple(Value(n, s) for n, s in zip(node.inputs, node.in_specs, strict=True))
        outputs = tuple(Value(n, s) for n, s in zip(node.outputs, node.out_specs, strict=True))
        try:
            parts = node.op.gradient(emit, values, outputs, douts)
        except NotImplementedError as error:
            raise ModelError(
                f"a gradient must pass {node.layer!r}, and {type(node.op).__name__} has none",
                hint=f"freeze what lies before it: --freeze GLOB; trained there: "
                f"{', '.join(_below(node, forward, trained)[:3])}",
            ) from error
        b.nodes[first:] = _order_group(b, node, b.nodes[first:], parts)
        for name, part in zip(node.inputs, parts, strict=True):
            if part is None or name not in needs:
                continue
            total = Value(part.name, b.tensors[name].spec)
            if name in gradient:
                total = _sum(b, gradient[name], total, name, node)
            gradient[name] = total
    return {p: gradient[p] for p in trained if p in gradient}


def role(op: Op) -> str:
    """What a gradient op makes, for names: ConvDx -> dx, ChannelSum -> channel_sum."""
    name = type(op).__name__
    if match := re.search(r"D[a-z]+$", name):
        return match[0].lower()
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _order_group(b: _Builder, node: Node, group: list[Node], parts: Sequence[Value | None]) -> list[Node]:
    """Weights' gradients before dx where dx is the larger: x is dead by then and dx can take its room."""
    of_params = {
        p.name for i, p in zip(node.inputs, parts, strict=True) if p and b.tensors[i].kind == "param"
    }
    weights = [n for n in group if of_params & set(n.outputs)]
    others = [n for n in group if n not in weights]
    if _largest_bytes(others) <= _largest_bytes(weights):
        return group
    return list(topological(weights + others))


def _largest_bytes(nodes: Iterable[Node]) -> int:
    return max((s.nbytes for n in nodes for s in n.out_specs), default=0)


def _sum(b: _Builder, first: Value, second: Value, name: str, node: Node) -> Value:
    """A value used twice has the sum of two gradients (docs/arithmetic.md: added, not accumulated)."""
    add = by_onnx()["Add"]()
    (total,) = b.add(add, (first, second), (f"{name}/grad_sum",), f"{name}/grad_sum", "backward", node.layer)
    return total


def _below(node: Node, forward: Iterable[Node], trained: Sequence[str]) -> list[str]:
    needed = set(node.inputs)
    for n in reversed(list(forward)):
        if needed & set(n.outputs):
            needed |= set(n.inputs)
    return [p for p in trained if p in needed]


def _updates(b: _Builder, optimizer: Optimizer, gradients: Mapping[str, Value], lr: Value) -> None:
    for name, gradient in gradients.items():
        spec = b.tensors[name].spec
        states = []
        for role in optimizer.states:
            state = Tensor(b.names.unique(f"{name}/{role}"), spec, "state")
            b.tensor(state)
            states.append(Value(state.name, spec))
        b.add(
            optimizer.update(),
            (Value(name, spec), Value(gradient.name, spec), lr, *states),
            (),
            f"{name}/update",
            "update",
            name,
        )


def _prune(nodes: Sequence[Node], keep: set[str]) -> tuple[Node, ...]:
    """Drop what neither the kept tensors nor an update needs."""
    needed = set(keep)
    kept: list[Node] = []
    for node in reversed(nodes):
        if node.op.mutates or needed & set(node.outputs):
            needed |= set(node.inputs)
            kept.append(node)
    return tuple(reversed(kept))


def _hazards(nodes: Sequence[Node]) -> tuple[Hazard, ...]:
    return tuple(
        Hazard(reader.name, update.name)
        for update in nodes
        for changed in update.mutates
        for reader in nodes
        if changed in reader.inputs and reader is not update
    )


def _place_updates(nodes: Sequence[Node]) -> list[Node]:
    """Each update right after the last of what it waits for: its gradient dies soonest."""
    updates = [n for n in nodes if n.op.mutates]
    order = [n for n in nodes if not n.op.mutates]
    for update in updates:
        waits = set(update.inputs)
        last = max(
            (k for k, n in enumerate(order) if waits & set(n.outputs) or set(update.mutates) & set(n.inputs)),
            default=len(order) - 1,
        )
        order.insert(last + 1, update)
    return order
