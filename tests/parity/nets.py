"""Oracles (a network, its data, and what PyTorch computed from them in float64) and how to compile them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poetgen.autodiff import Adam, Optimizer, Sgd, differentiate, evaluation_graph, inference_graph
from poetgen.boards import board
from poetgen.cost import Budget, CostedGraph, cost
from poetgen.graph import Node, TrainingGraph
from poetgen.memory import MemoryPlan, place
from poetgen.memory import check as check_placement
from poetgen.onnx_import import import_onnx
from poetgen.op import Array
from poetgen.program import Program, lower, static_bytes
from poetgen.schedule import Schedule, check
from poetgen.schedule.baselines import keep_all
from poetgen.schedule.inference import plan_forward

DATA = Path(__file__).parents[1] / "data"
MORE = os.environ.get("POETGEN_ORACLES", "")
"""A folder with larger oracles; the environment names it."""
LARGE = (
    "vgg_small",
    "dscnn_kws",
    "dscnn_kws_frozen",
    "resnet8_ic",
    "resnet8_ic_frozen",
    "mbv1_025_vww_frozen",
    "mbv2_small",
    "ae_ad",
    "resnet18_w16",
    "tfm_encoder",
    "bert2",
)
LOSS = {"ce": "cross_entropy", "mse": "mse"}


@dataclass(frozen=True)
class Oracle:
    """``Oracle(Path("tests/data/mlp_mse.onnx"))``; the .npz beside it holds data and answers."""

    path: Path

    @cached_property
    def arrays(self) -> Mapping[str, Array]:
        with np.load(self.path.with_suffix(".npz")) as file:
            return {k: file[k] for k in file.files if k != "meta"}

    @cached_property
    def meta(self) -> Mapping[str, Any]:
        with np.load(self.path.with_suffix(".npz")) as file:
            return dict(json.loads(str(file["meta"])))

    @property
    def optimizer(self) -> Optimizer:
        if self.meta["optimizer"] == "adam":
            return Adam(eps=self.meta["eps"])
        return Sgd(momentum=self.meta["momentum"])

    @property
    def lr(self) -> float:
        return float(self.meta["lr"])

    @property
    def steps(self) -> int:
        return int(self.meta["steps"])

    def graph(self) -> TrainingGraph:
        return differentiate(import_onnx(self.path), LOSS[self.meta["loss"]], self.optimizer)

    def batch(self, step: int) -> tuple[dict[str, Array], Array]:
        """Inputs and label of one training step."""
        rows = slice(step * self.meta["batch"], (step + 1) * self.meta["batch"])
        inputs = {k: self.arrays[k][rows] for k in self.arrays if "/" not in k and k not in ("y", "loss")}
        return inputs, self.arrays["y"][rows]

    def of(self, prefix: str) -> dict[str, Array]:
        """Arrays under ``grad/`` or ``after/``, without it."""
        return {k.removeprefix(prefix): v for k, v in self.arrays.items() if k.startswith(prefix)}


SMALL = tuple(Oracle(p) for p in sorted(DATA.glob("*.onnx")))


def large() -> tuple[Oracle, ...]:
    """Those of POETGEN_ORACLES; none without it. A folder that lacks them all is an error."""
    if not MORE:
        return ()
    found = tuple(Oracle(p) for n in LARGE if (p := Path(MORE) / f"{n}.onnx").exists())
    assert found, f"POETGEN_ORACLES={MORE} holds none of {', '.join(LARGE)}"
    return found


def each_oracle() -> list[Any]:
    """Parameters for pytest: the small ones, and the large ones marked slow."""
    return [pytest.param(o, id=o.path.stem) for o in SMALL] + [
        pytest.param(o, id=o.path.stem, marks=pytest.mark.slow) for o in large()
    ]


def costed(
    graph: TrainingGraph, ram_bytes: int | None = None, on: str = "host", *, streaming: bool = False
) -> CostedGraph:
    """A graph with prices; with ``streaming``, also of running nodes on operands in the store."""
    where = board(on)
    fixed = static_bytes(
        graph.of_kind("input", "label"), None if where.store is None else where.store.sector_bytes
    )
    return cost(graph, where, Budget(ram_bytes), fixed, streaming)


def compiled(schedule: Schedule | None) -> Program:
    """Place and lower a schedule, with the judges' consent; what only runs forward has no budget."""
    assert schedule is not None
    check(schedule)
    home = place(schedule)
    check_placement(home)
    check(home.schedule)
    priced = schedule.costed

    def forward(graph: TrainingGraph) -> MemoryPlan:
        plan = place(plan_forward(cost(graph, priced.board, Budget(), priced.static_bytes), home.in_ram))
        check(plan.schedule)
        check_placement(plan)
        return plan

    training = priced.training
    return lower(home, forward(inference_graph(training)), forward(evaluation_graph(training)))


def program(graph: TrainingGraph, strategy: Callable[[CostedGraph], Schedule | None] = keep_all) -> Program:
    """A graph compiled by a strategy, without a budget."""
    return compiled(strategy(costed(graph)))


@dataclass
class Walk:
    """A training graph run node by node, without arena or schedule, in any float type.

    ``Walk(graph, np.float64)`` starts from the initial parameters; ``seen`` is told of each node, what
    it read and what it gave.
    """

    graph: TrainingGraph
    real: Any
    seed: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        self.values = {k: self._cast(v) for k, v in self.graph.initial.items()}

    def train_step(
        self,
        inputs: Mapping[str, Array],
        label: Array,
        lr: float,
        seen: Callable[[Node, tuple[Array, ...], tuple[Array, ...]], None] | None = None,
    ) -> dict[str, Array]:
        """Every tensor of one step, by name."""
        now: dict[str, Array] = {**self.values, **{k: self._cast(v) for k, v in inputs.items()}}
        now |= {t.name: self._cast(label) for t in self.graph.of_kind("label")}
        now |= {"lr": np.array(lr, self.real), "seed": np.array(self.seed, np.int32)}
        now["step"] = np.array(self.step, np.int32)
        for node in self.graph.nodes:
            read = tuple(now[i].reshape(s.shape) for i, s in zip(node.inputs, node.in_specs, strict=True))
            with np.errstate(all="ignore"):
                made = tuple(np.asarray(m) for m in node.op.reference(*read))
            if seen is not None:
                seen(node, read, made)
            for name, value in zip(node.mutates or node.outputs, made, strict=True):
                now[name] = value.reshape(self.graph.tensors[name].spec.shape)
        self.values = {k: now[k] for k in self.values}
        self.step += 1
        return now

    def _cast(self, array: Array) -> Array:
        array = np.asarray(array)
        return array.astype(self.real) if array.dtype.kind == "f" else array.astype(np.int32)


def largest(arrays: Iterable[Array]) -> float:
    """The largest magnitude of several arrays."""
    return max((float(np.abs(a).max()) for a in arrays if a.size), default=0.0)
