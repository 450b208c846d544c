"""Gradients fused into fewer passes give the bits of the nodes they are made of."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from poetgen.autodiff import Sgd, differentiate
from poetgen.autodiff.fused_passes import fuse_passes
from poetgen.autodiff.fused_updates import fuse_updates
from poetgen.graph import TrainingGraph
from poetgen.onnx_import import import_onnx
from poetgen.op import Array
from tests.parity.nets import DATA

RESIDUAL = DATA / "residual_bn.onnx"


def step(training: TrainingGraph) -> dict[str, Array]:
    """Every tensor after one training step; changed ones by their new value."""
    rng = np.random.default_rng(1)
    values: dict[str, Array] = {k: np.array(v) for k, v in training.initial.items()}
    for t in training.tensors.values():
        if t.kind == "input":
            values[t.name] = rng.standard_normal(t.spec.shape).astype(np.float32)
        elif t.kind == "label":
            values[t.name] = rng.integers(0, 2, t.spec.shape).astype(t.spec.numpy)
        elif t.kind == "scalar":
            values[t.name] = np.array(0.1, t.spec.numpy)
    for node in training.nodes:
        read = [values[i].reshape(s.shape) for i, s in zip(node.inputs, node.in_specs, strict=True)]
        made = node.op.reference(*read)
        names = [node.inputs[i] for i in node.op.mutates] or node.outputs
        values.update(zip(names, made, strict=True))
    return values


def kinds(training: TrainingGraph) -> Counter[str]:
    return Counter(type(n.op).__name__ for n in training.nodes)


@pytest.mark.parametrize("bn", ["frozen", "train"])
def test_a_fused_step_gives_the_same_parameters_and_gradients(bn: str) -> None:
    training = fuse_updates(differentiate(import_onnx(RESIDUAL), optimizer=Sgd(0.9), bn=bn))
    fused = fuse_passes(training)
    before, after = step(training), step(fused)
    assert set(after) < set(before)
    for name, value in after.items():
        assert value.tobytes() == before[name].tobytes(), name


@pytest.mark.parametrize("bn", ["frozen", "train"])
def test_sums_of_gradients_are_made_by_their_readers(bn: str) -> None:
    training = differentiate(import_onnx(RESIDUAL), bn=bn)
    before, after = kinds(training), kinds(fuse_passes(training))
    sums = {k: n for k, n in after.items() if k.endswith("OfSum")}
    backward = [n for n in training.nodes if n.phase == "backward" and type(n.op).__name__ == "Add"]
    assert sum(sums.values()) > 0
    assert before["Add"] - after["Add"] == sum(sums.values()) <= len(backward)


def test_the_gradients_of_a_batch_norm_are_one_node_or_two() -> None:
    for bn, fused, gone in (
        ("frozen", "BatchNormGradients", ("BatchNormDg", "BatchNormDx")),
        ("train", "BatchNormSums", ("BatchNormDg",)),
    ):
        training = differentiate(import_onnx(RESIDUAL), bn=bn)
        before, after = kinds(training), kinds(fuse_passes(training))
        assert after[fused] == before["BatchNormDg"] > 0
        assert all(after[g] == 0 for g in gone)
        assert before["ChannelSum"] - after["ChannelSum"] == after[fused]


def test_every_tensor_that_is_read_is_made_and_none_is_left_over() -> None:
    training = differentiate(import_onnx(RESIDUAL), bn="frozen")
    fused = fuse_passes(training)
    for node in fused.nodes:
        assert all(i in fused.tensors for i in (*node.inputs, *node.outputs))
    made = {o for n in fused.nodes for o in n.outputs}
    read = {i for n in fused.nodes for i in n.inputs}
    acts = {t.name for t in fused.tensors.values() if t.kind == "act"}
    assert acts <= made and read & acts <= made
