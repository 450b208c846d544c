"""The interpreter: what it poisons, what a step leaves behind, what is told of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from poetgen.autodiff import Adam, Sgd, differentiate, inference_only
from poetgen.graph import TrainingGraph
from poetgen.interpreter import POISON, Machine, NonFiniteLossError, check_word, digest
from poetgen.memory import place
from poetgen.onnx_import import import_onnx
from poetgen.op import Array
from poetgen.program import Program, Step, lower
from poetgen.schedule import Schedule
from poetgen.schedule.baselines import keep_all, page_all
from poetgen.schedule.inference import plan_forward
from tests.any_schedule import any_schedule
from tests.onnx_nets import OnnxNet, branches, shared_weights
from tests.parity.nets import Walk, compiled, costed, program

LR = 0.05


def graph_of(net: Callable[[Path], Path], folder: Path, optimizer: Sgd | Adam | None = None) -> TrainingGraph:
    return differentiate(import_onnx(net(folder)), optimizer=optimizer)


def feed(graph: TrainingGraph, seed: int = 0) -> tuple[dict[str, Array], Array]:
    rng = np.random.default_rng(seed)
    (label,) = graph.of_kind("label")
    x = rng.standard_normal(graph.model.spec("x").shape).astype(np.float32)
    return {"x": x}, rng.integers(0, 3, label.spec.shape).astype(np.int32)


@pytest.mark.parametrize("net", [shared_weights, branches])
def test_it_computes_what_the_graph_says(net: Callable[[Path], Path], tmp_path: Path) -> None:
    """Node by node without arena or schedule: the same bits."""
    graph = graph_of(net, tmp_path, Adam())
    walk, machine = Walk(graph, np.float32, seed=5), Machine.start(program(graph), seed=5)
    for step in range(3):
        inputs, label = feed(graph, step)
        assert machine.train_step(inputs, label, LR) == walk.train_step(inputs, label, LR)[graph.loss]
    persistent = {t.name: walk.values[t.name] for t in graph.tensors.values() if t.persistent}
    assert machine.parameters().keys() == persistent.keys()
    assert digest(machine.parameters()) == digest(persistent)


@pytest.mark.parametrize("strategy", [keep_all, page_all])
def test_after_a_step_every_byte_of_the_arena_that_nobody_owns_is_poison(
    strategy: Callable[..., Schedule | None], tmp_path: Path
) -> None:
    graph = graph_of(branches, tmp_path, Sgd(0.9))
    made = program(graph, strategy)
    machine = Machine.start(made)
    machine.train_step(*feed(graph), LR)
    assert made.arena_bytes and (machine.arena == POISON).all()


def test_poison_is_no_number_and_no_index() -> None:
    raw = np.full(4, POISON, np.uint8)
    assert np.isnan(raw.view(np.float32)[0]) and int(raw[0]) > 9 * 9


def test_initial_values_can_be_given(tmp_path: Path) -> None:
    graph = graph_of(shared_weights, tmp_path)
    ones = {p: np.ones_like(graph.initial[p]) for p in graph.gradients}
    for strategy in (keep_all, page_all):
        machine = Machine.start(program(graph, strategy), ones)
        assert all((machine.parameters()[p] == 1).all() for p in graph.gradients)
        machine.train_step(*feed(graph), LR)
        assert not all((machine.parameters()[p] == 1).all() for p in graph.gradients)


def test_the_seed_is_of_the_masks_and_the_step_moves_them(tmp_path: Path) -> None:
    graph = graph_of(shared_weights, tmp_path)
    made = program(graph)
    inputs, label = feed(graph)

    def losses(seed: int) -> list[float]:
        machine = Machine.start(made, seed=seed)
        return [machine.train_step(inputs, label, 0.0) for _ in range(3)]

    assert losses(1) == losses(1) and losses(1) != losses(2)
    assert len(set(losses(1))) == 3  # nothing is learned: only the masks differ


def test_inference_and_evaluation_change_nothing(tmp_path: Path) -> None:
    graph = graph_of(shared_weights, tmp_path, Adam())
    for seed in range(8):
        made = compiled(any_schedule(costed(graph), seed))
        quiet, busy = Machine.start(made), Machine.start(made)
        for step in range(2):
            inputs, label = feed(graph, step)
            first, before = busy.infer(inputs), busy.evaluate(inputs, label)
            assert np.array_equal(first, busy.infer(inputs)) and before == busy.evaluate(inputs, label)
            assert quiet.train_step(inputs, label, LR) == busy.train_step(inputs, label, LR)
        assert digest(quiet.parameters()) == digest(busy.parameters())


def test_evaluation_counts_the_samples_whose_largest_output_is_the_label(tmp_path: Path) -> None:
    graph = graph_of(branches, tmp_path)
    machine = Machine.start(program(graph))
    inputs, label = feed(graph)
    winners = machine.infer(inputs).argmax(1)
    wrong = (winners + 1) % 3
    assert machine.evaluate(inputs, winners.astype(np.int32))[1] == len(label)
    assert machine.evaluate(inputs, np.array([winners[0], wrong[1]], np.int32))[1] == 1
    assert machine.evaluate(inputs, wrong.astype(np.int32))[1] == 0


def test_a_loss_that_is_not_finite_leaves_the_machine_as_it_was(tmp_path: Path) -> None:
    """Also persistent tensors whose bytes the step had given up: they are brought back."""
    graph = graph_of(branches, tmp_path, Sgd(0.9))
    rescued = 0
    for seed in range(40):
        made = compiled(any_schedule(costed(graph), seed))
        assert made.train is not None
        rescued += sum(len(s.rescues) for s in made.train.steps)
        smooth, hit = Machine.start(made), Machine.start(made)
        inputs, label = feed(graph)
        for machine in (smooth, hit):
            machine.train_step(inputs, label, LR)
        with pytest.raises(NonFiniteLossError):
            hit.train_step({"x": np.full_like(inputs["x"], np.nan)}, label, LR)
        assert np.array_equal(hit.infer(inputs), smooth.infer(inputs))
        assert hit.train_step(inputs, label, LR) == smooth.train_step(inputs, label, LR)
        assert digest(hit.parameters()) == digest(smooth.parameters())
    assert rescued > 10


def test_a_trace_tells_each_step_with_what_it_made(tmp_path: Path) -> None:
    graph = graph_of(branches, tmp_path)
    made = program(graph)
    told: list[tuple[Step, tuple[Array, ...]]] = []
    Machine.start(made).train_step(*feed(graph), LR, lambda *one: told.append(one))
    assert [s.node.name for s, _ in told if s.node] == [n.name for n in graph.nodes]
    for step, values in told:
        assert step.node is not None
        written = step.node.mutates or step.node.outputs
        assert [v.size for v in values] == [graph.tensors[t].spec.size for t in written]


def test_a_model_without_parameters_infers(tmp_path: Path) -> None:
    net = OnnxNet((2, 3, 4, 4))
    graph = inference_only(net.model(net.op("GlobalAveragePool", net.op("Relu", "x")), tmp_path))
    made: Program = lower(None, place(plan_forward(costed(graph), ())))
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
    means = np.maximum(x, 0).mean((2, 3), keepdims=True)
    assert np.allclose(Machine.start(made).infer({"x": x}), means, atol=1e-6)
    assert Machine.start(made).parameters() == {}


def test_a_digest_is_of_bytes_in_the_bytewise_order_of_names() -> None:
    values: dict[str, Array] = {
        "b": np.array([1, 2], np.float32),
        "B": np.array([3], np.float32),
        "a.1": np.zeros((1, 1)),
    }
    raw = b"".join(np.asarray(values[n], "<f4").tobytes() for n in ("B", "a.1", "b"))
    assert digest(values) == hashlib.sha256(raw).hexdigest()
    assert digest(values) != digest(values | {"b": np.array([1, -0.0], np.float32)})


def test_a_check_word_is_fnv_over_words_padded_with_zeros() -> None:
    def fnv(*words: int) -> int:
        h = 2166136261
        for w in words:
            h = (h ^ w) * 16777619 % 2**32
        return h

    assert check_word(np.array([1, 2], np.int32)) == fnv(1, 2)
    assert check_word(np.array([1, 2, 3, 4, 5], np.uint8)) == fnv(0x04030201, 5)


def test_a_step_that_is_left_out_is_missed(tmp_path: Path) -> None:
    """The arena remembers nothing: without its first step a program has no loss."""
    graph = graph_of(branches, tmp_path)
    made = program(graph)
    assert made.train is not None
    cut = replace(made, train=replace(made.train, steps=made.train.steps[1:]))
    with pytest.raises(NonFiniteLossError):
        Machine.start(cut).train_step(*feed(graph), LR)
