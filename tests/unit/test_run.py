"""A run is what the target computed on exactly the rows that were asked for, and is measured honestly."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from poetgen import pipeline
from poetgen.boards import board
from poetgen.build import build, where_to_run
from poetgen.data import random_batches, read_batches
from poetgen.errors import FitError, ParityError, TargetError, UsageError
from poetgen.interpreter import Machine, digest
from poetgen.pipeline import Options
from poetgen.project import Project, open_project
from poetgen.run import Job, RunResult, run
from poetgen.verify import verify
from tests import toy

M4F = "qemu_mps2_an386"
LR = 0.1


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy for the M4F twice: everything in RAM, and at the least RAM."""
    folder = tmp_path_factory.mktemp("shelf")
    options = Options(toy.write_model(folder / "toy.onnx"), M4F, lr=LR, momentum=0.5)
    pipeline.generate(options, folder / "roomy")
    least, _ = pipeline.least_ram(options)
    pipeline.generate(Options(options.model, M4F, lr=LR, momentum=0.5, ram_bytes=least), folder / "tight")
    pipeline.generate(Options(options.model, M4F, lr=LR), folder / "plain")
    toy.write_data(folder / "data.npz")
    return folder


@pytest.fixture
def own(shelf: Path, tmp_path: Path) -> Path:
    """A project of one's own, to break."""
    shutil.copytree(shelf / "roomy", tmp_path / "net", ignore=shutil.ignore_patterns("build"))
    return tmp_path / "net"


def trained(folder: Path, data: Path, on: str = "host", **job: Any) -> RunResult:
    project = open_project(folder)
    batches = read_batches(data, project)
    return run(project, where_to_run(project, on), Job(batches, **({"steps": 4, "measure": False} | job)))


def forward(w: Mapping[str, Any], x: Any) -> Any:
    hidden = np.maximum(x @ w["hidden.weight"].T + w["hidden.bias"], 0)
    return hidden @ w["head.weight"].T + w["head.bias"]


def test_a_step_uses_its_rows_modulo_the_data(shelf: Path, tmp_path: Path) -> None:
    with np.load(shelf / "data.npz") as data:
        twice = toy.write_data(
            tmp_path / "twice.npz", x=np.concatenate([data["x"]] * 2), y=np.concatenate([data["y"]] * 2)
        )
    once = trained(shelf / "roomy", shelf / "data.npz", steps=7)
    assert once.params_sha256 == trained(shelf / "roomy", twice, steps=7).params_sha256
    assert once.outcome.steps == len(once.losses) == 7


def test_shuffling_is_training_on_permuted_rows(shelf: Path, tmp_path: Path) -> None:
    project = open_project(shelf / "roomy")
    data = read_batches(shelf / "data.npz", project)
    rows = np.concatenate([data.rows_of(k, shuffle=5) for k in range(6)])
    permuted = toy.write_data(tmp_path / "permuted.npz", **data.take(rows))
    shuffled = trained(shelf / "roomy", shelf / "data.npz", steps=6, shuffle=5)
    assert shuffled.params_sha256 == trained(shelf / "roomy", permuted, steps=6).params_sha256
    assert shuffled.params_sha256 != trained(shelf / "roomy", shelf / "data.npz", steps=6).params_sha256


def test_the_targets_bits_are_the_interpreters(shelf: Path) -> None:
    project = open_project(shelf / "tight")
    data = read_batches(shelf / "data.npz", project)
    machine = Machine.start(pipeline.load(shelf / "tight").program)
    losses = []
    for k in range(5):
        feed = data.take(data.rows_of(k))
        losses.append(machine.train_step({"x": feed["x"]}, feed["y"], LR))
    result = trained(shelf / "tight", shelf / "data.npz", steps=5)
    assert result.losses.tolist() == losses
    known = {n: v for n, v in machine.parameters().items() if n in toy.weights()}
    assert result.params_sha256 == digest(known)


