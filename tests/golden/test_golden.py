"""A stored schedule gives the same C to the letter, as long as nobody means to change it.

`pytest --update-golden` writes what is compared with; look at the difference before it goes in. It makes a
schedule again only where the stored one is none of its graph any more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from poetgen.cost import Budget, CostedGraph
from poetgen.emit import emit
from poetgen.errors import PoetgenError
from poetgen.memory import place
from poetgen.schedule import Move, Schedule
from poetgen.schedule.baselines import keep_all, page_all
from poetgen.schedule.plan_json import from_json, to_json
from tests.any_schedule import any_schedule, tightened
from tests.conftest import Golden
from tests.parity.nets import DATA, Oracle, compiled, costed

HERE = Path(__file__).parent
BOARD = "qemu_mps2_an386"


def tight(costed: CostedGraph) -> Schedule | None:
    """Pages and recomputes: the first drawn schedule that has to move something to fit its budget, and
    between whose training steps something stays in the arena that leaves it during one.
    """
    for seed in range(1000):
        schedule = tightened(any_schedule(costed, seed))
        try:
            placed = place(schedule)
        except PoetgenError:  # cannot be laid out in so little
            continue
        stays = set(placed.in_store) & set(schedule.resident)
        if stays and any(isinstance(a, Move) for a in placed.schedule.actions):
            return schedule
    return None


@dataclass(frozen=True)
class Case:
    """A network of tests/data, how its schedule was made, and which files are compared."""

    net: str
    strategy: Callable[[CostedGraph], Schedule | None]
    files: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return HERE / f"{self.net}_{self.strategy.__name__}"


CASES = (
    Case("mlp_mse", keep_all, ("{}.h", "{}_internal.h", "{}.c", "{}_train_step.c", "{}_infer.c", "main.c")),
    Case("mlp_mse", page_all, ("{}.h", "{}.c", "trace/{}_train_step.c", "README.md", "CMakeLists.txt")),
    Case("residual_bn", tight, ("{}.h", "{}.c", "{}_train_step.c")),
    Case("conv1d_frozen", tight, ("{}.h", "{}_train_step.c", "{}_infer.c")),
)


def stored(case: Case, updates: bool) -> Schedule:
    """The schedule of plan.json. What it was costed at is no part of what is tested."""
    file = case.folder / "plan.json"
    graph = Oracle(DATA / f"{case.net}.onnx").graph()
    if file.exists():
        kept = json.loads(file.read_text())
        now = costed(graph, kept["ram_bytes"], BOARD)
        any_plan = keep_all(costed(graph, None, BOARD))
        assert any_plan is not None
        same = json.loads(to_json(any_plan))
        kept |= {k: same[k] for k in ("graph_sha256", "costs_sha256", "static_bytes")}
        try:
            return from_json(json.dumps(kept), now)
        except PoetgenError as error:
            if not updates:
                pytest.fail(f"the stored schedule is none any more: {error}; pytest --update-golden")
    assert updates, f"there is no {file.name} yet: pytest --update-golden"
    schedule = case.strategy(costed(graph, None, BOARD))
    assert schedule is not None, f"no schedule of {case.net} moves anything"
    case.folder.mkdir(exist_ok=True)
    file.write_text(to_json(schedule), newline="\n")
    return schedule


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.folder.name)
def test_the_c_of_a_stored_schedule(case: Case, golden: Golden, updates_golden: bool) -> None:
    program = compiled(stored(case, updates_golden))
    tree = emit(program, ("what the plan costs stands here",), version="0")
    assert tree.files == emit(program, ("what the plan costs stands here",), version="0").files
    for pattern in case.files:
        name = pattern.format(program.name)
        text = tree.files[name]
        assert isinstance(text, str)
        golden(case.folder / f"{name.replace('/', '-')}.txt", text)


def test_between_them_the_stored_schedules_show_every_kind_of_step() -> None:
    verbs = {
        step.verb
        for case in CASES
        for function in compiled(stored(case, False)).functions
        for step in function.steps
    }
    assert verbs == {
        *("compute", "in place", "recompute", "update"),
        *("page in", "page out", "write back", "move", "restore"),
    }


def test_a_budget_is_no_part_of_the_text() -> None:
    """So that a golden text does not change with prices."""
    case = CASES[0]
    schedule = stored(case, False)
    richer = Schedule(
        costed(schedule.costed.training, None, BOARD),
        schedule.actions,
        schedule.resident,
        schedule.solved,
        "",
    )
    assert richer.costed.budget == Budget(None)
    assert emit(compiled(richer)).files == emit(compiled(schedule)).files
