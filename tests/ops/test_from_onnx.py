"""ONNX says one thing in several ways, by opset: each is read, and agrees with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from poetgen.op import Op, Spec, f32
from poetgen.ops import by_onnx
from poetgen.ops.activation import Elu, HardSigmoid, LeakyRelu
from poetgen.ops.batchnorm import BatchNorm, BatchNormTrain, StatisticUpdate
from poetgen.ops.clip import Clip
from poetgen.ops.conv import Geometry
from poetgen.ops.conv_transpose import ConvTranspose
from poetgen.ops.dropout import Dropout, NoDropout
from poetgen.ops.gather import Gather
from poetgen.ops.gelu import GeluTanh
from poetgen.ops.layernorm import LayerNorm, Rows
from poetgen.ops.lrn import Around, Lrn
from poetgen.ops.mean import Mean
from poetgen.ops.move import Concat, Expand, Pad, Slice, Split
from poetgen.ops.pool import AveragePool, MaxPool, Window
from poetgen.ops.reduce import ReduceMax, ReduceMin, ReduceSum
from poetgen.ops.shape import Reshape, Squeeze, Unsqueeze
from poetgen.ops.softmax import Along, LogSoftmax, Softmax
from poetgen.ops.transpose import Transpose
from poetgen.ops.unary import Pow, Sqrt
from tests.ops.onnx_node import FakeNode, RefusedError
from tests.ops.test_ops import onnx_runtime


def _node(
    op_type: str,
    opset: int,
    x: Spec,
    attributes: dict[str, Any] | None = None,
    *constants: np.ndarray | None,
    outputs: int = 1,
) -> FakeNode:
    specs = tuple(None if c is None else Spec(tuple(c.shape), "i32") for c in constants)
    return FakeNode(op_type, opset, (x, *specs), attributes or {}, (None, *constants), outputs)


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


X = f32(2, 3, 5, 7)
FORMS = [
    (_node("ReduceMean", 11, X, {"axes": [1, -1], "keepdims": 0}), Mean((1, -1), False)),
    (_node("ReduceMean", 11, X), Mean((0, 1, 2, 3))),
    (_node("ReduceMean", 18, X, {"keepdims": 1}, _ints(2, 3)), Mean((2, 3))),
    (_node("ReduceMean", 18, X, {"noop_with_empty_axes": 1}), Mean(())),
    (_node("ReduceMean", 18, X, {"noop_with_empty_axes": 0}), Mean((0, 1, 2, 3))),
    (_node("GlobalAveragePool", 17, X), Mean((2, 3))),
    (_node("Squeeze", 11, f32(2, 1, 3), {"axes": [1]}), Squeeze((1,))),
    (_node("Squeeze", 13, f32(2, 1, 3), {}, _ints(1)), Squeeze((1,))),
    (_node("Squeeze", 13, f32(2, 1, 3)), Squeeze(None)),
    (_node("Unsqueeze", 11, f32(2, 3), {"axes": [0, 3]}), Unsqueeze((0, 3))),
    (_node("Reshape", 13, X, {}, _ints(0, -1)), Reshape((0, -1))),
    (_node("Reshape", 14, X, {"allowzero": 1}, _ints(6, 35)), Reshape((6, 35), True)),
    (_node("Softmax", 11, X), Softmax(Along(1, True))),
    (_node("Softmax", 11, X, {"axis": 2}), Softmax(Along(2, True))),
    (_node("Softmax", 13, X), Softmax(Along(-1))),
    (_node("LogSoftmax", 13, X, {"axis": 1}), LogSoftmax(Along(1))),
    (_node("Transpose", 13, X), Transpose((3, 2, 1, 0))),
    (_node("Clip", 10, X, {"min": -0.5, "max": 0.5}), Clip(-0.5, 0.5)),
    (_node("Clip", 10, X, {"max": 0.5}), Clip(None, 0.5)),
    (_node("Clip", 13, X, {}, None, _number(0.5)), Clip(None, 0.5)),
    (_node("Clip", 13, X, {}, _number(0), _number(6)), Clip(0.0, 6.0)),
    (_node("Clip", 13, X, {}, _number(0), _number(np.finfo(np.float32).max)), Clip(0.0, None)),
    (_node("Dropout", 10, X, {"ratio": 0.25}), Dropout(0.25)),
    (_node("Dropout", 13, X), Dropout(0.5)),
    (_node("Dropout", 13, X, {}, _number(0.0)), NoDropout()),
    (
        _node("MaxPool", 17, X, {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        MaxPool(Window.of((3, 2), (2, 2), (1, 0, 1, 1))),
    ),
    (
        _node("MaxPool", 17, X, {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}),
        MaxPool(Window.of((2, 2), (), (1, 1, 0, 0))),
    ),
    (
        _node("MaxPool", 17, X, {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "VALID"}),
        MaxPool(Window.of((2, 2), (2, 2))),
    ),
    (_node("MaxPool", 8, X, {"kernel_shape": [2, 2], "storage_order": 0}), MaxPool(Window.of((2, 2)))),
    (_node("ReduceSum", 11, X, {"axes": [1, -1], "keepdims": 0}), ReduceSum((1, -1), False)),
    (_node("ReduceSum", 13, X, {"keepdims": 1}, _ints(2, 3)), ReduceSum((2, 3))),
    (_node("ReduceSum", 13, X, {"noop_with_empty_axes": 1}), ReduceSum(())),
    (_node("ReduceMax", 18, X, {"keepdims": 0}, _ints(-1)), ReduceMax((-1,), False)),
    (_node("ReduceMin", 17, X), ReduceMin((0, 1, 2, 3))),
    (_node("GlobalMaxPool", 17, X), ReduceMax((2, 3))),
    (_node("Gelu", 20, X, {"approximate": "tanh"}), GeluTanh()),
    (_node("Pow", 17, X, {}, np.array([2], np.int64)), Pow(2.0)),
    (
        _node("Gather", 17, X, {"axis": 1}, _ints(-1).reshape(())),
        Slice.of(X.shape, {1: (2, 1, 1)}).without(1),
    ),
    (_node("Gather", 17, X, {"axis": -1}, _ints(6, 3, 0)), Slice.of(X.shape, {3: (6, -3, 3)})),
    (_node("Slice", 9, X, {"starts": [1], "ends": [3], "axes": [2]}), Slice.of(X.shape, {2: (1, 1, 2)})),
    (
        _node("Slice", 9, X, {"starts": [0, 1], "ends": [1, 9]}),
        Slice.of(X.shape, {0: (0, 1, 1), 1: (1, 1, 2)}),
    ),
    (
        _node("Slice", 17, X, {}, _ints(-1), _ints(-99), _ints(3), _ints(-3)),
        Slice.of(X.shape, {3: (6, -3, 3)}),
    ),
    (_node("Slice", 17, X, {}, _ints(1), _ints(1 << 62)), Slice.of(X.shape, {0: (1, 1, 1)})),
    (_node("Split", 11, X, {"axis": 1, "split": [1, 2]}, outputs=2), Split(1, (1, 2))),
    (_node("Split", 13, X, {"axis": 0}, outputs=2), Split(0, (1, 1))),
    (_node("Split", 18, X, {"axis": 2, "num_outputs": 2}, outputs=2), Split(2, (3, 2))),
    (
        _node("Pad", 10, X, {"pads": [0, 0, 1, 0, 0, 0, 0, 2], "value": 1.5}),
        Pad((0, 0, 1, 0), (0, 0, 0, 2), 1.5),
    ),
    (_node("Pad", 18, X, {}, _ints(1, 2), None, _ints(-1)), Pad((0, 0, 0, 1), (0, 0, 0, 2))),
    (_node("Concat", 17, X, {"axis": -2}), Concat(-2)),
    (_node("Expand", 17, X, {}, _ints(3, 1, 1, 1, 1)), Expand((3, 1, 1, 1, 1))),
    (_node("LeakyRelu", 17, X), LeakyRelu(0.01)),
    (_node("HardSigmoid", 17, X), HardSigmoid(0.2, 0.5)),
    (_node("Elu", 17, X), Elu(1.0)),
    (_node("LRN", 17, X, {"size": 3}), Lrn(Around(3))),
    (
        _node("AveragePool", 17, X, {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        AveragePool(Window.of((3, 3), (2, 2), (1, 1, 1, 1))),
    ),
    (
        _node("AveragePool", 11, X, {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "count_include_pad": 1}),
        AveragePool(Window.of((2, 3), (), (1, 1, 0, 1)), True),
    ),
]


@pytest.mark.parametrize(
    ("node", "op"), FORMS, ids=[f"{n.op_type}-{n.opset}-{n.attributes}-{o}" for n, o in FORMS]
)
def test_form_is_read_and_agrees_with_onnx_runtime(node: FakeNode, op: Op) -> None:
    got, operands = by_onnx()[node.op_type].from_onnx(node)
    assert got == op
    assert operands == (0,)
    assert node.unread() == set()
    x = np.random.default_rng(0).standard_normal(node.inputs[0].shape).astype(np.float32)
    instead = op.inference()
    (y, *_) = (op if instead is None else instead[0]).reference(x)
    np.testing.assert_allclose(y, onnx_runtime(node, [x]), rtol=2e-6, atol=2e-6)


REFUSED = [
    (_node("MaxPool", 17, X, {"kernel_shape": [2, 2]}, outputs=2), "Indices"),
    (_node("MaxPool", 17, f32(1, 1, 4, 4, 4), {"kernel_shape": [2, 2, 2]}), "spatial axes"),
    (_node("MaxPool", 17, X, {"kernel_shape": [2, 2], "auto_pad": "SAME"}), "auto_pad"),
    (FakeNode("Clip", 13, (X, f32())), "lower bound is computed"),
    (FakeNode("Reshape", 13, (X, Spec((2,), "i32"))), "computed at run time"),
    (FakeNode("Squeeze", 13, (X, Spec((1,), "i32"))), "computed at run time"),
    (FakeNode("ReduceMean", 18, (X, Spec((1,), "i32"))), "computed at run time"),
    (FakeNode("Dropout", 13, (X, f32())), "ratio is computed"),
    (_node("Dropout", 13, X, {}, _number(1.0)), "ratio is 1"),
    (_node("BatchNormalization", 7, X, {"spatial": 0}), "spatial"),
    (FakeNode("Slice", 17, (X, Spec((1,), "i32"), Spec((1,), "i32"))), "starts are computed"),
    (_node("Pad", 17, X, {"mode": "reflect"}, _ints(*[0] * 8)), "reflect"),
    (FakeNode("Expand", 17, (X, Spec((4,), "i32"))), "shape is computed"),
    (FakeNode("Split", 17, (X, Spec((2,), "i32")), output_count=2), "sizes are computed"),
    (FakeNode("Pow", 17, (X, f32())), "no constant"),
    (_node("Gather", 17, X, {"axis": 1}, _ints(3)), "outside of 3 rows"),
    (_node("Gelu", 20, X, {"approximate": "sigmoid"}), "approximate"),
    (_node("Elu", 17, X, {"alpha": -1.0}), "alpha is -1"),
    (FakeNode("LayerNormalization", 17, (X, f32(7)), output_count=2), "only Y"),
    (_node("Cast", 17, X, {"to": 11}), "type 11"),
]


@pytest.mark.parametrize(("node", "word"), REFUSED, ids=[f"{n.op_type}-{w}" for n, w in REFUSED])
def test_what_is_not_supported_is_refused_in_words(node: FakeNode, word: str) -> None:
    with pytest.raises(RefusedError, match=word):
        by_onnx()[node.op_type].from_onnx(node)


def test_an_exponent_of_a_half_is_a_root() -> None:
    assert Pow.from_onnx(_node("Pow", 17, X, {}, _number(0.5))) == (Sqrt(), (0,))


@pytest.mark.parametrize(
    ("attributes", "geometry", "extra"),
    [
        ({"strides": [2, 2], "auto_pad": "SAME_UPPER"}, Geometry.of(2, (2, 2), (0, 0, 1, 1)), (0, 0)),
        ({"strides": [2, 2], "auto_pad": "SAME_LOWER"}, Geometry.of(2, (2, 2), (1, 1, 0, 0)), (0, 0)),
        ({"auto_pad": "VALID"}, Geometry.of(2), (0, 0)),
        (
            {"strides": [2, 2], "output_shape": [9, 14], "output_padding": [0, 1]},
            Geometry.of(2, (2, 2), (1, 1, 1, 1)),
            (0, 1),
        ),
    ],
)
def test_a_transposed_convolution_agrees_with_onnx_runtime(
    attributes: dict[str, Any], geometry: Geometry, extra: tuple[int, ...]
) -> None:
    node = FakeNode("ConvTranspose", 17, (X, f32(3, 2, 3, 3)), attributes)
    op, operands = ConvTranspose.from_onnx(node)
    assert (op, operands) == (ConvTranspose(geometry, extra), (0, 1))
    assert node.unread() == set()
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s.shape).astype(np.float32) for s in node.inputs if s is not None)
    (y,) = op.reference(x, w)
    np.testing.assert_allclose(y, onnx_runtime(node, [x, w]), rtol=2e-6, atol=2e-5)


def test_constant_ids_in_unequal_steps_are_read_at_run_time() -> None:
    assert Gather.from_onnx(_node("Gather", 17, X, {"axis": 1}, _ints(0, 2, 1))) == (Gather(1), (0, 1))


def test_layer_norm_without_a_bias_is_read() -> None:
    node = FakeNode("LayerNormalization", 17, (X, f32(5, 7)), {"axis": 2, "stash_type": 1})
    assert LayerNorm.from_onnx(node) == (LayerNorm(Rows(2), False), (0, 1))
    assert node.unread() == set()


@pytest.mark.parametrize(
    ("opset", "attributes", "outputs", "kind"),
    [
        (9, {}, 1, BatchNorm),
        (13, {}, 1, BatchNorm),
        (13, {}, 5, BatchNormTrain),
        (14, {}, 1, BatchNorm),
        (15, {"training_mode": 1}, 3, BatchNormTrain),
    ],
)
def test_batch_norm_trains_where_the_file_says_so(
    opset: int, attributes: dict[str, Any], outputs: int, kind: type[Op]
) -> None:
    specs = (f32(2, 3, 4), *(f32(3),) * 4)
    node = FakeNode("BatchNormalization", opset, specs, {**attributes, "epsilon": 1e-3}, (), outputs)
    op, operands = BatchNorm.from_onnx(node)
    assert type(op) is kind
    assert (op.eps, op.momentum) == (1e-3, 0.9)
    assert operands == (0, 1, 2, 3, 4)


def test_training_batch_norm_and_its_statistics_agree_with_onnx_runtime() -> None:
    rng = np.random.default_rng(0)
    x = (3 * rng.standard_normal((4, 3, 5, 2)) + 1).astype(np.float32)
    g, b, mean = (rng.standard_normal(3).astype(np.float32) for _ in range(3))
    var = rng.uniform(0.5, 2, 3).astype(np.float32)
    names = ["x", "g", "b", "mean", "var"]
    arrays = dict(zip(names, (x, g, b, mean, var), strict=True))
    graph = helper.make_graph(
        [
            helper.make_node(
                "BatchNormalization",
                names,
                ["y", "new_mean", "new_var"],
                training_mode=1,
                momentum=0.75,
                epsilon=1e-3,
            )
        ],
        "one",
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, a.shape) for n, a in arrays.items()],
        [
            helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None)
            for n in ("y", "new_mean", "new_var")
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, arrays)
    y, batch_mean, batch_var = BatchNormTrain(1e-3, 0.75).reference(x, g, b)
    (new_mean,) = StatisticUpdate(0.75).reference(mean, batch_mean)
    (new_var,) = StatisticUpdate(0.75).reference(var, batch_var)
    for got, want in zip((y, new_mean, new_var), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_batch_norm_over_one_element_a_channel_is_refused() -> None:
    with pytest.raises(ValueError, match="one element a channel"):
        BatchNormTrain().infer(f32(1, 3), f32(3), f32(3))


@pytest.mark.parametrize(
    ("window", "x", "word"),
    [
        (Window.of((3,)), f32(1, 1, 2), "does not fit"),
        (Window.of((2,), (), (2, 0)), f32(1, 1, 4), "nothing but padding"),
        (Window.of((2, 2)), f32(1, 1, 4), "does not slide"),
        (Window.of((2,), (0,)), f32(1, 1, 4), "below 1"),
    ],
)
def test_a_window_that_does_not_fit_is_refused_in_words(window: Window, x: Spec, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        window.out_shape(x)
