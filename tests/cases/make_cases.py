"""Files as awkward as real ones, and what a user should get from each: an import, or one clear error.

    python -m tests.cases.make_cases OUT_DIR        writes them all

``CASES`` is walked by ``tests/unit/test_onnx_cases.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@dataclass(frozen=True)
class Case:
    """A file, and what importing it must give."""

    name: str
    build: Callable[[], ModelProto | bytes]
    shapes: tuple[tuple[int, ...], ...] = ()
    """Output shapes of the model where the import works."""
    error: tuple[str, ...] = ()
    """Words that the one error holds, where it does not."""
    notes: tuple[str, ...] = ()
    """Words that the model's notes hold."""
    ops: tuple[str, ...] = ()
    """ONNX ops that the import needs; while one is not supported, the error must name it."""
    parameters: tuple[str, ...] = ()
    runs: bool = True
    """Does ONNX Runtime compute it, so that outputs can be compared?"""
    batch: int | None = None


def _values(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def _tensor(name: str, array: np.ndarray) -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def _value(name: str, shape: Sequence[int | str], kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: Sequence[TensorProto] = (),
    opset: int = 17,
    ir: int = 8,
    functions: Sequence[Any] = (),
    more_opsets: Sequence[tuple[str, int]] = (),
) -> ModelProto:
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(weights))
    imports = [helper.make_opsetid(d, v) for d, v in (("", opset), *more_opsets)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=list(functions))


def _node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def _dense(batch: int | str, **kwargs: Any) -> ModelProto:
    return _model(
        [_node("Gemm", ("x", "w", "b"), ("y",), transB=1)],
        [_value("x", (batch, 8))],
        [_value("y", (batch, 3))],
        [_tensor("w", _values(3, 8)), _tensor("b", _values(3, seed=1))],
        **kwargs,
    )


def _matmul(weight: TensorProto, columns: int = 3) -> ModelProto:
    return _model(
        [_node("MatMul", ("x", "w"), ("y",))], [_value("x", (1, 8))], [_value("y", (1, columns))], [weight]
    )


def _one_op(op: str, shape: Sequence[int | str], out: Sequence[int | str], **kwargs: Any) -> ModelProto:
    settings = {k: kwargs.pop(k) for k in ("opset", "ir", "more_opsets") if k in kwargs}
    node = _node(op, ("x",), ("y",), **kwargs)
    return _model([node], [_value("x", shape)], [_value("y", out)], **settings)


def _conv(
    shape: Sequence[int], out: Sequence[int], weight: Sequence[int], bias: bool = False, **kw: Any
) -> ModelProto:
    weights = [_tensor("w", _values(*weight, scale=0.3))]
    if bias:
        weights.append(_tensor("b", _values(weight[0], seed=1)))
    node = _node("Conv", ("x", "w", "b")[: 2 + bias], ("y",), kernel_shape=list(weight[2:]), **kw)
    return _model([node], [_value("x", shape)], [_value("y", out)], weights)


# -- how the batch, weights and names are written


def listed_initializers() -> ModelProto:
    """Up to IR version 3 every initializer stands among the inputs as well."""
    return _model(
        [_node("Gemm", ("x", "w", "b"), ("y",))],
        [_value("x", (1, 8)), _value("w", (8, 3)), _value("b", (3,))],
        [_value("y", (1, 3))],
        [_tensor("w", _values(8, 3)), _tensor("b", _values(3, seed=1))],
        opset=8,
        ir=3,
    )


def unnamed_nodes() -> ModelProto:
    """Many exporters name tensors only."""
    nodes = [
        _node("Conv", ("x", "w"), ("a",)),
        _node("Relu", ("a",), ("b",)),
        _node("Flatten", ("b",), ("c",)),
        _node("MatMul", ("c", "v"), ("y",)),
    ]
    weights = [_tensor("w", _values(2, 1, 3, 3)), _tensor("v", _values(32, 2, seed=1))]
    return _model(nodes, [_value("x", (1, 1, 6, 6))], [_value("y", (1, 2))], weights)


