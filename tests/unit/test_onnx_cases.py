"""Awkward files: each imports and computes what ONNX Runtime does, or gives one clear error."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from poetgen.errors import ModelError
from poetgen.graph import Model
from poetgen.onnx_import import import_onnx
from poetgen.op import Array
from poetgen.ops import by_onnx
from tests.cases.make_cases import CASES, Case, write


def forward(model: Model, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """All tensors, node after node by the ops' references, in inference form."""
    values: dict[str, Array] = {**model.parameters, **feeds}
    for node in model.nodes:
        op, inputs, outputs = node.op, range(len(node.inputs)), range(len(node.outputs))
        if (instead := op.inference()) is not None:
            op, inputs, outputs = instead
        made = op.reference(*(values[node.inputs[i]] for i in inputs))
        values.update(zip((node.outputs[o] for o in outputs), made, strict=True))
    return values


def feeds_of(model: Model, seed: int = 0) -> dict[str, Array]:
    """Numbers for each input."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(spec.shape).astype(np.float32)
        if (spec := model.spec(name)).dtype == "f32"
        else rng.integers(0, 2, spec.shape).astype(np.int32)
        for name in model.inputs
    }


def onnxruntime_outputs(path: Path, feeds: Mapping[str, Array], outputs: tuple[str, ...]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    wide = {
        i.name: feeds[i.name].astype(np.int64) if i.type == "tensor(int64)" else feeds[i.name]
        for i in session.get_inputs()
        if i.name in feeds
    }
    made: list[Array] = session.run(list(outputs), wide)
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_an_awkward_file_imports_or_gives_one_clear_error(case: Case, tmp_path: Path) -> None:
    path = write(case, tmp_path)
    missing = [op for op in case.ops if op not in by_onnx()]
    if case.error or missing:
        with pytest.raises(ModelError) as caught:
            import_onnx(path, batch=case.batch)
        error = caught.value
        assert error.exit_code == 3
        assert error.hint or not missing
        text = error.message
        if missing:
            wanted = {"Gemm": ("Gemm", "MatMul")}
            assert any(name in text for op in missing for name in wanted.get(op, (op,))), text
        else:
            assert all(word in text for word in case.error), text
            assert len(text) < 400
        return
    model = import_onnx(path, batch=case.batch)
    assert tuple(model.spec(o).shape for o in model.outputs) == case.shapes
    notes = " ".join(model.notes)
    assert all(word in notes for word in case.notes), notes
    assert set(case.parameters) <= set(model.parameters)
    assert not set(case.parameters) & set(model.fixed)
    if case.runs:
        feeds = feeds_of(model)
        values = forward(model, feeds)
        for name, expected in zip(
            model.outputs, onnxruntime_outputs(path, feeds, model.outputs), strict=True
        ):
            np.testing.assert_allclose(values[name], expected, rtol=2e-5, atol=2e-6)
