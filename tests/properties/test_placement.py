"""Placed schedules: every placement passes its judge and stays within the budget it was given."""

import pytest

from poetgen.cost import CostedGraph
from poetgen.memory import MemoryPlan, check, place
from poetgen.schedule import Move, Schedule
from poetgen.schedule import check as judge
from poetgen.schedule.baselines import keep_all, page_all
from tests.schedule_graphs import random_net, with_ram

BASELINES = (keep_all, page_all)


def schedules(seed: int) -> list[Schedule]:
    costed: CostedGraph = random_net(seed).costed()
    made = [b(costed) for b in BASELINES]
    return [s for s in made if s is not None]


@pytest.mark.parametrize("seed", range(40))
def test_a_placement_passes_its_judge_and_reaches_no_lower_than_its_bound(seed: int) -> None:
    for schedule in schedules(seed):
        plan = place(schedule)
        assert check(plan) == plan.arena_bytes >= plan.lower_bound_bytes


@pytest.mark.parametrize("seed", range(40))
def test_at_a_budget_of_the_live_bytes_moves_make_it_fit(seed: int) -> None:
    """The tightest budget that a schedule can have: fragmentation has nowhere to go."""
    for schedule in schedules(seed):
        peak = judge(schedule).peak_bytes
        tight = Schedule(
            with_ram(schedule.costed, peak),
            schedule.actions,
            schedule.resident,
            schedule.solved,
            schedule.strategy,
        )
        plan: MemoryPlan = place(tight)
        homes = sum(schedule.costed.nbytes(t) for t in plan.in_ram)
        assert check(plan) + homes <= peak
        judge(plan.schedule)
        if any(isinstance(a, Move) for a in plan.schedule.actions):
            assert judge(plan.schedule).peak_bytes <= peak
