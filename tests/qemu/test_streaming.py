"""Tensors larger than RAM: streamed through tiles from the store, the same bits as keeping everything.

The quick net is a thin ResNet; the slow one is the whole ResNet-18 for 32 x 32 images, 11.17 million
parameters, all of them trained in 192 KiB of RAM on an emulated Cortex-M4F.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from poetgen import pipeline
from poetgen.boards import board
from poetgen.data import random_batches
from poetgen.pipeline import Options
from poetgen.program import Program
from poetgen.project import open_project
from poetgen.run import Job, RunResult, run
from tests.onnx_nets import OnnxNet

M4F = "qemu_mps2_an386"
KIB = 1024


def resnet(folder: Path, width: int, blocks: tuple[tuple[int, int], ...], size: int) -> Path:
    """Basic blocks (multiple of the width, stride), batch norm frozen, one sample."""
    net = OnnxNet((1, 3, size, size), seed=3)

    def conv(x: str, i: int, o: int, k: int, stride: int) -> str:
        weight = net.weight(o, i, k, k, scale=(2 / (i * k * k)) ** 0.5)
        y = net.op("Conv", x, weight, strides=[stride] * 2, pads=[k // 2] * 4)
        return net.norm(y, o, train=False)

    x, i = net.op("Relu", conv("x", 3, width, 3, 1)), width
    for multiple, stride in blocks:
        o = multiple * width
        y = conv(net.op("Relu", conv(x, i, o, 3, stride)), o, o, 3, 1)
        x = net.op("Relu", net.op("Add", y, x if i == o and stride == 1 else conv(x, i, o, 1, stride)))
        i = o
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.write(net.dense(x, i, 10), folder, "resnet")


def trained(options: Options, folder: Path, on: str, steps: int) -> tuple[Program, RunResult]:
    """Generate, build and run."""
    compiled = pipeline.generate(options, folder)
    project = open_project(folder)
    result = run(project, board(on), Job(random_batches(project, steps, 1), steps, measure=False))
    assert result.status == "done"
    size, traffic = project.sector_bytes, project.traffic
    assert result.outcome.sectors_read * size == steps * traffic.bytes_in
    assert result.outcome.sectors_written * size == steps * traffic.bytes_out
    return compiled.program, result


def streamed(program: Program) -> set[str]:
    """Kinds of tensors that some step of training works on in the store."""
    assert program.train is not None
    training = program.costed.training
    kinds = set()
    for step in program.train.steps:
        for operand in (*step.inputs, *step.outputs):
            if operand.space == "store":
                kind = training.tensors[operand.tensor].kind
                phase = training.producer[operand.tensor].phase if kind == "act" else kind
                kinds.add(phase)
    return kinds


@pytest.mark.qemu
@pytest.mark.parametrize("on", ["host", M4F])
def test_a_thin_resnet_streams_in_a_third_of_its_largest_needs(on: str, tmp_path: Path) -> None:
    model = resnet(tmp_path, 8, ((1, 1), (2, 2)), 16)
    wide = Options(model, M4F, lr=0.01, momentum=0.9, stream="off")
    most = pipeline.least_ram(wide)[1]
    _, whole = trained(replace(wide, ram_bytes=most), tmp_path / "whole", "host", 2)
    narrow = replace(wide, ram_bytes=16 * KIB, stream="auto")
    program, result = trained(narrow, tmp_path / "streamed", on, 2)
    assert program.peak_bytes <= 16 * KIB < pipeline.least_ram(wide)[0]
    assert streamed(program) >= {"forward", "backward"}
    assert result.params_sha256 == whole.params_sha256


@pytest.mark.qemu
@pytest.mark.slow
def test_all_of_resnet18_trains_in_192_kib_on_an_m4f(tmp_path: Path) -> None:
    blocks = ((1, 1), (1, 1), (2, 2), (2, 1), (4, 2), (4, 1), (8, 2), (8, 1))
    model = resnet(tmp_path, 64, blocks, 32)
    host = Options(model, "host", lr=0.05, ram_bytes=900 * KIB * KIB, depth=0)
    _, whole = trained(host, tmp_path / "whole", "host", 1)
    assert whole.outcome.sectors_read == 0
    budgets = ((192, M4F), (172, "host"), (32, "host"))
    for kib, on in budgets:
        narrow = replace(host, board=M4F, ram_bytes=kib * KIB, gap=5e-3)
        program, result = trained(narrow, tmp_path / f"in_{kib}", on, 1)
        assert program.peak_bytes <= kib * KIB
        assert streamed(program) >= {"forward", "backward", "param"}
        assert result.params_sha256 == whole.params_sha256