@pytest.mark.qemu
@pytest.mark.parametrize("folder", ["roomy", "tight"])
def test_host_and_emulated_board_give_the_same_bits(shelf: Path, folder: str) -> None:
    here = trained(shelf / folder, shelf / "data.npz", steps=6)
    there = trained(shelf / folder, shelf / "data.npz", "qemu", steps=6)
    assert there.params_sha256 == here.params_sha256
    assert there.losses.tolist() == here.losses.tolist()
    assert there.outcome.stack_bytes > 0


def test_paging_is_counted_by_the_device_as_predicted(shelf: Path) -> None:
    facts = trained(shelf / "tight", shelf / "data.npz", steps=3).json()
    assert facts["pages_in"] > 0
    assert facts["page_bytes_in"] == facts["page_bytes_in_predicted"] > 0
    assert facts["page_bytes_out"] == facts["page_bytes_out_predicted"] > 0
    roomy = trained(shelf / "roomy", shelf / "data.npz", steps=3).json()
    assert roomy["page_bytes_in"] == roomy["page_bytes_out"] == 0


def test_dumped_gradients_are_what_the_first_step_subtracts(shelf: Path) -> None:
    result = trained(shelf / "plain", shelf / "data.npz", steps=1, gradients=True)
    assert set(result.gradients) == set(toy.weights())
    dumped = result.arrays()
    for name, start in toy.weights().items():
        assert (dumped[name] == start - np.float32(LR) * dumped[f"grad/{name}"]).all()


def test_the_targets_accuracy_is_that_of_its_parameters(shelf: Path) -> None:
    project = open_project(shelf / "roomy")
    data = read_batches(shelf / "data.npz", project)
    result = trained(shelf / "roomy", shelf / "data.npz", steps=12, eval_data=data)
    feed = data.take(np.arange(data.rows))
    for w, metrics in ((toy.weights(), result.outcome.before), (result.trained, result.outcome.after)):
        hits = forward(w, feed["x"]).argmax(1) == feed["y"]
        assert (metrics.correct, metrics.count) == (hits.sum(), data.rows)


def test_evaluating_changes_nothing(shelf: Path) -> None:
    data = read_batches(shelf / "data.npz", open_project(shelf / "tight"))
    with_it = trained(shelf / "tight", shelf / "data.npz", eval_data=data)
    assert with_it.params_sha256 == trained(shelf / "tight", shelf / "data.npz").params_sha256


@pytest.mark.parametrize("folder", ["roomy", "tight"])
def test_the_arena_is_measured_as_predicted(shelf: Path, folder: str) -> None:
    result = trained(shelf / folder, shelf / "data.npz", steps=0, measure=True)
    assert result.arena_bytes_measured == result.project.arena_bytes > 0


def test_a_residency_moved_behind_the_planners_back_is_measured(own: Path, shelf: Path) -> None:
    source = own / "toy_train_step.c"
    text = source.read_text()
    offsets = [int(n) for n in re.findall(r"POET_AT\(\w+, arena, (\d+)\)", text)]
    top = max(offsets)
    source.write_text(text.replace(f"arena, {top})", f"arena, {top + 64})"))
    result = trained(own, shelf / "data.npz", steps=0, measure=True)
    assert result.arena_bytes_measured == result.project.arena_bytes + 64