def missing_external_data() -> ModelProto:
    """The .onnx file alone was copied."""
    t = TensorProto(name="w", data_type=FLOAT, dims=(8, 3), data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", "96")):
        t.external_data.add(key=key, value=value)
    return _matmul(t)


def external_data_elsewhere() -> ModelProto:
    """Nobody's model needs /etc/passwd."""
    model = missing_external_data()
    model.graph.initializer[0].external_data[0].value = "../../etc/passwd"
    return model


def long_names() -> ModelProto:
    """Names that a C identifier, cut short, cannot tell apart."""
    w, b, t = "w" * 300, "w." * 150, "t" * 299
    nodes = [_node("MatMul", ("x", w), (t + "1",)), _node("Add", (t + "1", b), ("y",))]
    weights = [_tensor(w, _values(4, 4)), _tensor(b, _values(4, 4, seed=1))]
    return _model(nodes, [_value("x", (4, 4))], [_value("y", (4, 4))], weights)


def constant_weight() -> ModelProto:
    """A weight and a bias that are no initializers but Constant nodes."""
    nodes = [
        _node("Constant", (), ("w",), value=_tensor("", _values(3, 2, 3, 3, scale=0.3))),
        _node("Constant", (), ("b",), value_floats=[0.5, -0.5, 1.0]),
        _node("Conv", ("x", "w", "b"), ("y",)),
    ]
    return _model(nodes, [_value("x", (1, 2, 4, 4))], [_value("y", (1, 3, 2, 2))])


def filled_weight() -> ModelProto:
    """A weight made by ConstantOfShape."""
    nodes = [
        _node("ConstantOfShape", ("shape",), ("w",), value=_tensor("", np.array([0.25], np.float32))),
        _node("MatMul", ("x", "w"), ("y",)),
    ]
    shape = _tensor("shape", np.array([8, 3], np.int64))
    return _model(nodes, [_value("x", (1, 8))], [_value("y", (1, 3))], [shape])


def shared_weight() -> ModelProto:
    """One matrix in two products: its gradient is the sum of both."""
    nodes = [
        _node("MatMul", ("x", "w"), ("a",)),
        _node("Relu", ("a",), ("b",)),
        _node("MatMul", ("b", "w"), ("y",)),
    ]
    return _model(nodes, [_value("x", (1, 6))], [_value("y", (1, 6))], [_tensor("w", _values(6, 6))])


# -- shapes that are computed


def constant_shapes() -> ModelProto:
    """Reshape's target and a scalar come from Constant nodes."""
    nodes = [
        _node("Constant", (), ("target",), value=_tensor("", np.array([0, -1], np.int64))),
        _node("Reshape", ("x", "target"), ("f",)),
        _node("Constant", (), ("half",), value_float=0.5),
        _node("Mul", ("f", "half"), ("g",)),
        _node("MatMul", ("g", "w"), ("y",)),
    ]
    return _model(nodes, [_value("x", (1, 2, 3, 4))], [_value("y", (1, 2))], [_tensor("w", _values(24, 2))])


def shape_chain() -> ModelProto:
    """What x.view(x.size(0), -1) becomes."""
    nodes = [
        _node("Shape", ("x",), ("s",)),
        _node("Gather", ("s", "zero"), ("n",), axis=0),
        _node("Unsqueeze", ("n", "first"), ("n1",)),
        _node("Concat", ("n1", "rest"), ("target",), axis=0),
        _node("Reshape", ("x", "target"), ("f",)),
        _node("MatMul", ("f", "w"), ("y",)),
    ]
    weights = [
        _tensor("zero", np.array(0, np.int64)),
        _tensor("first", np.array([0], np.int64)),
        _tensor("rest", np.array([-1], np.int64)),
        _tensor("w", _values(6, 2)),
    ]
    return _model(nodes, [_value("x", ("N", 2, 3))], [_value("y", ("N", 2))], weights)


def _branch(name: str, op: str, outer: str, made: str) -> Any:
    return helper.make_graph([_node(op, (outer,), (made,))], name, [], [_value(made, (1, 4))])


def constant_if() -> ModelProto:
    """An If whose condition was a Python constant; its other branch has an unsupported op."""
    node = _node(
        "If",
        ("c",),
        ("y",),
        then_branch=_branch("then", "Relu", "x", "r"),
        else_branch=_branch("else", "Hardmax", "x", "r"),
    )
    return _model([node], [_value("x", (1, 4))], [_value("y", (1, 4))], [_tensor("c", np.array(True))])


def local_function() -> ModelProto:
    """Ops defined in the file itself."""
    act = helper.make_function(
        "own", "Act", ["u"], ["v"], [_node("Relu", ("u",), ("v",))], [helper.make_opsetid("", 17)]
    )
    node = helper.make_node("Act", ["x"], ["y"], domain="own")
    return _model(
        [node], [_value("x", (1, 4))], [_value("y", (1, 4))], functions=[act], more_opsets=[("own", 1)]
    )


# -- ops whose meaning changed, or has corners


def _norm(outputs: Sequence[str], opset: int, **attributes: Any) -> ModelProto:
    node = _node("BatchNormalization", ("x", "s", "b", "m", "v"), outputs, **attributes)
    weights = [
        _tensor("s", _values(2) + 2),
        _tensor("b", _values(2, seed=1)),
        _tensor("m", _values(2, seed=2)),
        _tensor("v", np.abs(_values(2, seed=3)) + 1),
    ]
    values = [_value("y", (4, 2, 3, 3))]
    if "training_mode" in attributes:
        values += [_value("rm", (2,)), _value("rv", (2,))]
    return _model([node], [_value("x", (4, 2, 3, 3))], values, weights, opset=opset, ir=7)


def per_activation_norm() -> ModelProto:
    """spatial=0 at opset 7: statistics for each element."""
    weights = [_tensor(n, np.abs(_values(2, 3, 3, seed=k)) + 1) for k, n in enumerate("sbmv")]
    node = _node("BatchNormalization", ("x", *"sbmv"), ("y",), epsilon=1e-5, spatial=0)
    return _model([node], [_value("x", (1, 2, 3, 3))], [_value("y", (1, 2, 3, 3))], weights, opset=7, ir=4)


def scaled_gemm() -> ModelProto:
    """y = x^T w^T / 2 + 2 c with one c for all."""
    node = _node("Gemm", ("x", "w", "c"), ("y",), alpha=0.5, beta=2.0, transA=1, transB=1)
    weights = [_tensor("w", _values(3, 4)), _tensor("c", _values(1, seed=1))]
    return _model([node], [_value("x", (4, 2))], [_value("y", (2, 3))], weights)


def gemm_without_bias() -> ModelProto:
    """An optional input is left out by an empty name."""
    node = _node("Gemm", ("x", "w", ""), ("y",))
    return _model([node], [_value("x", (2, 4))], [_value("y", (2, 3))], [_tensor("w", _values(4, 3))])


def matrix_by_vector() -> ModelProto:
    """A vector on the right: the product loses an axis."""
    node = _node("MatMul", ("x", "w"), ("y",))
    return _model([node], [_value("x", (3, 4))], [_value("y", (3,))], [_tensor("w", _values(4))])


def embedding() -> ModelProto:
    """int64 indices into a table."""
    nodes = [
        _node("Gather", ("w", "ids"), ("e",)),
        _node("Flatten", ("e",), ("f",)),
        _node("MatMul", ("f", "v"), ("y",)),
    ]
    weights = [_tensor("w", _values(10, 3)), _tensor("v", _values(12, 2, seed=1))]
    return _model(nodes, [_value("ids", (1, 4), INT64)], [_value("y", (1, 2))], weights)


def pool_with_indices() -> ModelProto:
    """ceil_mode, and an output for indices that nobody reads."""
    node = _node("MaxPool", ("x",), ("y", "idx"), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    return _model([node], [_value("x", (1, 1, 6, 6))], [_value("y", (1, 1, 3, 3))])


def resize() -> ModelProto:
    """Not supported."""
    node = helper.make_node(
        "Resize",
        ["x", "", "scales"],
        ["y"],
        name="up",
        mode="linear",
        coordinate_transformation_mode="half_pixel",
    )
    scales = _tensor("scales", np.array([1, 1, 2, 2], np.float32))
    return _model([node], [_value("x", (1, 1, 3, 3))], [_value("y", (1, 1, 6, 6))], [scales])


def lstm() -> ModelProto:
    """Its first output is left out by an empty name."""
    nodes = [
        _node("LSTM", ("x", "w", "r", "b"), ("", "h", ""), hidden_size=4),
        _node("Squeeze", ("h", "ax"), ("q",)),
        _node("MatMul", ("q", "v"), ("y",)),
    ]
    weights = [
        _tensor("w", _values(1, 16, 3)),
        _tensor("r", _values(1, 16, 4, seed=1)),
        _tensor("b", _values(1, 32, seed=2)),
        _tensor("ax", np.array([0], np.int64)),
        _tensor("v", _values(4, 2, seed=3)),
    ]
    return _model(nodes, [_value("x", (5, 1, 3))], [_value("y", (1, 2))], weights)


def loop() -> ModelProto:
    """Control flow on the device."""
    body = helper.make_graph(
        [_node("Identity", ("c0",), ("c1",)), _node("Relu", ("v0",), ("v1",))],
        "body",
        [_value("i", (), INT64), _value("c0", (), TensorProto.BOOL), _value("v0", (1, 4))],
        [_value("c1", (), TensorProto.BOOL), _value("v1", (1, 4))],
    )
    node = _node("Loop", ("n", "c", "x"), ("y",), body=body)
    weights = [_tensor("n", np.array(3, np.int64)), _tensor("c", np.array(True))]
    return _model([node], [_value("x", (1, 4))], [_value("y", (1, 4))], weights)


# -- damage


def diverged() -> ModelProto:
    """A weight with a NaN and an infinity; its name has nothing to do with it."""
    w = _values(8, 3)
    w[2, 1], w[5, 0] = np.nan, -np.inf
    return _matmul(_tensor("w", w))


def half_precision() -> ModelProto:
    """float16 throughout."""
    weight = _tensor("w", _values(8, 3).astype(np.float16))
    node = _node("MatMul", ("x", "w"), ("y",))
    half = TensorProto.FLOAT16
    return _model([node], [_value("x", (1, 8), half)], [_value("y", (1, 3), half)], [weight])


def double_weight() -> ModelProto:
    """float64 weights of a float32 model."""
    return _matmul(_tensor("w", _values(8, 3).astype(np.float64)))


def truncated() -> bytes:
    """A download that broke off."""
    return _dense(1).SerializeToString()[:-40]


def cyclic() -> ModelProto:
    """Two nodes that wait for each other."""
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="n1"),
        helper.make_node("Relu", ["a"], ["b"], name="n2"),
        _node("Identity", ("b",), ("y",)),
    ]
    return _model(nodes, [_value("x", (1, 4))], [_value("y", (1, 4))])


