"""Plain SGD changes the rows of an embedding that the batch names, with the bits of the dense update."""

from __future__ import annotations

import numpy as np
import pytest

from poetgen.autodiff import Adam, Sgd, differentiate
from poetgen.autodiff.optimizers import Optimizer
from poetgen.autodiff.sparse_updates import sparse_updates
from poetgen.interpreter import Machine
from poetgen.onnx_import import import_onnx
from poetgen.op import Array
from poetgen.ops.gather import GatherDx, GatherSgd
from tests.parity.nets import DATA, Oracle, program

TOKENS = Oracle(DATA / "tokens.onnx")


def test_the_bits_are_those_of_the_dense_update() -> None:
    dense = TOKENS.graph()
    sparse = sparse_updates(dense)
    after: list[dict[str, Array]] = []
    for graph in (dense, sparse):
        machine = Machine.start(program(graph))
        for step in range(TOKENS.steps):
            inputs, label = TOKENS.batch(step)
            machine.train_step({"x": inputs["x"].astype(np.int32)}, label, TOKENS.lr)
        after.append(machine.parameters())
    assert after[0].keys() == after[1].keys()
    assert all(a.tobytes() == after[1][k].tobytes() for k, a in after[0].items())


def test_a_row_that_no_id_names_stays() -> None:
    graph = sparse_updates(TOKENS.graph())
    machine = Machine.start(program(graph))
    inputs, label = TOKENS.batch(0)
    machine.train_step({"x": inputs["x"].astype(np.int32)}, label, TOKENS.lr)
    moved = (machine.parameters()["token.weight"] != graph.initial["token.weight"]).any(axis=1)
    assert set(np.flatnonzero(moved)) == set(np.unique(inputs["x"]))
    assert not moved.all()


def test_no_tensor_of_the_tables_size_is_left() -> None:
    sparse = sparse_updates(TOKENS.graph())
    assert not [n for n in sparse.nodes if isinstance(n.op, GatherDx)]
    (update,) = (n for n in sparse.nodes if isinstance(n.op, GatherSgd))
    table = update.in_specs[0]
    assert update.op.workspace_bytes(update.in_specs, ()) == table.nbytes // table.shape[0]
    assert set(update.mutates) == {"token.weight"}


@pytest.mark.parametrize("optimizer", [Sgd(momentum=0.9), Adam()], ids=str)
def test_other_optimizers_move_every_row(optimizer: Optimizer) -> None:
    training = differentiate(import_onnx(TOKENS.path), optimizer=optimizer)
    assert sparse_updates(training) is training
