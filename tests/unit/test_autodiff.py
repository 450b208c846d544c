"""Differentiation: gradients are the loss's derivatives, and nothing is computed that nobody needs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poetgen.autodiff import Adam, Sgd, differentiate, evaluation_graph, inference_graph
from poetgen.errors import ModelError, UsageError
from poetgen.graph import Model, TrainingGraph
from poetgen.interpreter import Machine
from poetgen.onnx_import import import_onnx
from poetgen.op import Array
from poetgen.ops.batchnorm import BatchNorm, BatchNormTrain, StatisticUpdate
from poetgen.ops.dropout import Dropout
from poetgen.program import Step
from tests.onnx_nets import OnnxNet, branches, shared_weights
from tests.parity.nets import Walk, program

Shape = tuple[int, ...]
LR = 0.1

# Random networks against central differences

NETS, LAYERS = 150, 6
STEP = 1e-6
LOSSES = ("cross_entropy", "mse", "bce")


class RandomNet(OnnxNet):
    """A chain of random ops on images, with joins to what came before."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        shape = tuple(int(n) for n in (rng.integers(2, 4), *rng.integers(1, 5, 3)))
        super().__init__(shape, seed)
        self.at: tuple[str, Shape] = ("x", shape)
        self.older = [self.at]
        self.kinds: list[str] = []
        self.grow("conv")
        while len(self.kinds) < LAYERS:
            self.grow(str(self.rng.choice([*LAYER])))
        flat, width = self.op("Flatten", self.at[0]), int(np.prod(self.at[1][1:]))
        # One class has no gradient; a softmax over other than the classes is no output for a loss.
        more = width < 2 or self.kinds[-1] in ("softmax", "logsoftmax", "reshape") or self.flip()
        self.out = self.dense(flat, width, 3) if more else flat

    def grow(self, kind: str) -> None:
        made = LAYER[kind](self, *self.at)
        if made is not None:
            self.at = made
            self.older.append(made)
            self.kinds.append(kind)

    def flip(self) -> bool:
        return bool(self.rng.random() < 0.5)


Made = tuple[str, Shape] | None