def empty_operand() -> ModelProto:
    """A Concat with nothing, as attention exports have."""
    node = _node("Concat", ("x", "z"), ("y",), axis=1)
    z = _tensor("z", np.zeros((1, 0), np.float32))
    return _model([node], [_value("x", (1, 4))], [_value("y", (1, 4))], [z])


def short_weight() -> ModelProto:
    """Four bytes of a weight are missing."""
    t = _tensor("w", _values(8, 3))
    t.raw_data = t.raw_data[:-4]
    return _matmul(t)


def undefined_tensor() -> ModelProto:
    """A node reads what nobody makes."""
    node = _node("Add", ("x", "ghost"), ("y",))
    return _model([node], [_value("x", (1, 4))], [_value("y", (1, 4))])


def made_twice() -> ModelProto:
    """Two nodes make one tensor."""
    nodes = [_node("Relu", ("x",), ("y",)), _node("Identity", ("x",), ("y",))]
    return _model(nodes, [_value("x", (1, 4))], [_value("y", (1, 4))])


def pass_through() -> ModelProto:
    """The output is the input."""
    return _model([], [_value("x", (1, 4))], [_value("x", (1, 4))])


def unknown_attribute() -> ModelProto:
    """An attribute that changes something, for all we know."""
    model = _one_op("Relu", (1, 4), (1, 4))
    model.graph.node[0].attribute.append(helper.make_attribute("leak", 0.5))
    return model


