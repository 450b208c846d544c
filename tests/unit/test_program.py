"""Lowering: the RAM table, names, homes, and what each step says in C and to the interpreter."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from poetgen.autodiff import Adam, Sgd, differentiate
from poetgen.cost import aligned
from poetgen.graph import Kind, TrainingGraph
from poetgen.onnx_import import import_onnx
from poetgen.program import Program, c_number, static_bytes
from poetgen.schedule import Compute, Free, PageIn, PageOut, check
from poetgen.schedule.baselines import keep_all, page_all, recompute_all
from tests.any_schedule import any_schedule
from tests.onnx_nets import OnnxNet, branches, shared_weights
from tests.parity.nets import DATA, compiled, costed, program


@pytest.fixture
def graph(tmp_path: Path) -> TrainingGraph:
    return differentiate(import_onnx(shared_weights(tmp_path)), optimizer=Sgd(0.9))


def drawn(graph: TrainingGraph, count: int = 12) -> list[Program]:
    return [compiled(any_schedule(costed(graph), seed)) for seed in range(count)]


def test_the_ram_table_is_what_the_schedule_needs_and_what_lies_beside_it(graph: TrainingGraph) -> None:
    for made in drawn(graph):
        assert made.train is not None
        plan = made.train.plan
        homes = sum(aligned(m.spec.nbytes) for m in made.members)
        beside = static_bytes(graph.of_kind("input", "label"), made.store.sector_bytes)
        assert made.peak_bytes == made.arena_bytes + homes + beside
        assert made.arena_bytes == max(f.plan.arena_bytes for f in made.functions)
        if made.arena_bytes == plan.lower_bound_bytes:
            assert made.peak_bytes == check(plan.schedule).peak_bytes + beside


def test_the_ram_table_tells_parameters_states_and_statistics_apart(graph: TrainingGraph) -> None:
    rows = {r.what: r.nbytes for r in program(graph).ram}
    kinds: tuple[tuple[str, Kind], ...] = (
        ("parameters in RAM", "param"),
        ("optimizer state in RAM", "state"),
        ("batch-norm statistics in RAM", "statistic"),
    )
    for what, kind in kinds:
        assert rows[what] == sum(aligned(t.spec.nbytes) for t in graph.of_kind(kind)) > 0


def test_what_persists_has_one_home(graph: TrainingGraph) -> None:
    persistent = {t.name for t in graph.tensors.values() if t.persistent}
    for made in drawn(graph):
        members, stored = {m.tensor for m in made.members}, {t.name for t in made.stored}
        assert members | stored == persistent and not members & stored
        assert {m.tensor for m in made.frozen} == {t.name for t in graph.of_kind("const")} - persistent


def test_names_in_c_are_identifiers_and_no_two_are_one(graph: TrainingGraph) -> None:
    made = compiled(any_schedule(costed(graph), 4))
    for function in made.functions:
        pointers = [p.c for p in function.pointers]
        assert len(set(pointers)) == len(pointers)
        assert all(re.fullmatch(r"[A-Za-z_]\w*", c) for c in pointers)
    members = [m.c for m in made.members]
    assert len(set(members)) == len(members)


def test_weights_whose_names_differ_only_in_punctuation_keep_two_names(tmp_path: Path) -> None:
    net = OnnxNet((2, 3))
    first, second = (net.constant(net.weights.pop(net.weight(3, 3)), name) for name in ("w.a", "w/a"))
    out = net.op("MatMul", net.op("Relu", net.op("MatMul", "x", first)), second)
    made = program(differentiate(net.model(out, tmp_path)))
    assert len({m.c for m in made.members}) == 2


def test_steps_are_the_actions_in_order(graph: TrainingGraph) -> None:
    verbs = {PageIn: ("page in",), PageOut: ("page out", "write back")}
    for made in drawn(graph):
        assert made.train is not None
        actions = [a for a in made.train.plan.schedule.actions if not isinstance(a, Free)]
        assert [s.number for s in made.train.steps] == [*range(len(actions))]
        for action, step in zip(actions, made.train.steps, strict=True):
            if isinstance(action, Compute):
                assert step.node is graph.node[action.node]
                assert (step.verb == "in place") <= (action.in_place is not None)
            else:
                assert step.node is None and step.verb in verbs[type(action)]


def test_a_node_that_runs_again_is_called_a_recompute() -> None:
    made = program(differentiate(import_onnx(DATA / "conv2d_grouped.onnx")), recompute_all)
    assert made.train is not None
    seen: set[str] = set()
    for step in made.train.steps:
        assert step.node is not None
        assert (step.verb == "recompute") == (step.node.name in seen)
        seen.add(step.node.name)
    assert len(seen) < len(made.train.steps)


def test_every_pointer_is_a_residency_and_lives_while_it_is_used(graph: TrainingGraph) -> None:
    for made in drawn(graph, 6):
        for function in made.functions:
            places = {(r.offset, r.nbytes) for r in function.plan.residencies}
            assert {(p.offset, p.nbytes) for p in function.pointers} <= places
            for p in function.pointers:
                used = [s.number for s in function.steps if re.search(rf"\b{p.c}\b", " ".join(s.statements))]
                assert (p.first, p.last) == (used[0], used[-1])


def test_the_loss_ends_a_step_of_training_alone(graph: TrainingGraph) -> None:
    made = program(graph)
    ends = {f.name: sum("POET_ENONFINITE" in " ".join(s.statements) for s in f.steps) for f in made.functions}
    assert ends == {"train_step": 1, "infer": 0, "evaluate": 0}


def test_inference_draws_nothing_and_changes_nothing(tmp_path: Path) -> None:
    made = program(differentiate(import_onnx(shared_weights(tmp_path)), optimizer=Adam()), page_all)
    for function in (made.infer, made.evaluate):
        assert function is not None
        assert not any(s.node.op.mutates for s in function.steps if s.node)
        assert "dropout" not in "".join("".join(s.statements) for s in function.steps)
        assert not any(s.verb in ("write back", "update") for s in function.steps)


def test_equal_layers_share_their_constants(tmp_path: Path) -> None:
    net = OnnxNet((2, 4, 5, 5))
    a = net.op("Conv", "x", net.weight(4, 4, 3, 3), pads=[1] * 4)
    b = net.op("Conv", net.op("Relu", a), net.weight(4, 4, 3, 3), pads=[1] * 4)
    made = program(differentiate(net.model(net.dense(net.op("Flatten", b), 100, 3), tmp_path)))
    convolutions = [c for c in made.infer.constants if c.ctype == "struct poet_conv2d"]
    assert len(convolutions) == 1


def test_kernels_are_those_that_the_steps_call(tmp_path: Path) -> None:
    made = program(differentiate(import_onnx(branches(tmp_path))), keep_all)
    text = "".join("".join(s.statements) for f in made.functions for s in f.steps)
    assert {k.symbol for k in made.kernels} == set(re.findall(r"\bpoet_\w+_f32\b|\bpoet_count_\w+\b", text))


def test_the_same_schedule_gives_the_same_program(graph: TrainingGraph) -> None:
    one, two = drawn(graph, 2), drawn(graph, 2)
    for a, b in zip(one, two, strict=True):
        assert a.layout_sha256 == b.layout_sha256
        assert [f.steps for f in a.functions] == [f.steps for f in b.functions]
        assert [f.pointers for f in a.functions] == [f.pointers for f in b.functions]


def test_numbers_in_c_are_whole_or_have_all_their_bits() -> None:
    assert (c_number(3), c_number(-1)) == ("3", "-1")
    for value in (0.1, 1 / 3, -2.5e-7, 1.0):
        literal = re.match(r"(-?0x[0-9a-f.]+p[+-]\d+)f\b", c_number(value))
        assert literal and np.float32(float.fromhex(literal[1])) == np.float32(value)
