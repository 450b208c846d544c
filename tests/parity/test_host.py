"""C on this computer, under the sanitizers, computes what the interpreter computes, tensor by tensor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from poetgen import pipeline
from poetgen.errors import FitError
from poetgen.interpreter import Machine
from poetgen.pipeline import Options
from poetgen.run import Job, run
from poetgen.schedule import Schedule, check
from poetgen.schedule.plan_json import to_json
from poetgen.verify import verify
from tests.any_schedule import any_schedule, tightened
from tests.parity.builds import (
    BUDGETS,
    HOST,
    STEPS,
    batches,
    first_difference,
    generated,
    options,
    same,
    touched_bytes,
    trained,
    truth,
    within,
)

SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all"
OTHERS = (
    "conv1d_frozen",
    "conv2d_grouped",
    "residual_bn",
    "separable_adam",
    "mlp_mse",
    "tokens",
    "transformer",
)
SLOW = pytest.mark.slow
ROOM = 1 << 20
"""Bytes of RAM for which streams choose their tiles."""


@pytest.fixture
def sanitized(monkeypatch: pytest.MonkeyPatch) -> None:
    """CMake takes a new build's first flags from here."""
    monkeypatch.setenv("CFLAGS", SANITIZERS)
    monkeypatch.setenv("LDFLAGS", SANITIZERS)


@pytest.mark.parametrize(
    ("net", "budget"),
    [
        *(("watch", b) for b in BUDGETS),
        *((net, "half_way") for net in OTHERS),
        *(pytest.param(net, b, marks=SLOW) for net in OTHERS for b in ("keep_all", "min_ram")),
    ],
)
@pytest.mark.usefixtures("sanitized")
def test_every_tensor_of_every_step_has_the_interpreters_bits(net: str, budget: str, tmp_path: Path) -> None:
    program, project = generated(within(options(net, tmp_path), budget), tmp_path / net)
    found = verify(program, project, HOST, Job(batches(project), STEPS))
    assert found.differences == (), found.differences[0].error().message
    assert (found.training_steps, found.nonfinite) == (STEPS, False)
    ours = trained(program, batches(project), project.lr)
    assert same(ours, truth(net)), first_difference(ours, truth(net))


def drawn(net: str, folder: Path, seed: int, *, stream: bool = False) -> tuple[Options, Schedule]:
    """A random schedule, within a budget of exactly its need; with streams, whose tiles a budget chooses."""
    if stream:
        wanted = replace(options(net, folder), ram_bytes=ROOM, stream="on")
        return wanted, any_schedule(pipeline.priced(pipeline.read_model(wanted), wanted), seed)
    wanted = options(net, folder)
    schedule = tightened(any_schedule(pipeline.priced(pipeline.read_model(wanted), wanted), seed))
    return replace(wanted, ram_bytes=schedule.costed.budget.ram_bytes), schedule


@pytest.mark.parametrize("seed", [3, *(pytest.param(s, marks=SLOW) for s in range(20, 30))])
@pytest.mark.parametrize(
    ("net", "stream"),
    [("shared", False), ("residual_bn", False), ("branches", True), ("conv2d_grouped", True)],
)
@pytest.mark.usefixtures("sanitized")
def test_the_c_of_any_legal_schedule_has_the_bits_of_keep_all(
    net: str, stream: bool, seed: int, tmp_path: Path
) -> None:
    while True:
        wanted, schedule = drawn(net, tmp_path, seed, stream=stream)
        try:
            program, project = generated(wanted, tmp_path / net, to_json(schedule))
            break
        except FitError:  # its need to the byte leaves no way to lay it out: another draw
            seed += 1000
    verdict = check(schedule)
    assert verdict.recomputes and verdict.pages_in and verdict.pages_out
    job = Job(batches(project), STEPS)
    found = verify(program, project, HOST, job)
    assert found.differences == (), found.differences[0].error().message
    ours = trained(program, job.data, project.lr)
    assert same(ours, truth(net)), first_difference(ours, truth(net))


@pytest.mark.parametrize(("net", "stream"), [("shared", False), ("branches", False), ("branches", True)])
def test_any_legal_schedule_trains_the_same_and_uses_the_arena_to_the_predicted_byte(
    net: str, stream: bool, tmp_path: Path
) -> None:
    wanted, schedule = drawn(net, tmp_path, 8, stream=stream)
    program, project = generated(wanted, tmp_path / net, to_json(schedule))
    result = run(project, HOST, Job(batches(project), STEPS))
    assert result.arena_bytes_measured == touched_bytes(program)
    assert same(dict(result.parameters), truth(net)), first_difference(dict(result.parameters), truth(net))


@pytest.mark.parametrize("net", ["watch", "residual_bn"])
def test_evaluation_on_the_target_is_the_interpreters(net: str, tmp_path: Path) -> None:
    program, project = generated(within(options(net, tmp_path), "min_ram"), tmp_path / net)
    data = batches(project)
    result = run(project, HOST, Job(data, STEPS, eval_data=data, measure=False))
    machine = Machine.start(program)
    for metrics in (result.outcome.before, result.outcome.after):
        losses, hits = 0.0, 0
        for k in range(data.count):
            feed = data.take(data.rows_of(k))
            loss, correct = machine.evaluate({n: a for n, a in feed.items() if n != "y"}, feed["y"])
            losses += loss * project.batch
            hits += correct or 0
        assert metrics.count == data.rows and metrics.correct == hits
        assert metrics.loss_sum == pytest.approx(losses, rel=1e-6)
        for k in range(STEPS):
            feed = data.take(data.rows_of(k))
            machine.train_step({n: a for n, a in feed.items() if n != "y"}, feed["y"], project.lr)
