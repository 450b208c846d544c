"""A gradient fused with its update gives the bits of the two nodes, and needs no gradient tensor."""

import numpy as np
import pytest

from poetgen.autodiff import Adam, Sgd, differentiate
from poetgen.autodiff.fused_updates import fuse_updates, fused_class
from poetgen.autodiff.optimizers import Optimizer
from poetgen.onnx_import import import_onnx
from poetgen.op import Workspace
from poetgen.ops.adam import AdamUpdate
from poetgen.ops.channel_sum import ChannelSum
from poetgen.ops.conv import ConvDw
from poetgen.ops.gemm import GemmDw
from poetgen.ops.sgd import MomentumUpdate, SgdUpdate
from tests.parity.nets import DATA

UPDATES = (SgdUpdate(), MomentumUpdate(0.9), AdamUpdate(eps=1e-4))


@pytest.mark.parametrize("update", UPDATES, ids=lambda u: type(u).__name__)
def test_the_two_ops_one_after_the_other_give_the_same_bits(update) -> None:
    rng = np.random.default_rng(1)
    dy = rng.standard_normal((2, 3, 4)).astype(np.float32)
    state = [np.abs(rng.standard_normal(3)).astype(np.float32) for _ in range(3)]
    u = np.array([0.5, 0.1], np.float32)
    apart = {SgdUpdate: [], MomentumUpdate: state[:1], AdamUpdate: [*state[:2], u]}[type(update)]
    w, lr = rng.standard_normal(3).astype(np.float32), np.float32(0.1)
    (dw,) = ChannelSum().reference(dy)
    wanted = update.reference(w, dw, lr, *apart)
    kind = fused_class(update)
    assert kind is not None
    operands = (w, dw, lr, *apart)
    found = kind(ChannelSum(), update).reference(*(operands[i] for i in kind.order), dy)
    for a, b in zip(wanted, found, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("optimizer", (Sgd(), Sgd(0.9), Adam()), ids=("sgd", "momentum", "adam"))
def test_every_weight_of_a_network_is_fused_and_its_gradient_is_workspace(optimizer: Optimizer) -> None:
    training = differentiate(import_onnx(DATA / "conv2d_grouped.onnx"), optimizer=optimizer)
    fused = fuse_updates(training)
    weights = [n for n in fused.nodes if hasattr(n.op, "gradient_op")]
    assert len(weights) == sum(isinstance(n.op, ConvDw | GemmDw) for n in training.nodes) > 0
    for node in weights:
        calls = node.op.calls(node.in_specs, node.out_specs)
        assert sum(isinstance(a, Workspace) for c in calls for a in c.args) == 2
        assert node.op.workspace_bytes(node.in_specs, node.out_specs) == node.in_specs[0].nbytes
    assert len(fused.nodes) == len(training.nodes) - len(weights)