def test_a_run_never_touches_the_project(shelf: Path) -> None:
    folder = shelf / "tight"
    before = {p: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    first = trained(folder, shelf / "data.npz")
    assert first.params_sha256 == trained(folder, shelf / "data.npz").params_sha256
    assert {p: p.read_bytes() for p in folder.iterdir() if p.is_file()} == before


def test_a_model_without_parameters_runs_and_gives_its_outputs(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y1"], "/act")],
        "still",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y1", TensorProto.FLOAT, [2, 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "still.onnx")
    pipeline.generate(Options(tmp_path / "still.onnx", "host"), tmp_path / "net")
    x = np.arange(-6, 6, dtype=np.float32).reshape(4, 3)
    np.savez(tmp_path / "x.npz", x=x)
    result = trained(tmp_path / "net", tmp_path / "x.npz", steps=2)
    assert (result.arrays()["y1"] == np.maximum(x, 0)).all()
    with pytest.raises(UsageError, match="only infers"):
        project = open_project(tmp_path / "net")
        job = Job(random_batches(project, 1), 1)
        verify(pipeline.load(tmp_path / "net").program, project, board("host"), job)


# Verify


@pytest.mark.parametrize("on", ["host", pytest.param("qemu", marks=pytest.mark.qemu)])
def test_every_output_of_every_step_is_compared(shelf: Path, on: str) -> None:
    project = open_project(shelf / "tight")
    program = pipeline.load(shelf / "tight").program
    job = Job(random_batches(project, 3), steps=3)
    found = verify(program, project, where_to_run(project, on), job)
    assert found.differences == ()
    assert program.train is not None
    outputs = [
        operand.spec.size
        for step in program.train.steps
        if step.node is not None
        for operand in (tuple(step.inputs[i] for i in step.node.op.mutates) or step.outputs)
    ]
    assert found.values == 3 * sum(outputs)


def test_the_first_difference_is_named_to_the_value(own: Path) -> None:
    source = own / "trace" / "toy_train_step.c"
    text = source.read_text()
    (call,) = re.findall(r"poet_softmax_cross_entropy_dx_f32\(.*, (\w+)\);", text)
    broken = re.sub(
        r"(poet_softmax_cross_entropy_dx_f32\(.*\);)", rf"\1 if (m->step == 1) {call}[5] += 1.0f;", text
    )
    source.write_text(broken)
    project = open_project(own)
    program = pipeline.load(own).program
    found = verify(program, project, board("host"), Job(random_batches(project, 3), steps=3))
    (difference,) = found.differences
    assert difference.training_step == 1
    assert difference.node == "cross_entropy/dx"
    assert difference.index == (1, 2)
    assert difference.in_c == pytest.approx(difference.expected + 1)
    assert difference.differing == 1
    error = difference.error()
    assert isinstance(error, ParityError)
    assert f"step {difference.step} of the schedule" in error.message
    assert "cross_entropy/dx[1, 2]: C has" in error.message


def test_both_stop_at_a_loss_that_is_not_finite(shelf: Path) -> None:
    project = open_project(shelf / "plain")
    program = pipeline.load(shelf / "plain").program
    found = verify(program, project, board("host"), Job(random_batches(project, 9), steps=9, lr=1e30))
    assert found.nonfinite
    assert found.differences == ()
    assert found.training_steps < 9


# What goes wrong on a board


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('__asm volatile("udf #0");', ("CFSR 0x00010000", "UNDEFINSTR", "in run, main.c")),
        (
            "*(volatile int *)0xE0000000u = *(volatile int *)0x90000000u;",
            ("ERR", "no memory", "in run, main.c"),
        ),
    ],
)
def test_a_fault_is_told_in_words_with_its_line(
    own: Path, shelf: Path, line: str, words: tuple[str, ...]
) -> None:
    main = own / "main.c"
    main.write_text(
        main.read_text().replace("static int run(void)\n{", f"static int run(void)\n{{\n    {line}", 1)
    )
    with pytest.raises(TargetError) as caught:
        trained(own, shelf / "data.npz", "qemu")
    assert all(word in caught.value.message for word in words), caught.value.message


@pytest.mark.qemu
@pytest.mark.parametrize(("region", "words"), [("FLASH", "code flash"), ("RAM", "data and stack")])
def test_a_program_too_large_for_its_board_is_a_question_of_fit(own: Path, region: str, words: str) -> None:
    link = own / "board" / "link.ld"
    text, count = re.subn(rf"({region}\s*\(\w+\)\s*:.*LENGTH = )\w+", r"\g<1>2K", link.read_text())
    assert count == 1
    link.write_text(text)
    project = open_project(own)
    with pytest.raises(FitError, match=words) as caught:
        build(project, board(M4F))
    assert caught.value.exit_code == 4


def test_a_project_that_was_moved_builds_again(own: Path, tmp_path: Path) -> None:
    project = open_project(own)
    build(project, board("host"))
    own.rename(tmp_path / "elsewhere")
    moved: Project = open_project(tmp_path / "elsewhere")
    built = build(moved, board("host"))
    assert built.elf.is_relative_to(tmp_path / "elsewhere")
    assert built.elf.is_file()
