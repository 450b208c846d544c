"""Choosing a schedule, and what a person is told when there is none; plans as stored text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from poetgen.errors import DataError, FitError, UsageError
from poetgen.schedule import (
    BrokenSchedule,
    Schedule,
    check,
    from_json,
    keep_all_bytes,
    min_ram,
    plan,
    to_json,
)
from poetgen.schedule.baselines import BASELINES
from tests.schedule_graphs import Net, Pure, Update, board, random_net, with_ram


def two_layers() -> Net:
    """Sizes that read well: 6 KiB of activation, a weight and a gradient of 4 KiB."""
    net = Net()
    net.tensor("x", 1024, "input")
    net.tensor("conv.weight", 4096, "param")
    net.node("conv", Pure(), ("x", "conv.weight"), (("relu1_y", 6144),))
    net.node("pool", Pure(), ("relu1_y",), (("y", 512),))
    net.node("loss", Pure(), ("y",), (("loss", 4, "result"), ("y/grad", 512)), phase="loss")
    net.node("pool/dx", Pure(), ("y/grad",), (("relu1_dy", 6144),), phase="backward")
    net.node("conv/dw", Pure(), ("relu1_dy", "x"), (("conv.weight/grad", 4096),), phase="backward")
    net.node("conv/update", Update(), ("conv.weight", "conv.weight/grad"), phase="update")
    return net


def test_min_ram_names_the_node_that_sets_it() -> None:
    floor = min_ram(two_layers().costed())
    assert (floor.node, floor.arena_bytes, floor.exact) == ("conv", 10240, True)
    assert dict(floor.parts) == {"conv.weight": 4096, "relu1_y": 6144}


def test_keep_all_bytes_is_what_makes_paging_useless() -> None:
    costed = two_layers().costed()
    plenty = keep_all_bytes(costed)
    assert plenty == 4096 + 6144 + 4096  # weight; gradient of relu1's output; gradient of the weight
    at, below = (plan(with_ram(costed, n)) for n in (plenty, plenty - 8))
    assert (check(at).pages_in, check(below).pages_in > 0) == (0, True)
    assert at.solved.status == "optimal"


def test_a_budget_below_the_floor_is_refused_with_the_widest_moment_and_what_to_try() -> None:
    with pytest.raises(FitError) as caught:
        plan(two_layers().costed(ram_bytes=8192, static_bytes=1000))
    assert caught.value.exit_code == 4
    assert caught.value.message == (
        "no schedule fits: net needs 10.0 KiB of arena beside 1000 B of buffers, the budget leaves 7.0 KiB\n"
        "  widest moment: conv, with relu1_y 6.0 KiB + conv.weight 4.0 KiB"
    )
    assert caught.value.hint == "try --ram 11KiB"
    plan(two_layers().costed(ram_bytes=11 * 1024, static_bytes=1000))  # as told


def test_a_deadline_below_the_computing_alone_is_refused_without_a_search() -> None:
    with pytest.raises(FitError, match="computes for 6 ms a training step on m4, the deadline is 5 ms"):
        plan(two_layers().costed(time_s=5e-3))


def test_a_deadline_below_the_paging_is_refused_with_the_least_time() -> None:
    with pytest.raises(FitError) as caught:
        plan(two_layers().costed(ram_bytes=10240, time_s=6.1e-3))
    assert "in 10.0 KiB of RAM net takes at least" in caught.value.message
    assert "computing alone takes 6 ms" in caught.value.hint


def test_a_board_without_a_store_says_so() -> None:
    with pytest.raises(FitError, match="m4 has no page store"):
        plan(two_layers().costed(ram_bytes=10240, on=board(None)))
    with pytest.raises(FitError, match="page store"):
        plan(two_layers().costed(on=board(None)), "page_all")


@pytest.mark.parametrize("strategy", BASELINES)
def test_a_baseline_by_name_is_that_baseline(strategy: str) -> None:
    schedule = plan(two_layers().costed(), strategy)  # type: ignore[arg-type]
    assert (schedule.strategy, schedule.solved.status) == (strategy, "baseline")
    assert schedule.solved.bound_j is None


def test_a_baseline_that_does_not_fit_says_what_it_needs() -> None:
    costed = two_layers().costed(ram_bytes=10240)
    with pytest.raises(FitError, match=r"keep_all does not fit: it needs 14.0 KiB") as caught:
        plan(costed, "keep_all")
    assert caught.value.hint == "try --ram 14KiB, or --strategy milp"
    late = two_layers().costed(time_s=6.1e-3)
    with pytest.raises(FitError, match=r"page_all takes .* the deadline is 6.1 ms"):
        plan(late, "page_all")


def test_an_unknown_strategy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        plan(two_layers().costed(), "luck")  # type: ignore[arg-type]
    assert "keep_all" in caught.value.hint


def test_recompute_all_runs_forward_nodes_again_and_keeps_what_it_cannot() -> None:
    costed = random_net(1, 9).costed()
    schedule = BASELINES["recompute_all"](costed)
    assert schedule is not None
    verdict = check(schedule)
    assert verdict.recomputes > 0
    assert verdict.pages_in == 0


def test_two_runs_give_the_same_plan() -> None:
    costed = random_net(11, 9).costed()
    costed = with_ram(costed, (min_ram(costed).arena_bytes + keep_all_bytes(costed)) // 2)
    assert to_json(plan(costed)) == to_json(plan(costed))


# Stored plans


def stored() -> tuple[Schedule, str]:
    schedule = plan(two_layers().costed(ram_bytes=12288, static_bytes=1000))
    return schedule, to_json(schedule)


def test_a_stored_plan_comes_back_as_it_was() -> None:
    schedule, text = stored()
    again = from_json(text, schedule.costed)
    assert (again.actions, again.resident, again.strategy) == (
        schedule.actions,
        schedule.resident,
        schedule.strategy,
    )
    assert replace(again.solved, solve_cpu_s=0.0) == replace(schedule.solved, solve_cpu_s=0.0)
    assert to_json(again) == text


def test_a_stored_plan_for_something_else_is_refused() -> None:
    schedule, text = stored()
    costed = schedule.costed
    other = random_net(5).costed(ram_bytes=12288, static_bytes=1000)
    dearer = replace(costed, pages={t: replace(p, sectors=p.sectors + 1) for t, p in costed.pages.items()})
    model = replace(costed.training, model=replace(costed.training.model, sha256="1" * 64))
    for theirs, word in (
        (other, "training graph"),
        (dearer, "costs"),
        (replace(costed, training=model), "another model"),
        (replace(costed, board=replace(costed.board, name="m7")), "another board: m4, not m7"),
        (replace(costed, budget=replace(costed.budget, ram_bytes=99999)), "--ram: 12288, not 99999"),
        (replace(costed, budget=replace(costed.budget, time_s=1.0)), "--deadline: None, not 1.0"),
        (replace(costed, static_bytes=0), "buffers: 1000, not 0"),
    ):
        with pytest.raises(UsageError, match=word):
            from_json(text, theirs)


def test_a_tampered_plan_is_refused_by_the_judge() -> None:
    schedule, text = stored()
    document = json.loads(text)
    document["actions"] = [a for a in document["actions"] if a[0] != "free"]
    with pytest.raises(BrokenSchedule):
        from_json(json.dumps(document), schedule.costed)
    document = json.loads(text)
    document["solved"]["energy_j"] *= 0.9
    with pytest.raises(BrokenSchedule, match="energy_claim"):
        from_json(json.dumps(document), schedule.costed)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JSON",
        "[]",
        "{}",
        '{"format": 2}',
        '{"format": 1}',
    ],
)
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="no stored plan"):
        from_json(text, two_layers().costed())


@pytest.mark.parametrize(
    "action",
    [
        "free",
        ["free"],
        ["free", 3],
        ["drop", "y"],
        ["free", "y", {}],
        ["compute", "pool", {"odd": 1}],
        ["compute", "pool", {"variant": "0"}],
        ["compute", "pool", {"in_place": 1}],
    ],
    ids=str,
)
def test_a_malformed_action_is_refused(action: object) -> None:
    schedule, text = stored()
    document = json.loads(text)
    document["actions"].append(action)
    with pytest.raises(DataError, match="no stored plan"):
        from_json(json.dumps(document), schedule.costed)
