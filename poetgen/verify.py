"""Hold a project's C against the interpreter, step by step. In: Program, Project. Out: Verified.

The traced program writes the bytes of each step's outputs; the interpreter computes the same steps in
numpy, on an arena whose freed bytes are NaN. All bits must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from poetgen.boards import Board
from poetgen.build import Progress, Record
from poetgen.errors import ParityError, UsageError
from poetgen.interpreter import Machine, NonFiniteLossError
from poetgen.program import Operand, Program, Step
from poetgen.project import Project
from poetgen.run import Job, traced

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Difference:
    """The first value in which the two differ, and where.

    ``training_step`` and ``step`` count from 0; ``differing`` of the tensor's ``size`` values differ.
    """

    training_step: int
    step: int
    verb: str
    node: str
    layer: str
    tensor: str
    index: tuple[int, ...]
    in_c: float
    expected: float
    differing: int
    size: int

    def error(self) -> ParityError:
        """The same in words."""
        where = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        return ParityError(
            f"C and interpreter differ, first in training step {self.training_step}\n"
            f"  step {self.step} of the schedule: {self.verb} {self.node} (layer {self.layer})\n"
            f"  {self.tensor}{where}: C has {_number(self.in_c)}, the interpreter {_number(self.expected)}\n"
            f"  {self.differing} of its {self.size} values differ",
            hint="a folder that was not changed and differs is our mistake: please report it",
        )

    def json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "training_step": self.training_step,
            "step": self.step,
            "verb": self.verb,
            "node": self.node,
            "layer": self.layer,
            "tensor": self.tensor,
            "index": list(self.index),
            "c": _number(self.in_c),
            "interpreter": _number(self.expected),
            "differing": self.differing,
            "size": self.size,
        }


@dataclass(frozen=True)
class Verified:
    """How much was compared, and the first difference: ``Verified(3, 41, 25116, 0, ())``.

    ``steps`` is of the schedule, in one training step. ``differences`` holds one or none.
    """

    training_steps: int
    steps: int
    values: int
    nonfinite: bool
    differences: tuple[Difference, ...]


def verify(
    program: Program, project: Project, target: Board, job: Job, progress: Progress | None = None
) -> Verified:
    """Run both, and compare every output of every step.

    Raises:
        UsageError: the project does not train.
    """
    if program.train is None:
        raise UsageError(
            f"{project.name} only infers: there is no training step to compare",
            hint="generate it from a model with parameters to train",
        )
    with traced(project, target, job, progress) as records:
        return _compare(program, project, job, records)


def _compare(program: Program, project: Project, job: Job, records: Iterator[Record]) -> Verified:
    assert program.train is not None
    machine = Machine.start(program, seed=job.seed)
    lr = project.lr if job.lr is None else job.lr
    values = 0
    for k in range(job.steps):
        feed = job.data.take(job.data.rows_of(k, job.shuffle))
        label = feed.pop(project.label.name) if project.label is not None else np.zeros(0)
        seen: list[tuple[Step, tuple[Array, ...]]] = []
        nonfinite = False
        try:
            machine.train_step(feed, label, lr, trace=lambda *made, seen=seen: seen.append(made))
        except NonFiniteLossError:
            nonfinite = True
            seen.pop()  # the C leaves before it writes the loss down
        for step, made in seen:
            for where, value in zip(_written(step), made, strict=True):
                if where.space == "store":  # streamed out: who reads it next tells
                    continue
                record = next(records, None)
                found = _difference(k, step, where, value, record)
                if found is not None:
                    return Verified(k, len(program.train.steps), values, False, (found,))
                values += value.size
        if nonfinite:
            return Verified(k, len(program.train.steps), values, True, ())
    return Verified(job.steps, len(program.train.steps), values, False, ())


def _written(step: Step) -> tuple[Operand, ...]:
    """What a step changes, in the order in which both tell it."""
    assert step.node is not None
    return tuple(step.inputs[i] for i in step.node.op.mutates) or step.outputs


def _difference(
    training_step: int, step: Step, where: Operand, value: Array, record: Record | None
) -> Difference | None:
    assert step.node is not None
    shape = where.spec.shape
    at = np.arange(where.spec.size).reshape(shape)  # the numbers of its values, in the target's order
    if where.spec.layout == "rows":
        at = at.transpose(0, 2, 1, 3)
    at = at.reshape(-1)
    expected = np.ascontiguousarray(value, where.spec.numpy).reshape(-1)[at]
    got = np.full(expected.shape, np.nan)
    if record is not None and record.step == step.number and len(record.data) == expected.nbytes:
        got = np.frombuffer(record.data, expected.dtype)
        if record.data == expected.tobytes():
            return None
        unequal = _bits(got) != _bits(expected)
        if expected.dtype.kind == "f":  # a NaN's payload is the core's own
            unequal &= ~(np.isnan(got) & np.isnan(expected))
        if not unequal.any():
            return None
    else:  # the target went another way: all of it is missing
        unequal = np.ones(expected.shape, bool)
    first = int(np.flatnonzero(unequal)[0])
    return Difference(
        training_step=training_step,
        step=step.number,
        verb=step.verb,
        node=step.node.name,
        layer=step.node.layer or step.node.name,
        tensor=where.tensor,
        index=tuple(int(i) for i in np.unravel_index(at[first], shape)) if shape else (),
        in_c=float(got[first]),
        expected=float(expected[first]),
        differing=int(unequal.sum()),
        size=expected.size,
    )


def _bits(array: Array) -> Array:
    return array.view({1: np.uint8, 4: np.uint32}[array.dtype.itemsize])


def _number(value: float) -> str:
    return f"{np.format_float_scientific(np.float32(value), unique=True)} ({float(value).hex()})"
