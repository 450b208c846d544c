"""The judge: a small legal schedule, and for each rule one that breaks it and nothing before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from poetgen.cost import Cost, Variant
from poetgen.schedule import (
    Action,
    BrokenSchedule,
    Compute,
    Free,
    Move,
    PageIn,
    PageOut,
    Schedule,
    Solved,
    check,
)
from poetgen.schedule.actions import total
from tests.schedule_graphs import (
    SD_CARD,
    Impure,
    Net,
    Over,
    Pure,
    Update,
    UpdateBoth,
    board,
)


def net() -> Net:
    """Two layers and their training. Parameters w1 and w2 with state v2; 64 bytes each but m."""
    n = Net()
    n.tensor("x", 64, "input")
    n.tensor("label", 4, "label")
    n.tensor("lr", 4, "scalar")
    n.tensor("k", 64, "const")
    n.tensor("w1", 64, "param")
    n.tensor("w2", 64, "param")
    n.tensor("v2", 64, "state")
    n.tensor("fixed", 64, "param")
    n.node("f1", Pure(), ("x", "w1", "fixed"), (("a", 64),))
    n.node("f2", Over(), ("a",), (("b", 64),))
    n.node("f3", Pure(), ("b", "w2"), (("c", 64), ("m", 16)), workspace=30)
    n.node("draw", Impure(), ("k",), (("r", 64),))
    n.node("loss", Pure(), ("c", "r", "label"), (("loss", 4, "result"), ("dc", 64)), phase="loss")
    n.node("g3", Pure(), ("dc", "w2"), (("db", 64),), phase="backward")
    n.node("g3/dw", Pure(), ("dc", "b", "m"), (("dw2", 64),), phase="backward")
    n.node("g3/update", UpdateBoth(), ("w2", "dw2", "v2", "lr"), phase="update")
    n.node("g2", Over(), ("db", "b"), (("da", 64),), phase="backward")
    n.node("g1/dw", Pure(), ("da", "x"), (("dw1", 64),), phase="backward")
    n.node("g1/update", Update(), ("w1", "dw1", "lr"), phase="update")
    return n


LEGAL: tuple[Action, ...] = (
    PageIn("w1"),  # 0
    Compute("f1"),  # 1
    Free("w1"),  # 2
    Compute("f2", in_place="a"),  # 3
    PageOut("b"),  # 4
    Compute("f3"),  # 5
    PageOut("m"),  # 6
    Free("m"),  # 7
    Free("b"),  # 8
    Compute("draw"),  # 9
    Compute("loss"),  # 10
    Free("c"),  # 11
    Free("r"),  # 12
    Compute("g3"),  # 13
    PageIn("b"),  # 14
    PageIn("m"),  # 15
    Compute("g3/dw"),  # 16
    Free("m"),  # 17
    Free("dc"),  # 18
    Compute("g3/update"),  # 19
    Free("dw2"),  # 20
    Move("b"),  # 21
    Compute("g2", in_place="db"),  # 22
    Free("b"),  # 23
    Compute("g1/dw"),  # 24
    Free("da"),  # 25
    PageIn("w1"),  # 26
    Compute("g1/update"),  # 27
    PageOut("w1"),  # 28
    Free("w1"),  # 29
    Free("dw1"),  # 30
)
RESIDENT = ("w2", "v2", "fixed")


def judged(
    actions: Sequence[Action] = LEGAL,
    resident: tuple[str, ...] = RESIDENT,
    made: Net | None = None,
    **costed: Any,
) -> Schedule:
    """A schedule that claims what it takes."""
    graph = (made or net()).costed(**costed)
    energy = sum(
        total(graph, [a]).energy_j
        for a in actions
        if (isinstance(a, Compute) and a.node in graph.variants and a.variant < len(graph.variants[a.node]))
        or (isinstance(a, PageIn | PageOut) and a.tensor in graph.pages)
    )
    return Schedule(graph, tuple(actions), resident, Solved("feasible", energy, None, 0, 0.0, "hand"))


def without(*at: int) -> tuple[Action, ...]:
    return tuple(a for k, a in enumerate(LEGAL) if k not in at)


def instead(at: int, *actions: Action) -> tuple[Action, ...]:
    return (*LEGAL[:at], *actions, *LEGAL[at + 1 :])


def before(at: int, *actions: Action) -> tuple[Action, ...]:
    return (*LEGAL[:at], *actions, *LEGAL[at:])


def test_a_legal_schedule_is_accepted_and_measured() -> None:
    schedule = judged()
    verdict = check(schedule)
    assert (verdict.pages_in, verdict.pages_out, verdict.recomputes) == (4, 3, 0)
    assert (verdict.page_bytes_in, verdict.page_bytes_out) == (4 * 512, 3 * 512)
    assert verdict.energy_j == pytest.approx(total(schedule.costed, LEGAL).energy_j)
    assert verdict.time_s == pytest.approx(total(schedule.costed, LEGAL).time_s)
    # g3/dw: three parameters and states, dc, db, b, dw2 of 64 bytes, m of 16
    assert verdict.peak_bytes == 7 * 64 + 16
    assert LEGAL[verdict.peak_action] == Compute("g3/dw")
    assert dict(verdict.at_peak) == {t: 64 for t in ("w2", "v2", "fixed", "dc", "db", "b", "dw2")} | {"m": 16}
    assert len(verdict.bytes_at) == len(LEGAL)
    assert max(verdict.bytes_at) == verdict.peak_bytes


def test_the_peak_is_the_smallest_budget_that_is_accepted() -> None:
    peak = check(judged()).peak_bytes
    assert check(judged(ram_bytes=peak)).peak_bytes == peak
    with pytest.raises(BrokenSchedule) as caught:
        check(judged(ram_bytes=peak - 8))
    assert caught.value.rule == "ram_compute"


def test_workspace_counts_rounded_up_to_the_alignment() -> None:
    at = check(judged()).bytes_at
    assert at[5] == 3 * 64 + 64 + 64 + 16 + 32  # resident, b, c, m, and 30 bytes of scratch as 32


def test_in_place_takes_no_bytes_beside_its_operand() -> None:
    at = check(judged()).bytes_at
    assert at[3] == at[2] - 64 == 4 * 64


def recompute_of_f2() -> tuple[Action, ...]:
    """b is not paged but made again from a, which is kept."""
    return (
        *LEGAL[:3],
        Compute("f2"),
        *LEGAL[5:14],
        Compute("f2"),
        *LEGAL[15:25],
        Free("a"),
        *LEGAL[25:],
    )


def test_a_recompute_is_accepted_and_counted() -> None:
    verdict = check(judged(recompute_of_f2()))
    assert (verdict.recomputes, verdict.pages_in, verdict.pages_out) == (1, 3, 2)


def two(op: Any, inputs: tuple[str, ...], out: int = 64, kind: Any = "act") -> Net:
    """a and e made from x, then one node that reads some of them: a stage for in-place rules."""
    n = Net()
    n.tensor("x", 64, "input")
    n.tensor("w", 64, "param")
    n.node("first", Pure(), ("x",), (("a", 64),))
    n.node("other", Pure(), ("x",), (("e", 64),))
    n.node("second", op, inputs, (("b", out, kind),))
    return n


def in_place(over: str) -> tuple[Action, ...]:
    return (Compute("first"), Compute("other"), Compute("second", in_place=over))


NO_OTHER = (Compute("first"), Compute("second"), Free("a"), Free("b"))


def streamed_net() -> Net:
    """f3 may stream w2 or b instead of holding it."""
    n = net()
    whole = Variant(30, Cost(1e-3, 1e-5))
    n.variants["f3"] = (whole, replace(whole, streamed=("w2",)), replace(whole, streamed=("b",)))
    n.variants["f2"] = (whole, replace(whole, streamed=("a",)))
    return n


def reader_of_statistic() -> Net:
    """A node that waits for an update: it reads the moved statistic."""
    n = Net()
    n.tensor("x", 64, "input")
    n.tensor("s", 64, "statistic")
    n.node("move", Update(), ("s", "x"))
    n.node("read", Pure(), ("s",), (("y", 64),))
    whole = Variant(0, Cost(1e-3, 1e-5))
    n.variants["read"] = (whole, replace(whole, streamed=("s",)))
    return n


STATISTIC = (PageIn("s"), Compute("move"), Compute("read"), PageOut("s"), Free("s"), Free("y"))


def test_a_reader_of_the_new_value_runs_after_its_update() -> None:
    assert check(judged(STATISTIC, (), reader_of_statistic())).pages_out == 1


READ_FIRST = (STATISTIC[0], STATISTIC[2], STATISTIC[1], *STATISTIC[3:])
STREAM_NEW = (*STATISTIC[:2], PageOut("s"), Free("s"), Compute("read", 1), Free("y"))
STREAM_OVER = instead(3, PageOut("a"), Compute("f2", 1, "a"))
IN_VAIN = (*LEGAL[:13], PageIn("b"), Compute("f3"), Free("c"), Free("m"), LEGAL[13], *LEGAL[15:])
"""f3 runs again for nothing."""


@dataclass(frozen=True)
class Broken:
    """A rule, and a schedule that breaks it."""

    rule: str
    make: Callable[[], Schedule]


def claiming(**change: Any) -> Schedule:
    schedule = judged()
    return replace(schedule, solved=replace(schedule.solved, **change))


def at_home(schedule: Schedule, *homes: str) -> Schedule:
    return replace(schedule, costed=replace(schedule.costed, homes=frozenset(homes)))


HOME_LEFT = (LEGAL[1], LEGAL[2], *LEGAL[3:29], LEGAL[30])
"""w1 begins and ends the step in RAM, and is away in between."""


BROKEN = [
    # Actions and names
    Broken("unknown_action", lambda: judged(instead(2, "free w1"))),  # type: ignore[arg-type]
    Broken("unknown_node", lambda: judged(instead(1, Compute("f9")))),
    Broken("unknown_variant", lambda: judged(instead(1, Compute("f1", 1)))),
    Broken("unknown_tensor", lambda: judged(instead(2, Free("w9")))),
    # Running a node
    Broken("node_missing", lambda: judged(NO_OTHER, ("w",), two(Pure(), ("a",)))),
    Broken("not_produced", lambda: judged((LEGAL[3], *LEGAL[:3], *LEGAL[4:]))),
    Broken("operand_absent", lambda: judged(without(0))),
    Broken("output_resident", lambda: judged(before(2, Compute("f1")))),
    Broken("not_recomputable", lambda: judged(before(13, Compute("draw")))),
    Broken("update_twice", lambda: judged(before(20, Compute("g3/update")))),
    Broken("hazard", lambda: judged(before(24, Compute("f3")))),
    Broken(
        "too_early",
        lambda: judged((STATISTIC[0], STATISTIC[2], STATISTIC[1], *STATISTIC[3:]), (), reader_of_statistic()),
    ),
    Broken(
        "recompute_unread",
        lambda: judged(
            (*LEGAL[:13], PageIn("b"), Compute("f3"), Free("c"), Free("m"), *LEGAL[13:14], *LEGAL[15:])
        ),
    ),
    # In place
    Broken("in_place_no_operand", lambda: judged(instead(3, Compute("f2", in_place="r")))),
    Broken("in_place_not_allowed", lambda: judged(instead(22, Compute("g2", in_place="b")))),
    Broken("in_place_persistent", lambda: judged((PageIn("w"), *in_place("w")), (), two(Over(), ("w",)))),
    Broken("in_place_not_ours", lambda: judged(in_place("x"), ("w",), two(Over(), ("x",)))),
    Broken("in_place_read_twice", lambda: judged(in_place("a"), ("w",), two(Over(), ("a", "a")))),
    Broken("in_place_size", lambda: judged(in_place("a"), ("w",), two(Over(), ("a",), 72))),
    Broken("in_place_no_output", lambda: judged(in_place("a"), ("w",), two(Over(), ("a",), 64, "result"))),
    Broken(
        "in_place_streamed",
        lambda: judged(instead(3, PageOut("a"), Compute("f2", 1, "a")), made=streamed_net()),
    ),
    # Streaming
    Broken("stream_no_copy", lambda: judged(instead(3, Compute("f2", 1)), made=streamed_net())),
    Broken("stream_stale", lambda: judged(instead(5, Compute("f3", 1)), made=streamed_net())),
    Broken("stream_uncommitted", lambda: judged(STREAM_NEW, (), reader_of_statistic())),
    # RAM
    Broken("ram_start", lambda: judged(ram_bytes=3 * 64 - 8)),
    Broken("ram_page_in", lambda: judged(ram_bytes=3 * 64)),
    Broken("ram_compute", lambda: judged(ram_bytes=4 * 64)),
    Broken("ram_workspace", lambda: judged(ram_bytes=5 * 64 + 16 + 24)),
    # Freeing
    Broken("free_absent", lambda: judged(before(3, Free("w1")))),
    Broken("free_not_ours", lambda: judged(before(3, Free("x")))),
    Broken("lost_update", lambda: judged((*LEGAL, Free("w2")))),
    Broken("left_in_ram", lambda: judged(without(30))),
    # Paging
    Broken("page_out_absent", lambda: judged(before(3, PageOut("c")))),
    Broken("page_out_twice", lambda: judged(before(5, PageOut("b")))),
    Broken("page_out_early", lambda: judged(before(2, PageOut("w1")))),
    Broken("page_out_unchanged", lambda: judged(before(2, PageOut("fixed")))),
    Broken("page_out_unread", lambda: judged(before(2, PageOut("a")))),
    Broken("page_in_resident", lambda: judged(before(1, PageIn("w1")))),
    Broken("page_in_no_copy", lambda: judged(without(4))),
    Broken("page_in_stale", lambda: judged((*LEGAL[:6], Free("w2"), PageIn("w2"), *LEGAL[6:]))),
    Broken("page_in_uncommitted", lambda: judged((*LEGAL[:30], PageIn("w1"), *LEGAL[30:]))),
    Broken("page_in_unread", lambda: judged((*LEGAL[:3], PageIn("w1"), Free("w1"), *LEGAL[3:]))),
    Broken("not_pageable", lambda: judged(before(3, PageIn("x")))),
    Broken("no_store", lambda: judged(resident=("w1", *RESIDENT), actions=without(0, 2), on=board(None))),
    Broken("store_full", lambda: judged(on=board(replace(SD_CARD, size_bytes=2 * 512)))),
    # Moving
    Broken("move_absent", lambda: judged(before(3, Move("c")))),
    Broken("move_not_ours", lambda: judged(before(3, Move("k")))),
    # Between steps
    Broken("no_home", lambda: judged(on=board(None))),
    Broken("resident_not_persistent", lambda: judged(resident=("a", *RESIDENT))),
    Broken("resident_twice", lambda: judged(resident=("w2", *RESIDENT))),
    Broken("resident_lost", lambda: judged((Free("w1"), *LEGAL), ("w1", *RESIDENT))),
    Broken("resident_gained", lambda: judged(without(29))),
    Broken("home", lambda: at_home(judged(), "w1", *RESIDENT)),
    Broken("home_left", lambda: at_home(judged(HOME_LEFT, ("w1", *RESIDENT)), "w1", *RESIDENT)),
    # Time and claims
    Broken("deadline", lambda: judged(time_s=0.011)),
    Broken("energy_claim", lambda: claiming(energy_j=judged().solved.energy_j * 1.01)),
    Broken("bound_claim", lambda: claiming(bound_j=judged().solved.energy_j * 1.01)),
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: b.rule)
def test_a_broken_schedule_is_refused_by_the_rules_name(broken: Broken) -> None:
    with pytest.raises(BrokenSchedule) as caught:
        check(broken.make())
    assert caught.value.rule == broken.rule, caught.value.message
    assert broken.rule in caught.value.message


def test_every_rule_has_its_own_broken_schedule() -> None:
    rules = [b.rule for b in BROKEN]
    assert len(rules) == len(set(rules)) >= 50
