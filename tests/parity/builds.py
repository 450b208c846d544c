"""Networks as C projects at three RAM budgets, and what the interpreter says they compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from poetgen import pipeline
from poetgen.boards import board
from poetgen.data import Batches, random_batches
from poetgen.interpreter import Machine, digest
from poetgen.op import Array
from poetgen.pipeline import Options
from poetgen.program import Program
from poetgen.project import Project, open_project
from poetgen.schedule import Compute
from tests.onnx_nets import OnnxNet, branches, shared_weights
from tests.parity.nets import DATA, LOSS, Oracle

ROOT = Path(__file__).parents[2]
STEPS, SEED = 3, 11
BUDGETS = ("keep_all", "half_way", "min_ram")


def vgg(folder: Path) -> Path:
    """Pairs of convolutions between poolings, then two dense layers: (2, 3, 16, 16) to 10 classes."""
    net = OnnxNet((2, 3, 16, 16), seed=9)
    x, c = "x", 3
    for width in (8, 16):
        for _ in range(2):
            weight = net.weight(width, c, 3, 3, scale=(2 / 9 / c) ** 0.5)
            x = net.op("Relu", net.op("Conv", x, weight, net.weight(width, scale=0.1), pads=[1] * 4))
            c = width
        x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Relu", net.dense(net.op("Flatten", x), 16 * 4 * 4, 24))
    return net.write(net.dense(x, 24, 10), folder, "vgg")


MADE: dict[str, Callable[[Path], Path]] = {"vgg": vgg, "shared": shared_weights, "branches": branches}


def options(net: str, folder: Path, on: str = "host") -> Options:
    """How a network trains; one that is written down here goes to ``folder``."""
    if net == "watch":
        return Options(ROOT / "examples" / "watch" / "watch.onnx", on, lr=0.01, momentum=0.9)
    if net in MADE:
        optimizer = "adam" if net == "shared" else "sgd"
        return Options(MADE[net](folder), on, lr=0.01, optimizer=optimizer)
    oracle = Oracle(DATA / f"{net}.onnx")
    meta = oracle.meta
    return Options(
        oracle.path,
        on,
        loss=LOSS[meta["loss"]],
        optimizer=meta["optimizer"],
        lr=oracle.lr,
        momentum=meta["momentum"],
        eps=meta["eps"] or 1e-8,
    )


def within(wanted: Options, budget: str) -> Options:
    """With all the RAM that is of use, the least that will do, or half way between."""
    least, most = pipeline.least_ram(wanted)
    return replace(
        wanted,
        ram_bytes={"keep_all": most, "half_way": (least + most) // 2 // 8 * 8, "min_ram": least}[budget],
    )


def generated(wanted: Options, folder: Path, plan: str | None = None) -> tuple[Program, Project]:
    """A project in ``folder``."""
    compiled = pipeline.generate(wanted, folder, plan_text=plan)
    return compiled.program, open_project(folder)


def batches(project: Project) -> Batches:
    """The data that all runs of a network train on."""
    return random_batches(project, STEPS, SEED)


def trained(program: Program, data: Batches, lr: float) -> dict[str, Array]:
    """All that persists after STEPS steps in the interpreter."""
    machine = Machine.start(program)
    for k in range(STEPS):
        feed = data.take(data.rows_of(k))
        label = feed.pop("y")
        machine.train_step(feed, label, lr)
    return machine.parameters()


@cache
def truth(net: str) -> dict[str, Array]:
    """What the interpreter trains where everything is kept, on the host's plan."""
    with TemporaryDirectory() as name:
        wanted = options(net, Path(name))
        program, project = generated(replace(wanted, strategy="keep_all"), Path(name) / net)
        return trained(program, batches(project), wanted.lr)


def touched_bytes(program: Program) -> int:
    """The end of the last byte that training and evaluation write: a tensor's padding is not written."""
    ends = [0]
    for function in program.functions:
        if function is program.infer and program.train is not None:
            continue
        schedule = function.plan.schedule
        tensors = schedule.costed.training.tensors
        for r in function.plan.residencies:
            if r.tensor in tensors:
                ends.append(r.offset + tensors[r.tensor].spec.nbytes)
            else:
                action = function.plan.schedule.actions[r.born]
                assert isinstance(action, Compute)
                variant = schedule.costed.variants[action.node][action.variant]
                ends.append(r.offset + variant.workspace_bytes)
    return max(ends)


def same(one: dict[str, Array], other: dict[str, Array]) -> bool:
    """Bit for bit, and the same names."""
    return one.keys() == other.keys() and digest(one) == digest(other)


def first_difference(one: dict[str, Array], other: dict[str, Array]) -> str:
    """For a message."""
    for name in sorted(one.keys() | other.keys()):
        if name not in one or name not in other:
            return f"{name} is not in both"
        unequal = one[name].reshape(-1).view(np.uint32) != other[name].reshape(-1).view(np.uint32)
        if unequal.any():
            k = int(np.flatnonzero(unequal)[0])
            a, b = (float(np.ravel(v)[k]) for v in (one[name], other[name]))
            return f"{int(unequal.sum())} of {unequal.size} of {name}, first at {k}: {a.hex()}, {b.hex()}"
    return "none"


HOST = board("host")
