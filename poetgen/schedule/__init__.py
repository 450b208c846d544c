"""Schedule a costed graph. In: CostedGraph. Out: Schedule, which check() accepts.

A schedule says what happens, in order, in one training step: when each node runs and which tensors
come and go. It says nothing about addresses. ``check`` is the judge that replays it; milp.py and
baselines.py make it; ``plan`` chooses.
"""

from poetgen.schedule.actions import (
    Action,
    Compute,
    Free,
    Move,
    PageIn,
    PageOut,
    Schedule,
    Solved,
    Status,
    Strategy,
)
from poetgen.schedule.check import BrokenSchedule, Verdict, check
from poetgen.schedule.floor import Floor, keep_all_bytes, min_ram
from poetgen.schedule.plan import Progress, plan
from poetgen.schedule.plan_json import from_json, to_json

__all__ = [
    "Action",
    "BrokenSchedule",
    "Compute",
    "Floor",
    "Free",
    "Move",
    "PageIn",
    "PageOut",
    "Progress",
    "Schedule",
    "Solved",
    "Status",
    "Strategy",
    "Verdict",
    "check",
    "from_json",
    "keep_all_bytes",
    "min_ram",
    "plan",
    "to_json",
]
