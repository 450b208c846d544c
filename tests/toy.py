"""A network of two dense layers and data for it: small enough to build and run in every test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BATCH, FEATURES, HIDDEN, CLASSES = 4, 6, 5, 3


def weights(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "hidden.weight": rng.standard_normal((HIDDEN, FEATURES)).astype(np.float32),
        "hidden.bias": np.zeros(HIDDEN, np.float32),
        "head.weight": rng.standard_normal((CLASSES, HIDDEN)).astype(np.float32),
        "head.bias": np.zeros(CLASSES, np.float32),
    }


def write_model(file: Path, **changed: Any) -> Path:
    """Write the network; ``changed`` replaces initializers, or ``activation`` the op between the layers."""
    activation = changed.pop("activation", "Relu")
    nodes = [
        helper.make_node("Gemm", ["x", "hidden.weight", "hidden.bias"], ["h"], "/hidden/Gemm", transB=1),
        helper.make_node(activation, ["h"], ["a"], "/act"),
        helper.make_node("Gemm", ["a", "head.weight", "head.bias"], ["logits"], "/head/Gemm", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, FEATURES])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [BATCH, CLASSES])],
        [numpy_helper.from_array(v, k) for k, v in (weights() | changed).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, file)
    return file


def write_data(file: Path, rows: int = 16, **changed: Any) -> Path:
    """Write separable data; ``changed`` replaces arrays."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, CLASSES, rows)
    x = rng.standard_normal((rows, FEATURES)).astype(np.float32)
    x[np.arange(rows), y] += 3
    np.savez(file, **({"x": x, "y": y} | changed))
    return file
