"""What the planner proves, and how long it takes: ResNets between their floor and keeping everything.

    python benchmarks/planner.py [--quick]

Prints a table and writes it to benchmarks/results/planner.md. Costs are those of board nrf52840dk (a
Cortex-M4F with an SD card). A budget is the floor plus a share f of what lies between it and keeping
everything. Every schedule was replayed by the judge. Seconds are of the CPU, solver and model together;
each depth starts from the one before and its seconds are its own.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from poetgen.autodiff import Sgd, differentiate  # noqa: E402
from poetgen.boards import board  # noqa: E402
from poetgen.cost import Budget, CostedGraph, cost  # noqa: E402
from poetgen.onnx_import import import_onnx  # noqa: E402
from poetgen.schedule import Schedule, check, keep_all_bytes, min_ram  # noqa: E402
from poetgen.schedule.baselines import page_all  # noqa: E402
from poetgen.schedule.facts import Facts  # noqa: E402
from poetgen.schedule.gaps import build  # noqa: E402
from poetgen.schedule.milp import solve  # noqa: E402

BOARD = "nrf52840dk"
TIME_LIMIT_S = 300.0


@dataclass(frozen=True)
class Case:
    """``Case("ResNet-18, 16..128", (16, 32, 64, 128), 2, 2, 0.15, 2, 1e-3)``: blocks of two a stage."""

    name: str
    widths: tuple[int, ...]
    blocks: int
    batch: int
    share: float
    depth: int
    gap: float


RESNET18 = Case("ResNet-18 16..128, batch 2", (16, 32, 64, 128), 2, 2, 0.15, 2, 5e-4)
CASES = (
    Case("ResNet-8 16..64, batch 1", (16, 32, 64), 1, 1, 0.15, 3, 1e-4),
    Case("ResNet-8 16..64, batch 1", (16, 32, 64), 1, 1, 0.5, 3, 1e-4),
    RESNET18,
    replace(RESNET18, share=0.5),
)


class _Resnet:
    """Writes a ResNet for 32 x 32 images, training batch norm, as PyTorch would export it."""

    def __init__(self, case: Case) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(0)
        at, width = self.relu(self.conv_bn("x", 3, case.widths[0], 3, 1)), case.widths[0]
        for stage, wide in enumerate(case.widths):
            for block in range(case.blocks):
                stride = 2 if stage and not block else 1
                y = self.relu(self.conv_bn(at, width, wide, 3, stride))
                y = self.conv_bn(y, wide, wide, 3, 1)
                if stride != 1 or width != wide:
                    at = self.conv_bn(at, width, wide, 1, stride)
                at, width = self.relu(self.node("Add", (y, at))), wide
        at = self.node("Flatten", (self.node("GlobalAveragePool", (at,)),))
        self.node("Gemm", (at, self.weight(10, width), self.weight(10)), out="y", transB=1)
        graph = helper.make_graph(
            self.nodes,
            "resnet",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (case.batch, 3, 32, 32))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, (case.batch, 10))],
            self.weights,
        )
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        self.model.ir_version = 8

    def weight(self, *shape: int, value: float | None = None) -> str:
        name = f"w{len(self.weights)}"
        data = self.rng.normal(0, 0.1, shape) if value is None else np.full(shape, value)
        self.weights.append(numpy_helper.from_array(data.astype(np.float32), name))
        return name

    def node(self, op: str, inputs: tuple[str, ...], out: str = "", **attributes: object) -> str:
        out = out or f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [out], name=f"n{len(self.nodes)}", **attributes))
        return out

    def conv_bn(self, x: str, ins: int, outs: int, kernel: int, stride: int) -> str:
        pad = kernel // 2
        y = self.node(
            "Conv",
            (x, self.weight(outs, ins, kernel, kernel)),
            kernel_shape=[kernel, kernel],
            pads=[pad] * 4,
            strides=[stride, stride],
        )
        scale, shift, mean = (self.weight(outs, value=v) for v in (1.0, 0.0, 0.0))
        return self.node("BatchNormalization", (y, scale, shift, mean, self.weight(outs, value=1.0)))

    def relu(self, x: str) -> str:
        return self.node("Relu", (x,))


def costed(case: Case) -> CostedGraph:
    """The case's training graph with its prices and its budget."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "resnet.onnx"
        onnx.save(_Resnet(case).model, file)
        training = differentiate(import_onnx(file), optimizer=Sgd(), bn="train")
    free = cost(training, board(BOARD), Budget())
    low, high = min_ram(free).arena_bytes, keep_all_bytes(free)
    return replace(free, budget=Budget(low + int((high - low) * case.share)))


def rows(case: Case) -> Iterator[str]:
    """One line of the table a depth."""
    graph = costed(case)
    facts = Facts(graph)
    compute_j, budget = facts.compute.energy_j, graph.arena_budget_bytes or 0
    start: Schedule | None = page_all(graph)
    for depth in range(case.depth + 1):
        lp = build(facts, depth, budget).lp
        found = solve(graph, depth, TIME_LIMIT_S, gap=case.gap, start=start)
        start = found.schedule or start
        if start is None or found.schedule is None:
            yield f"| {case.name} | {len(facts.nodes)} | {case.share} | {depth} | | | none | | |"
            continue
        verdict, solved = check(start), found.schedule.solved
        yield (
            f"| {case.name} | {len(facts.nodes)} | {case.share} | {depth} | {lp.columns} / {lp.rows} |"
            f" {verdict.peak_bytes / budget:.4f} | {verdict.energy_j / compute_j:.4f} |"
            f" {(solved.gap or 0.0) * 100:.3f} % | {found.cpu_s:.1f} |"
        )


def main() -> None:
    """Solve, print and write."""
    cases = CASES[:1] if "--quick" in sys.argv else CASES
    lines = [
        "# The planner on ResNets",
        "",
        *(__doc__ or "").split("\n\n")[2].strip().splitlines(),
        "",
        "| graph | ops | f | depth | variables / rows | peak / budget | energy / compute | gap | CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for case in cases:
        for line in rows(case):
            print(line, flush=True)
            lines.append(line)
    if "--quick" not in sys.argv:
        (HERE / "results" / "planner.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