def conv(net: RandomNet, x: str, shape: Shape) -> Made:
    n, c, h, w = shape
    out, k = int(net.rng.integers(2, 5)), int(net.rng.integers(1, min(h, w, 3) + 1))
    stride, pad = int(net.rng.integers(1, 3)), int(net.rng.integers(0, k))
    bias = [net.weight(out)] if net.flip() else []
    at: dict[str, Any] = {"strides": [stride, stride], "pads": [pad, 0, 0, pad]}
    y = net.op("Conv", x, net.weight(out, c, k, k), *bias, **at)
    return y, (n, out, (h + pad - k) // stride + 1, (w + pad - k) // stride + 1)


def depthwise(net: RandomNet, x: str, shape: Shape) -> Made:
    n, c, h, w = shape
    y = net.op("Conv", x, net.weight(2 * c, 1, 2, 1), net.weight(2 * c), group=c, pads=[1, 0, 0, 0])
    return (y, (n, 2 * c, h, w)) if c < 5 else None


def norm(net: RandomNet, x: str, shape: Shape) -> Made:
    return net.norm(x, shape[1], train=net.flip()), shape


def window(kind: str, **more: Any) -> Callable[[RandomNet, str, Shape], Made]:
    def layer(net: RandomNet, x: str, shape: Shape) -> Made:
        n, c, h, w = shape
        if h < 2 or w < 2:
            return None
        y = net.op(kind, x, kernel_shape=[2, 2], strides=[1, 2], pads=[0, 1, 1, 0], **more)
        return y, (n, c, h, (w + 1 - 2) // 2 + 1)

    return layer


def alone(kind: str, **attributes: Any) -> Callable[[RandomNet, str, Shape], Made]:
    return lambda net, x, shape: (net.op(kind, x, **attributes), shape)


def clip(net: RandomNet, x: str, shape: Shape) -> Made:
    return net.op("Clip", x, net.constant(np.float32(-0.7)), net.constant(np.float32(0.9))), shape


def broadcast(kind: str, axes: str, about: float) -> Callable[[RandomNet, str, Shape], Made]:
    """An op with a parameter that spans some of the axes."""

    def layer(net: RandomNet, x: str, shape: Shape) -> Made:
        spans = tuple(s if a in axes else 1 for a, s in zip("nchw", shape, strict=True))
        w = net.weight(*spans, about=about, scale=0.2)
        return net.op(kind, *((x, w) if kind == "Div" or net.flip() else (w, x))), shape

    return layer


def join(net: RandomNet, x: str, shape: Shape) -> Made:
    same = [name for name, s in net.older if s == shape]
    kind = str(net.rng.choice(["Add", "Mul", "Sub"]))
    return net.op(kind, x, str(net.rng.choice(same))), shape


def transpose(net: RandomNet, x: str, shape: Shape) -> Made:
    n, c, h, w = shape
    return net.op("Transpose", x, perm=[0, 3, 1, 2]), (n, w, c, h)


def mean(net: RandomNet, x: str, shape: Shape) -> Made:
    n, c, _, w = shape
    return net.op("ReduceMean", x, axes=[2], keepdims=1), (n, c, 1, w)


def reshape(net: RandomNet, x: str, shape: Shape) -> Made:
    n, c, h, w = shape
    return net.op("Reshape", x, net.constant(np.array([n, w, h, c]))), (n, w, h, c)


def matmul(net: RandomNet, x: str, shape: Shape) -> Made:
    n, c, h, w = shape
    rows = net.op("Reshape", x, net.constant(np.array([n, c * h * w])))
    y = net.op("MatMul", rows, net.weight(c * h * w, 6))
    return net.op("Reshape", y, net.constant(np.array([n, 3, 1, 2]))), (n, 3, 1, 2)


LAYER: dict[str, Callable[[RandomNet, str, Shape], Made]] = {
    "conv": conv,
    "depthwise": depthwise,
    "norm": norm,
    "max": window("MaxPool"),
    "average": window("AveragePool", count_include_pad=1),
    "average inside": window("AveragePool"),
    "relu": alone("Relu"),
    "sigmoid": alone("Sigmoid"),
    "tanh": alone("Tanh"),
    "softmax": alone("Softmax", axis=1),
    "logsoftmax": alone("LogSoftmax", axis=3),
    "clip": clip,
    "bias": broadcast("Add", "c", 0.0),
    "from": broadcast("Sub", "chw", 0.0),
    "scale": broadcast("Mul", "w", 1.0),
    "divide": broadcast("Div", "cw", 2.0),
    "join": join,
    "transpose": transpose,
    "mean": mean,
    "reshape": reshape,
    "matmul": matmul,
    "dropout": lambda net, x, shape: (net.dropout(x, 0.3), shape),
}


def target(graph: TrainingGraph, rng: np.random.Generator) -> Array:
    (label,) = graph.of_kind("label")
    if label.spec.dtype == "i32":
        return rng.integers(
            0, graph.node[graph.producer[graph.loss].name].in_specs[0].shape[1], label.spec.shape
        )
    return rng.random(label.spec.shape)


def test_gradients_of_random_networks_are_the_slopes_of_their_losses(tmp_path: Path) -> None:
    """In float64. A slope that differs on both sides of a point lies at a kink and says nothing."""
    slopes = kinks = 0
    drawn: set[str] = set()
    for seed in range(NETS):
        net = RandomNet(seed)
        drawn.update(net.kinds)
        graph = differentiate(net.model(net.out, tmp_path), LOSSES[seed % len(LOSSES)])
        x, y = {"x": net.rng.standard_normal(net.shape)}, target(graph, net.rng)
        start = Walk(graph, np.float64)

        def loss_at(values: dict[str, Array]) -> float:
            walk = Walk(graph, np.float64)
            walk.values = values
            return float(walk.train_step(x, y, LR)[graph.loss])

        first = start.train_step(x, y, LR)
        initial = Walk(graph, np.float64).values
        here = float(first[graph.loss])
        for name, gradient in graph.gradients.items():
            found = first[gradient].reshape(initial[name].shape)
            assert np.allclose(start.values[name], initial[name] - LR * found, rtol=1e-13, atol=0)
            way = net.rng.standard_normal(found.shape)
            way /= np.linalg.norm(way)
            up, down = (loss_at(initial | {name: initial[name] + s * STEP * way}) for s in (1, -1))
            slope, claimed = (up - down) / (2 * STEP), float((found * way).sum())
            scale = max(abs(slope), abs(claimed), 1e-2)
            if abs((up - here) - (here - down)) / STEP > 1e-3 * scale:
                kinks += 1
                continue
            slopes += 1
            assert abs(slope - claimed) < 1e-5 * scale, (
                f"net {seed} ({' '.join(net.kinds)}), {name}: slope {slope}, gradient {claimed}"
            )
    print(f"{slopes} slopes, {kinks} at a kink")
    assert drawn == set(LAYER)
    assert slopes > 3 * NETS and kinks < slopes / 50


# Subsets of the parameters


def chain(folder: Path) -> Model:
    """Two convolutions with a frozen batch norm between them, and a dense layer: eight parameters."""
    net = OnnxNet((3, 2, 6, 5), seed=1)
    a = net.op("Conv", "x", net.weight(4, 2, 3, 3), net.weight(4))
    b = net.op("Tanh", net.norm(a, 4, train=False))
    c = net.op("Relu", net.op("Conv", b, net.weight(5, 4, 2, 2), net.weight(5)))
    d = net.op("Flatten", net.op("GlobalAveragePool", c))
    return net.model(net.dense(d, 5, 4), folder)


CHAIN = (  # layer, its weight and bias, roles of their gradients
    ("conv0_node", ("w0", "w1"), ("dw", "channel_sum")),
    ("batchnormalization1_node", ("w2", "w3"), ("dg", "channel_sum")),
    ("tanh2_node", (), ()),
    ("conv3_node", ("w6", "w7"), ("dw", "channel_sum")),
    ("relu4_node", (), ()),
    ("globalaveragepool5_node", (), ()),
    ("gemm7_node", ("w8", "w9"), ("dw", "channel_sum")),
)
TRAINABLE = tuple(p for _, params, _ in CHAIN for p in params)


def gradients_of(graph: TrainingGraph) -> dict[str, bytes]:
    """Bits of the first step's gradients, and the loss."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(graph.model.spec("x").shape).astype(np.float32)
    made: dict[str, bytes] = {}

    def trace(step: Step, values: tuple[Array, ...]) -> None:
        made.update((o.tensor, v.tobytes()) for o, v in zip(step.outputs, values, strict=False))

    Machine.start(program(graph)).train_step({"x": x}, np.array([0, 3, 1], np.int32), LR, trace)
    return {p: made[g] for p, g in graph.gradients.items()} | {"": made[graph.loss]}


def test_every_subset_of_the_parameters_gets_the_full_runs_gradients_and_nothing_more(tmp_path: Path) -> None:
    model = chain(tmp_path)
    full = gradients_of(differentiate(model))
    assert set(full) == {*TRAINABLE, ""}
    for count in range(1, len(TRAINABLE) + 1):
        for trained in itertools.combinations(TRAINABLE, count):
            graph = differentiate(model, freeze=[p for p in TRAINABLE if p not in trained])
            assert gradients_of(graph) == {p: full[p] for p in (*trained, "")}
            wanted = {"cross_entropy/dx"}
            below = False
            for layer, params, roles in CHAIN:
                wanted |= {f"{layer}/{r}" for p, r in zip(params, roles, strict=True) if p in trained}
                wanted |= {f"{layer}/dx"} if below else set()
                below = below or bool(set(params) & set(trained))
            assert {n.name for n in graph.nodes if n.phase == "backward"} == wanted
            assert {n.name for n in graph.nodes if n.phase == "update"} == {f"{p}/update" for p in trained}
            assert {t.name for t in graph.of_kind("param")} == set(trained)


def test_freezing_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to train"):
        differentiate(chain(tmp_path), freeze=["*"])


# Order


@pytest.mark.parametrize("net", [shared_weights, branches])
@pytest.mark.parametrize("optimizer", [Sgd(), Sgd(0.9), Adam()])
def test_no_node_reads_a_parameter_after_its_update(
    net: Callable[[Path], Path], optimizer: Sgd | Adam, tmp_path: Path
) -> None:
    graph = differentiate(import_onnx(net(tmp_path)), optimizer=optimizer)
    at = {n.name: k for k, n in enumerate(graph.nodes)}
    pairs = {(h.reader, h.update) for h in graph.hazards}
    for update in (n for n in graph.nodes if n.mutates):
        for changed in update.mutates:
            readers = [n.name for n in graph.readers[changed] if n is not update]
            assert all(at[r] < at[update.name] for r in readers)
            assert all((r, update.name) in pairs for r in readers)
    assert sorted(t.name for t in graph.of_kind("param")) == sorted(graph.gradients)
    assert sum(n.name.endswith("/update") for n in graph.nodes if n.inputs[0] in graph.gradients) == len(
        graph.gradients
    )


def test_an_update_comes_as_soon_as_its_gradient_and_the_last_reader_are_done(tmp_path: Path) -> None:
    graph = differentiate(chain(tmp_path))
    order = [n.name for n in graph.nodes]
    for update in (n for n in graph.nodes if n.mutates):
        waits = {graph.producer[update.inputs[1]].name}
        waits |= {n.name for n in graph.readers[update.inputs[0]] if n is not update}
        between = order[max(map(order.index, waits)) + 1 : order.index(update.name)]
        assert all(graph.node[n].mutates for n in between)


# Forms of layers


def test_batch_norm_takes_the_form_asked_for(tmp_path: Path) -> None:
    net = OnnxNet((4, 3, 5, 5))
    a = net.norm(net.norm("x", 3, train=True), 3, train=False)
    model = net.model(net.dense(net.op("Flatten", net.op("GlobalAveragePool", a)), 3, 2), tmp_path)
    for mode, trains, freezes in (("file", 1, 1), ("train", 2, 0), ("frozen", 0, 2)):
        graph = differentiate(model, bn=mode)
        ops = [type(n.op) for n in graph.nodes]
        assert (ops.count(BatchNormTrain), ops.count(BatchNorm)) == (trains, freezes)
        assert ops.count(StatisticUpdate) == len(graph.of_kind("statistic")) == 2 * trains
        forward = [type(n.op) for n in inference_graph(graph).nodes]
        assert BatchNormTrain not in forward and forward.count(BatchNorm) == 2
    with pytest.raises(UsageError, match="--bn"):
        differentiate(model, bn="off")


def test_the_statistics_of_a_single_element_are_refused(tmp_path: Path) -> None:
    net = OnnxNet((1, 3, 1, 1))
    model = net.model(net.op("Flatten", net.norm("x", 3, train=False)), tmp_path)
    with pytest.raises(ModelError, match="one element"):
        differentiate(model, bn="train")


def test_dropout_is_drawn_in_training_alone_and_each_has_its_own_number(tmp_path: Path) -> None:
    graph = differentiate(import_onnx(shared_weights(tmp_path)))
    forward = [n.op for n in graph.nodes if isinstance(n.op, Dropout) and n.phase == "forward"]
    back = [n.op for n in graph.nodes if isinstance(n.op, Dropout) and n.phase == "backward"]
    assert [d.node for d in forward] == [0, 1] and {*back} == {*forward}
    for other in (inference_graph(graph), evaluation_graph(graph)):
        assert not any(isinstance(n.op, Dropout) for n in other.nodes)


@pytest.mark.parametrize(
    ("last", "loss"), [("Softmax", "cross_entropy"), ("LogSoftmax", "cross_entropy"), ("Sigmoid", "bce")]
)
def test_a_loss_attaches_before_a_last_activation_that_it_contains(
    last: str, loss: str, tmp_path: Path
) -> None:
    def build(with_last: bool) -> Model:
        net = OnnxNet((3, 4), seed=2)
        y = net.dense("x", 4, 3)
        return net.model(net.op(last, y) if with_last else y, tmp_path)

    with_it, without = differentiate(build(True), loss), differentiate(build(False), loss)
    assert [n.name for n in with_it.nodes] == [n.name for n in without.nodes]
    assert with_it.notes and not without.notes
    assert last.lower() in inference_graph(with_it).nodes[-1].name


def test_a_weight_used_twice_gets_the_sum_of_its_gradients(tmp_path: Path) -> None:
    graph = differentiate(import_onnx(shared_weights(tmp_path)))
    made = graph.producer[graph.gradients["w0"]]
    assert made.name == "w0/grad_sum" and len(made.inputs) == 2


def test_an_unknown_loss_or_output_is_named(tmp_path: Path) -> None:
    model = chain(tmp_path)
    with pytest.raises(UsageError, match="unknown loss 'hinge'"):
        differentiate(model, "hinge")
    with pytest.raises(UsageError, match="no output 'logits'"):
        differentiate(model, output="logits")
