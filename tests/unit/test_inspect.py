"""What inspect tells: sizes, which parameters train and why the others do not, and on how much work."""

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from poetgen.inspect import Inspection, inspect_model
from poetgen.onnx_import import import_onnx
from tests.unit.test_onnx_import import array, node, save


@pytest.fixture
def inspection(tmp_path: Path) -> Inspection:
    nodes = [
        node("BatchNormalization", ("x", "s", "b", "m", "v"), ("a",), name="bn"),
        node("Relu", ("a",), ("r",), name="act"),
        node("Constant", (), ("mask",), value=numpy_helper.from_array(array(6))),
        node("Add", ("r", "mask"), ("c",), name="masked"),
        node("Flatten", ("c",), ("y",), name="flat"),
    ]
    weights = {n: np.abs(array(3, seed=k)) + 1 for k, n in enumerate("sbmv")}
    return inspect_model(import_onnx(save(tmp_path, nodes, {"x": (2, 3, 6)}, {"y": (2, 18)}, weights)))


def test_each_parameter_says_why_it_does_not_train(inspection: Inspection) -> None:
    why = {p.name: p.why_not for p in inspection.parameters}
    assert why["s"] == why["b"] == ""
    assert "running statistic" in why["m"] and "running statistic" in why["v"]
    assert "constant node outside of a weight or bias slot" in why["mask"]
    assert inspection.trainable_elements == 6


def test_bytes_are_those_of_the_tensors(inspection: Inspection) -> None:
    """Three tensors of 36 floats; the view takes none."""
    assert inspection.activation_bytes == 3 * 36 * 4
    assert [(t.name, t.bytes) for t in (*inspection.inputs, *inspection.outputs)] == [("x", 144), ("y", 144)]
    assert {o.op: o.output_bytes for o in inspection.ops}["Flatten"] == 0


def test_the_work_is_the_sum_over_the_ops(inspection: Inspection) -> None:
    work = {o.op: o.work for o in inspection.ops}
    assert work["Relu"] == {"elementwise": 36} and work["Flatten"] == {}


def test_json_and_text_say_the_same(inspection: Inspection) -> None:
    data = json.loads(json.dumps(inspection.json()))
    text = inspection.text()
    assert data["trainable_elements"] == 6 and data["opset"] == 17
    for p in data["parameters"]:
        line = next(row for row in text.splitlines() if row.startswith(p["name"] + " "))
        assert line.endswith("yes" if p["trainable"] else p["why_not"])
    assert "2 of 5 parameters train by default: 6 numbers, 24 of 72 bytes." in text