def huge_constant() -> ModelProto:
    """A small file whose constants fill any memory."""
    nodes = [_node("ConstantOfShape", ("n",), ("k",)), _node("Add", ("x", "k"), ("y",))]
    n = _tensor("n", np.array([1 << 40], np.int64))
    return _model(nodes, [_value("x", (1,))], [_value("y", (1 << 40,))], [n])


def foreign_domain() -> ModelProto:
    """An op of another vendor."""
    node = helper.make_node("FusedConv", ["x"], ["y"], name="fused", domain="com.microsoft")
    return _model([node], [_value("x", (1, 4))], [_value("y", (1, 4))], more_opsets=[("com.microsoft", 1)])


def open_width() -> ModelProto:
    """An open axis that is not the batch."""
    return _one_op("Relu", ("N", "width"), ("N", "width"))


def reference_attribute() -> ModelProto:
    """An attribute that stands for a function's, but there is no function."""
    model = _one_op("Flatten", (1, 4), (1, 4))
    attribute = AttributeProto(name="axis", type=AttributeProto.INT, ref_attr_name="axis")
    model.graph.node[0].attribute.append(attribute)
    return model


CASES: tuple[Case, ...] = (
    Case("dynamic_batch", lambda: _dense("batch"), ((1, 3),), notes=("batch", "bound to 1"), ops=("Gemm",)),
    Case("dynamic_batch_of_5", lambda: _dense("batch"), ((5, 3),), ops=("Gemm",), batch=5),
    Case("init_also_input", listed_initializers, ((1, 3),), ops=("Gemm",), parameters=("w", "b")),
    Case("unnamed_nodes", unnamed_nodes, ((1, 2),), ops=("Conv", "Relu", "Flatten", "Gemm")),
    Case("external_data_missing", missing_external_data, error=("weights.bin", "'w'", "missing")),
    Case("external_data_elsewhere", external_data_elsewhere, error=("passwd", "'w'", "outside")),
    Case("bn_opset7_spatial0", per_activation_norm, error=("BatchNormalization", "'y'")),
    Case(
        "bn_opset13_five_outputs",
        lambda: _norm(("y", "rm", "rv", "sm", "sv"), 13, momentum=0.9),
        ((4, 2, 3, 3),),
        ops=("BatchNormalization",),
        runs=False,
    ),
    Case(
        "bn_training_mode",
        lambda: _norm(("y", "rm", "rv"), 17, momentum=0.9, training_mode=1),
        ((4, 2, 3, 3),),
        notes=("running statistics",),
        ops=("BatchNormalization",),
        runs=False,
    ),
    Case("bn_inference", lambda: _norm(("y",), 15), ((4, 2, 3, 3),), ops=("BatchNormalization",)),
    Case("constant_shapes", constant_shapes, ((1, 2),), ops=("Mul", "Reshape", "Gemm")),
    Case("shape_chain", shape_chain, ((1, 2),), ops=("Reshape", "Gemm")),
    Case("shape_chain_batch_3", shape_chain, ((3, 2),), ops=("Reshape", "Gemm"), batch=3),
    Case(
        "asymmetric_pads",
        lambda: _conv((1, 2, 7, 7), (1, 3, 4, 4), (3, 2, 3, 3), pads=[0, 1, 2, 1], strides=[2, 2]),
        ((1, 3, 4, 4),),
        ops=("Conv",),
    ),
    Case(
        "auto_pad_same_upper",
        lambda: _conv((1, 2, 8, 8), (1, 3, 4, 4), (3, 2, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
        ((1, 3, 4, 4),),
        ops=("Conv",),
    ),
    Case(
        "dilated_conv",
        lambda: _conv((1, 2, 6, 6), (1, 3, 6, 6), (3, 2, 3, 3), True, dilations=[2, 2], pads=[2] * 4),
        ((1, 3, 6, 6),),
        ops=("Conv",),
    ),
    Case(
        "group_conv",
        lambda: _conv((1, 4, 5, 5), (1, 6, 5, 5), (6, 2, 3, 3), group=2, pads=[1] * 4),
        ((1, 6, 5, 5),),
        ops=("Conv",),
    ),
    Case("gemm_scaled", scaled_gemm, ((2, 3),), ops=("Gemm",)),
    Case("gemm_no_bias", gemm_without_bias, ((2, 3),), ops=("Gemm",)),
    Case("matmul_vector", matrix_by_vector, ((3,),), ops=("Gemm", "Reshape")),
    Case("shared_weight", shared_weight, ((1, 6),), ops=("Gemm", "Relu"), parameters=("w",)),
    Case("embedding", embedding, ((1, 2),), ops=("Gather", "Gemm")),
    Case("resize", resize, error=("Resize", "'up'", "17")),
    Case("lstm", lstm, error=("LSTM", "'h'", "17")),
    Case("if_constant", constant_if, ((1, 4),), notes=("then_branch",), ops=("Relu",)),
    Case("loop", loop, error=("Loop", "not supported")),
    Case("nan_weight", diverged, error=("'w'", "1 NaN", "1 Inf"), ops=("Gemm",)),
    Case("float16", half_precision, error=("float16", "'x'")),
    Case("float64_weight", double_weight, error=("float64", "'w'"), ops=("Gemm",)),
    Case("truncated", truncated, error=("not a valid ONNX protobuf", "truncated")),
    Case("zero_bytes", lambda: b"", error=("empty", "0 bytes")),
    Case("a_checkpoint", lambda: b"PK\x03\x04" + bytes(60), error=("not an ONNX file",)),
    Case("some_text", lambda: b"hello, this is no model\n" * 4, error=("ONNX",)),
    Case("cycle", cyclic, error=("cycle", "'n1' -> 'n2' -> 'n1'")),
    Case("zero_size_operand", empty_operand, ((1, 4),), ops=("Identity",)),
    Case("zero_batch", lambda: _one_op("Relu", (0, 4), (0, 4)), error=("'x'", "zero-size")),
    Case(
        "huge_activation",
        lambda: _conv((1, 1, 100000, 100000), (1, 4096, 100000, 100000), (4096, 1, 1, 1)),
        error=("'y'", "163840000000000 bytes", "1.6e+14"),
        ops=("Conv",),
    ),
    Case("huge_constant", huge_constant, error=("1099511627776 elements", "'k'")),
    Case("raw_data_too_short", short_weight, error=("'w'", "92 bytes", "expected 96")),
    Case("long_names", long_names, ((4, 4),), ops=("Gemm",), parameters=("w" * 300, "w." * 150)),
    Case("dangling_input", undefined_tensor, error=("Add node 0", "undefined tensor 'ghost'")),
    Case("made_twice", made_twice, error=("'y'", "made twice")),
    Case(
        "two_opsets",
        lambda: _one_op("Relu", (1, 4), (1, 4), more_opsets=[("", 12)]),
        ((1, 4),),
        notes=("17 and 12",),
        ops=("Relu",),
    ),
    Case(
        "two_opsets_that_matter",
        lambda: _one_op("Softmax", (1, 2, 4), (1, 2, 4), more_opsets=[("", 12)]),
        error=("17 and 12", "Softmax", "different things"),
    ),
    Case(
        "softmax_opset11",
        lambda: _one_op("Softmax", (1, 2, 3, 4), (1, 2, 3, 4), opset=11, ir=6),
        ((1, 2, 3, 4),),
        ops=("Softmax",),
    ),
    Case(
        "clip_opset6",
        lambda: _one_op("Clip", (1, 4), (1, 4), opset=6, ir=3, min=0.0, max=6.0),
        ((1, 4),),
        ops=("Clip",),
    ),
    Case("maxpool_indices", pool_with_indices, ((1, 1, 3, 3),), ops=("MaxPool",)),
    Case(
        "negative_dim",
        lambda: _one_op("Relu", (-1, 4), (-1, 4)),
        ((1, 4),),
        notes=("-1", "bound to 1"),
        ops=("Relu",),
        runs=False,
    ),
    Case("opset_99", lambda: _one_op("Relu", (1, 4), (1, 4), opset=99), error=("opset 99", "newer")),
    Case("opset_5", lambda: _one_op("Relu", (1, 4), (1, 4), opset=5), error=("opset 5", "older")),
    Case("empty_graph", pass_through, error=("no nodes",)),
    Case("local_function", local_function, ((1, 4),), ops=("Relu",)),
    Case("constant_weight", constant_weight, ((1, 3, 2, 2),), ops=("Conv",), parameters=("w", "b")),
    Case("filled_weight", filled_weight, ((1, 3),), ops=("Gemm",), parameters=("w",)),
    Case("unknown_attribute", unknown_attribute, error=("Relu", "'leak'")),
    Case("foreign_domain", foreign_domain, error=("com.microsoft::FusedConv", "'fused'")),
    Case("open_width", open_width, error=("axis 1", "'x'", "width")),
    Case("reference_attribute", reference_attribute, error=("'axis'", "function")),
)


def write(case: Case, folder: Path) -> Path:
    """The case's file in a folder."""
    made = case.build()
    path = folder / f"{case.name}.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    return path


def main() -> None:
    """Write all cases."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        print(write(case, folder))


if __name__ == "__main__":
    main()
