"""Small networks written down as ONNX files, for tests of what comes after the import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from poetgen.graph import Model
from poetgen.onnx_import import import_onnx

OPSET = 17


class OnnxNet:
    """Grows a network with seeded weights.

    ``net = OnnxNet((4, 3, 8)); y = net.op("Relu", "x"); model = net.model(y, tmp_path)``
    """

    def __init__(self, shape: Sequence[int], seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = tuple(shape)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node; its first output."""
        name = f"{kind.lower()}{len(self.nodes)}"
        made = [name, *(f"{name}_{k}" for k in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, inputs, made, name=f"{name}_node", **attributes))
        return name

    def weight(self, *shape: int, scale: float = 0.5, about: float = 0.0) -> str:
        """Add a float32 parameter of normal numbers."""
        values = self.rng.standard_normal(shape) * scale + about
        return self.constant(values.astype(np.float32))

    def constant(self, values: Any, name: str = "") -> str:
        """Add an initializer."""
        name = name or f"w{len(self.weights)}"
        self.weights[name] = np.asarray(values)
        return name

    def dense(self, x: str, width: int, out: int) -> str:
        return self.op("Gemm", x, self.weight(out, width), self.weight(out), transB=1)

    def norm(self, x: str, channels: int, *, train: bool, momentum: float = 0.8) -> str:
        scale, bias = self.weight(channels, about=1.0, scale=0.2), self.weight(channels)
        mean = self.weight(channels)
        var = self.constant(self.rng.uniform(0.5, 1.5, channels).astype(np.float32))
        more: dict[str, Any] = {"outputs": 3, "training_mode": 1} if train else {}
        return self.op("BatchNormalization", x, scale, bias, mean, var, momentum=momentum, **more)

    def dropout(self, x: str, ratio: float) -> str:
        return self.op("Dropout", x, self.constant(np.float32(ratio)), self.constant(np.array(True)))

    def write(self, output: str, folder: Path, name: str = "net") -> Path:
        """The network as a file that the checker accepts."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(v, k) for k, v in self.weights.items()],
        )
        file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        file = onnx.shape_inference.infer_shapes(file, check_type=True, strict_mode=True)
        onnx.checker.check_model(file)
        path = folder / f"{name}.onnx"
        onnx.save(file, path)
        return path

    def model(self, output: str, folder: Path) -> Model:
        """The network as imported."""
        return import_onnx(self.write(output, folder))


def shared_weights(folder: Path) -> Path:
    """A weight used twice, dropout, batch norm in training form, a residual: (6, 10) to 5 classes."""
    net = OnnxNet((6, 10), seed=3)
    w = net.weight(10, 10)
    a = net.op("Relu", net.op("Gemm", "x", w, net.weight(10), transB=1))
    b = net.norm(net.dropout(a, 0.4), 10, train=True)
    c = net.op("Tanh", net.op("Gemm", b, w, transB=1))
    d = net.op("Mul", net.op("Add", c, a), net.weight(10, about=1.0))
    return net.write(net.dense(net.dropout(d, 0.2), 10, 5), folder, "shared")


def branches(folder: Path) -> Path:
    """Windows, a depthwise convolution, two branches that join, averages: (2, 4, 8, 6) to 3 classes."""
    net = OnnxNet((2, 4, 8, 6), seed=5)
    a = net.op("Conv", "x", net.weight(8, 4, 3, 3), pads=[1, 1, 1, 1])
    a = net.op("Relu", net.norm(a, 8, train=False))
    b = net.op("Conv", a, net.weight(8, 1, 3, 3), net.weight(8), group=8, pads=[1, 1, 1, 1])
    c = net.op("Sigmoid", net.op("Conv", a, net.weight(8, 8, 1, 1), net.weight(8)))
    d = net.op("MaxPool", net.op("Mul", b, c), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 0])
    e = net.op("AveragePool", net.op("Sub", a, b), kernel_shape=[2, 2], strides=[2, 2])
    f = net.op("Clip", net.op("Add", d, e), net.constant(np.float32(-1)), net.constant(np.float32(2)))
    return net.write(net.dense(net.op("Flatten", net.op("GlobalAveragePool", f)), 8, 3), folder, "branches")
