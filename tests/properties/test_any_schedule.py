"""Whatever a legal schedule does, the bits stay those of keep_all; and what is no legal schedule shows.

The interpreter runs each program on an arena whose freed bytes are NaN. So a tensor that is read after
its bytes were given up, a page that is read before it was written, or two tensors in one place come out
at the loss, or in the parameters.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from poetgen.autodiff import Adam, Optimizer, Sgd, differentiate
from poetgen.errors import FitError
from poetgen.graph import TrainingGraph
from poetgen.interpreter import Machine, NonFiniteLossError, digest
from poetgen.memory import BadPlacement, place
from poetgen.memory import check as check_placement
from poetgen.onnx_import import import_onnx
from poetgen.op import Array
from poetgen.pipeline import streamable
from poetgen.program import Program, Step
from poetgen.schedule import Compute, Move, check
from tests.any_schedule import any_schedule, tightened
from tests.onnx_nets import branches, shared_weights
from tests.parity.nets import DATA, compiled, costed, program

STEPS, SEED, LR = 2, 7, 0.01
ROOM = 1 << 20
"""Bytes of RAM for which tiles are chosen."""


@dataclass(frozen=True)
class Case:
    """A network, how it trains, and how many schedules to draw."""

    net: str
    optimizer: Optimizer
    schedules: int
    loss: str = "cross_entropy"
    streaming: bool = False
    """In rows layout, gradients fused with updates, some nodes on operands in the store."""

    @property
    def name(self) -> str:
        return f"{self.net}-streamed" if self.streaming else self.net

    def graph(self, folder: Path) -> TrainingGraph:
        made = {"shared": shared_weights, "branches": branches}
        path = made[self.net](folder) if self.net in made else DATA / f"{self.net}.onnx"
        return differentiate(import_onnx(path), self.loss, self.optimizer)


CASES = (
    Case("conv1d_frozen", Sgd(momentum=0.9), 80),
    Case("shared", Adam(), 80),
    Case("branches", Sgd(), 60),
    Case("mlp_mse", Adam(), 100, "mse"),
    Case("separable_adam", Sgd(momentum=0.5), 40),
    Case("residual_bn", Sgd(momentum=0.9), 12),
    Case("conv1d_frozen", Sgd(momentum=0.9), 30, streaming=True),
    Case("conv2d_grouped", Sgd(), 40, streaming=True),
    Case("branches", Adam(), 40, streaming=True),
    Case("residual_bn", Sgd(), 8, streaming=True),
)


def feed(graph: TrainingGraph, step: int) -> tuple[dict[str, Array], Array]:
    rng = np.random.default_rng(step)
    x = rng.standard_normal(graph.model.spec("x").shape).astype(np.float32)
    (y,) = graph.of_kind("label")
    if y.spec.dtype == "i32":
        classes = graph.model.spec(graph.output).shape[1]
        return {"x": x}, rng.integers(0, classes, y.spec.shape).astype(np.int32)
    return {"x": x}, rng.standard_normal(y.spec.shape).astype(np.float32)


def life(made: Program) -> Iterator[tuple[str, object]]:
    """What a machine gives in training with inference and evaluation in between, bit by bit."""
    graph = made.costed.training
    machine = Machine.start(made, seed=SEED)
    for step in range(STEPS):
        inputs, label = feed(graph, step)
        yield f"loss of step {step}", machine.train_step(inputs, label, LR)
        if step == 0:
            yield "output", machine.infer(inputs).tobytes()
            yield "evaluation", machine.evaluate(inputs, label)
        yield f"parameters after step {step}", digest(machine.parameters())


def train(made: Program) -> tuple[float, str]:
    """Last loss, and digest of the parameters; a NaN stops it."""
    *_, (_, loss), (_, parameters) = life(made)
    assert isinstance(loss, float) and isinstance(parameters, str)
    return loss, parameters


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in CASES])
def test_any_legal_schedule_gives_the_bits_of_keep_all(case: Case, tmp_path: Path) -> None:
    graph = case.graph(tmp_path)
    priced = costed(graph)
    if case.streaming:
        priced = costed(streamable(graph), ROOM, streaming=True)
    wanted = dict(life(program(graph)))
    seen: Counter[str] = Counter()
    for seed in range(case.schedules):
        schedule = any_schedule(priced, seed)
        verdict = check(schedule)
        if seed % 2:
            schedule = tightened(schedule)
        try:
            made = compiled(schedule)
            seen["tight"] += seed % 2
        except FitError:
            assert seed % 2, f"the schedule of seed {seed} has no budget and does not fit"
            seen["too tight"] += 1
            continue
        for what, got in life(made):
            assert got == wanted[what], f"{what} differs under the schedule of seed {seed}"
        seen["recomputes"] += verdict.recomputes
        seen["pages in"] += verdict.pages_in
        seen["pages out"] += verdict.pages_out
        actions = made.train.plan.schedule.actions if made.train else ()
        runs = [a for a in actions if isinstance(a, Compute)]
        seen["streams"] += sum(bool(priced.variants[a.node][a.variant].streamed) for a in runs)
        seen["in place"] += sum(a.in_place is not None for a in runs)
        seen["moves"] += sum(isinstance(a, Move) for a in actions)
        seen["cyclic homes"] += len(set(schedule.resident) - {m.tensor for m in made.members})
        seen["homes in RAM"] += len(made.members)
        seen["homes in the store"] += len(made.stored)
    print(case.name, dict(seen))
    always = (
        "recomputes",
        "pages in",
        "pages out",
        "in place",
        "cyclic homes",
        "homes in RAM",
        "homes in the store",
    )
    assert all(seen[what] >= case.schedules for what in always), seen
    assert seen["streams"] > case.schedules if case.streaming else not seen["streams"]
    assert seen["tight"] > 5 * seen["too tight"]
    if case.name in ("separable_adam", "residual_bn"):
        assert seen["moves"] > 0


def with_step(made: Program, number: int, step: Step) -> Program:
    assert made.train is not None
    steps = tuple(step if s.number == number else s for s in made.train.steps)
    return replace(made, train=replace(made.train, steps=steps))


def mutants(made: Program) -> Iterator[tuple[str, Program]]:
    """Programs with one fault each: a tensor freed before its last reader, a page not brought in."""
    assert made.train is not None
    steps = made.train.steps
    for before, step in itertools.pairwise(steps):
        for freed in step.frees:
            if all(o.tensor != freed.tensor for o in (*step.inputs, *before.outputs)):
                continue
            early = with_step(made, before.number, replace(before, frees=(*before.frees, freed)))
            yield f"{freed.tensor} is freed before step {step.number}", early
        if step.verb == "page in":
            skipped = replace(step, verb="move", inputs=step.outputs)
            yield (
                f"{step.outputs[0].tensor} is not paged in at step {step.number}",
                with_step(made, step.number, skipped),
            )


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in CASES[:4]])
def test_a_fault_behind_the_judges_back_shows_in_the_bits(case: Case, tmp_path: Path) -> None:
    graph = case.graph(tmp_path)
    made = [program(graph), compiled(any_schedule(costed(graph), 1))]
    wanted = train(made[0])
    count, blind = 0, []
    for what, mutant in (m for p in made for m in mutants(p)):
        count += 1
        try:
            seen = train(mutant) != wanted
        except NonFiniteLossError:
            seen = True
        if not seen:
            blind.append(what)
    assert count >= 20
    assert not blind, f"of {count} faults the bits do not show: {'; '.join(blind)}"


def test_two_tensors_in_one_place_are_refused_by_the_judge_of_placements(tmp_path: Path) -> None:
    graph = CASES[0].graph(tmp_path)
    plan = place(any_schedule(costed(graph), 1))
    refused = 0
    for k, r in enumerate(plan.residencies):
        others = [
            o
            for o in plan.residencies
            if o is not r and o.born < r.dies and r.born < o.dies and o.nbytes >= r.nbytes
        ]
        for other in others[:1]:
            moved = replace(r, offset=other.offset)
            residencies = (*plan.residencies[:k], moved, *plan.residencies[k + 1 :])
            with pytest.raises(BadPlacement) as bad:
                check_placement(replace(plan, residencies=residencies))
            assert bad.value.rule in ("overlap", "moved home")
            refused += 1
    assert refused > 20
