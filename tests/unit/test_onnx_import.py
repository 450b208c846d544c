"""What an import gives: shapes, names, parameters, notes; what it folds, rewrites and refuses."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from poetgen.errors import ModelError, UsageError
from poetgen.onnx_import import export_onnx, import_onnx
from poetgen.op import Op, Spec, f32
from poetgen.ops import all_ops, by_onnx
from poetgen.ops.gelu import Gelu
from poetgen.ops.layernorm import LayerNorm, Rows
from tests.unit.test_onnx_cases import feeds_of, forward, onnxruntime_outputs

DATA = Path(__file__).parents[1] / "data"


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def save(
    folder: Path,
    nodes: Sequence[Any],
    inputs: dict[str, Sequence[int | str]],
    outputs: dict[str, Sequence[int | str]],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    ints: Sequence[str] = (),
    **kwargs: Any,
) -> Path:
    """A model of these nodes as a file."""
    kinds = {n: TensorProto.INT64 if n in ints else TensorProto.FLOAT for n in inputs}
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, kinds[n], s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path = folder / "model.onnx"
    onnx.save(model, path, **kwargs)
    return path


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def assert_agrees_with_onnxruntime(path: Path, batch: int | None = None, seed: int = 0) -> None:
    model = import_onnx(path, batch)
    feeds = feeds_of(model, seed)
    values = forward(model, feeds)
    for name, expected in zip(model.outputs, onnxruntime_outputs(path, feeds, model.outputs), strict=True):
        np.testing.assert_allclose(values[name], expected, rtol=3e-5, atol=3e-6)


def refusal(path: Path, batch: int | None = None, output: str | None = None) -> str:
    with pytest.raises(ModelError) as caught:
        import_onnx(path, batch, output)
    return caught.value.message


# -- names, parameters, provenance


def test_a_model_keeps_the_users_names(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        [
            node("Gemm", ("x", "fc.weight", "fc.bias"), ("/fc/y",), name="/fc", transB=1),
            node("Relu", ("/fc/y",), ("out",)),
        ],
        {"x": (2, 4)},
        {"out": (2, 3)},
        {"fc.weight": array(3, 4), "fc.bias": array(3)},
    )
    model = import_onnx(path)
    assert model.name == "model"
    assert [n.name for n in model.nodes] == ["/fc", "Relu_1"]
    assert [n.outputs for n in model.nodes] == [("/fc/y",), ("out",)]
    assert model.inputs == ("x",) and model.outputs == ("out",)
    assert list(model.parameters) == ["fc.weight", "fc.bias"]
    assert model.spec("/fc/y") == f32(2, 3) and model.spec("fc.weight") == f32(3, 4)
    assert model.nodes[0].in_specs == (f32(2, 4), f32(3, 4), f32(3))


def test_nodes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    nodes = [node("Relu", ("x",), ("a",), name="act"), node("Relu", ("a",), ("y",), name="act")]
    model = import_onnx(save(tmp_path, nodes, {"x": (1, 2)}, {"y": (1, 2)}))
    assert [n.name for n in model.nodes] == ["act", "act.2"]


def test_nodes_out_of_order_are_sorted(tmp_path: Path) -> None:
    nodes = [node("Relu", ("a",), ("y",), name="second"), node("Relu", ("x",), ("a",), name="first")]
    model = import_onnx(save(tmp_path, nodes, {"x": (1, 2)}, {"y": (1, 2)}))
    assert [n.name for n in model.nodes] == ["first", "second"]


def test_integer_inputs_become_int32(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        [node("Unsqueeze", ("ids", "ax"), ("y",))],
        {"ids": (1, 4)},
        {"y": (1, 1, 4)},
        {"ax": np.array([1], np.int64)},
        ints=("ids",),
    )
    assert import_onnx(path).spec("ids") == Spec((1, 4), "i32")


def test_the_hash_changes_with_the_external_data(tmp_path: Path) -> None:
    """The same graph with other weights is another model."""
    args: Any = (tmp_path, [node("MatMul", ("x", "w"), ("y",))], {"x": (1, 4)}, {"y": (1, 3)})
    external = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    path = save(*args, {"w": array(4, 3)}, **external)
    first = import_onnx(path)
    np.testing.assert_array_equal(first.parameters["w"], array(4, 3))
    (tmp_path / "w.bin").unlink()
    save(*args, {"w": array(4, 3, seed=1)}, **external)
    second = import_onnx(path)
    assert first.sha256 != second.sha256
    assert import_onnx(path).sha256 == second.sha256


def test_cut_external_data_is_named(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        [node("MatMul", ("x", "w"), ("y",))],
        {"x": (1, 4)},
        {"y": (1, 3)},
        {"w": array(4, 3)},
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    (tmp_path / "w.bin").write_bytes(bytes(40))
    assert "bytes 0 to 48 of w.bin, which has 40" in refusal(path)


def test_an_output_can_be_chosen(tmp_path: Path) -> None:
    """What only another output needs is not even looked at."""
    nodes = [node("Relu", ("x",), ("y",)), node("Hardmax", ("x",), ("z",))]
    path = save(tmp_path, nodes, {"x": (1, 2)}, {"y": (1, 2), "z": (1, 2)})
    assert "Hardmax" in refusal(path)
    model = import_onnx(path, output="y")
    assert model.outputs == ("y",) and len(model.nodes) == 1
    with pytest.raises(UsageError, match="no output 'w'"):
        import_onnx(path, output="w")


# -- folding


def test_shape_arithmetic_leaves_no_nodes(tmp_path: Path) -> None:
    """Shape, Slice, Cast, Range, Mod, Where, Equal, ConstantOfShape: all of it is known."""
    minus_one = numpy_helper.from_array(np.array([-1], np.int64))
    nodes = [
        node("Shape", ("x",), ("s",)),
        node("Slice", ("s", "one", "two"), ("c",)),
        node("Cast", ("c",), ("cf",), to=TensorProto.FLOAT),
        node("Div", ("cf", "half"), ("c2",)),
        node("Cast", ("c2",), ("c3",), to=TensorProto.INT64),
        node("Mod", ("c3", "seven"), ("m",)),
        node("Equal", ("m", "one"), ("is_one",)),
        node("ConstantOfShape", ("one",), ("minus",), value=minus_one),
        node("Where", ("is_one", "minus", "c3"), ("w",)),
        node("Concat", ("w", "two"), ("target",), axis=0),
        node("Reshape", ("x", "target"), ("y",)),
    ]
    constants = {
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "seven": np.array([7], np.int64),
        "half": np.array([0.5], np.float32),
    }
    # 4 channels: 4 / 0.5 = 8, 8 mod 7 = 1, so the target is [-1, 2].
    path = save(tmp_path, nodes, {"x": (1, 4, 3)}, {"y": (6, 2)}, constants)
    model = import_onnx(path)
    assert [n.name for n in model.nodes] == ["Reshape_10"]
    assert model.spec("y") == f32(6, 2)
    assert not model.parameters


def test_an_initializer_is_not_folded_away(tmp_path: Path) -> None:
    """A transposed weight is still the user's weight, under its name, and trains."""
    nodes = [node("Transpose", ("w",), ("wt",), perm=[1, 0]), node("MatMul", ("x", "wt"), ("y",))]
    path = save(tmp_path, nodes, {"x": (2, 4)}, {"y": (2, 3)}, {"w": array(3, 4)})
    model = import_onnx(path)
    assert list(model.parameters) == ["w"]
    assert [type(n.op).__name__ for n in model.nodes] == ["Gemm"]
    assert_agrees_with_onnxruntime(path)


def test_constants_outside_of_weight_slots_do_not_train(tmp_path: Path) -> None:
    nodes = [
        node("Constant", (), ("mask",), value_floats=[1.0, 0.0, 1.0]),
        node("Constant", (), ("w",), value=numpy_helper.from_array(array(4, 3))),
        node("MatMul", ("x", "w"), ("a",)),
        node("Relu", ("a",), ("r",)),
        node("Add", ("r", "mask"), ("y",)),
    ]
    model = import_onnx(save(tmp_path, nodes, {"x": (1, 4)}, {"y": (1, 3)}))
    assert set(model.parameters) == {"w", "mask"}
    assert set(model.fixed) == {"mask"} and "constant node" in model.fixed["mask"]


def test_casts_to_the_own_type_vanish(tmp_path: Path) -> None:
    nodes = [node("Cast", ("x",), ("a",), to=TensorProto.FLOAT), node("Relu", ("a",), ("y",))]
    model = import_onnx(save(tmp_path, nodes, {"x": (1, 2)}, {"y": (1, 2)}))
    assert [n.inputs for n in model.nodes] == [("x",)]


# -- rewrites


@pytest.mark.parametrize("shape", [(2, 4), (2, 5, 4), (4,), (2, 3, 5, 4)], ids=str)
@pytest.mark.parametrize("bias_first", [False, True])
def test_matmul_and_add_become_one_gemm(tmp_path: Path, shape: tuple[int, ...], bias_first: bool) -> None:
    nodes = [
        node("MatMul", ("x", "w"), ("a",), name="fc"),
        node("Add", ("b", "a") if bias_first else ("a", "b"), ("y",)),
    ]
    path = save(tmp_path, nodes, {"x": shape}, {"y": (*shape[:-1], 3)}, {"w": array(4, 3), "b": array(3)})
    model = import_onnx(path)
    gemms = [n for n in model.nodes if not n.op.view]
    assert [type(n.op).__name__ for n in gemms] == ["Gemm"]
    assert gemms[0].name == "fc" and gemms[0].inputs[1:] == ("w", "b")
    assert_agrees_with_onnxruntime(path)


def test_a_product_that_is_read_twice_keeps_its_add(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ("x", "w"), ("a",)),
        node("Add", ("a", "b"), ("c",)),
        node("Add", ("a", "c"), ("y",)),
    ]
    path = save(tmp_path, nodes, {"x": (2, 4)}, {"y": (2, 3)}, {"w": array(4, 3), "b": array(3)})
    assert sorted(type(n.op).__name__ for n in import_onnx(path).nodes) == ["Add", "Add", "Gemm"]
    assert_agrees_with_onnxruntime(path)


# -- the batch


def conv_net(folder: Path, batch: int | str, target: Sequence[int]) -> Path:
    """As PyTorch's default export of view(): a literal Reshape target."""
    nodes = [
        node("Conv", ("x", "k"), ("a",), kernel_shape=[3, 3], name="conv"),
        node("Relu", ("a",), ("b",)),
        node("Reshape", ("b", "target"), ("c",), name="view"),
        node("Gemm", ("c", "w", "v"), ("y",), transB=1),
    ]
    weights = {
        "k": array(2, 1, 3, 3),
        "w": array(3, 32, seed=1),
        "v": array(3, seed=2),
        "target": np.array(target, np.int64),
    }
    return save(folder, nodes, {"x": (batch, 1, 6, 6)}, {"y": (batch, 3)}, weights)


@pytest.mark.parametrize("target", [(1, 32), (1, -1), (-1, 32), (0, -1)], ids=str)
@pytest.mark.parametrize("batch", [1, "N"])
def test_a_batch_of_one_can_be_any_other(tmp_path: Path, batch: int | str, target: tuple[int, ...]) -> None:
    """Each sample comes out as it does alone, bit for bit."""
    path = conv_net(tmp_path, batch, target)
    alone, four = import_onnx(path), import_onnx(path, batch=4)
    assert four.spec("x").shape[0] == four.spec("y").shape[0] == 4
    x = array(4, 1, 6, 6, seed=3)
    together = forward(four, {"x": x})["y"]
    for k in range(4):
        np.testing.assert_array_equal(together[k : k + 1], forward(alone, {"x": x[k : k + 1]})["y"])


def test_an_open_batch_that_cannot_be_one_says_so(tmp_path: Path) -> None:
    """Batch statistics of one row are no statistics."""
    made = node("BatchNormalization", ("x", *"sbmv"), ("y", "rm", "rv"), training_mode=1)
    weights = {n: abs(array(2, seed=k)) + 1 for k, n in enumerate("sbmv")}
    path = save(tmp_path, [made], {"x": ("N", 2)}, {"y": ("N", 2)}, weights)
    with pytest.raises(ModelError) as caught:
        import_onnx(path)
    assert "--batch" in caught.value.hint
    assert import_onnx(path, batch=4).spec("y") == f32(4, 2)


def test_a_fixed_batch_of_four_can_become_two(tmp_path: Path) -> None:
    model = import_onnx(conv_net(tmp_path, 4, (4, 32)), batch=2)
    assert model.spec("y") == f32(2, 3)
    assert any("batch of 4 is changed to 2" in n for n in model.notes)


def test_a_batch_that_ends_up_elsewhere_is_refused(tmp_path: Path) -> None:
    """[1, 4, 6] as [4, 1, 6] at batch 1: at batch 2, where the samples lie is anybody's guess."""
    nodes = [
        node("Transpose", ("x",), ("t",), perm=[1, 0, 2]),
        node("Reshape", ("t", "target"), ("y",), name="merge"),
    ]
    weights = {"target": np.array([4, 6], np.int64)}
    path = save(tmp_path, nodes, {"x": (1, 4, 6)}, {"y": (4, 6)}, weights)
    if "Transpose" not in by_onnx():
        assert "Transpose" in refusal(path)
        return
    message = refusal(path, batch=2)
    assert "from 1 to 2" in message and ("merge" in message or "'y'" in message)


def test_a_mean_over_the_batch_is_refused(tmp_path: Path) -> None:
    nodes = [node("ReduceMean", ("x",), ("y",), name="pool", axes=[0], keepdims=1)]
    message = refusal(save(tmp_path, nodes, {"x": (1, 4)}, {"y": (1, 4)}), batch=2)
    assert "'pool'" in message and "reduces the batch" in message


@pytest.mark.parametrize(("axis", "may"), [(0, False), (1, True), (-1, True)])
def test_a_softmax_may_not_run_along_the_batch(tmp_path: Path, axis: int, may: bool) -> None:
    path = save(tmp_path, [node("Softmax", ("x",), ("y",), axis=axis)], {"x": (1, 4, 5)}, {"y": (1, 4, 5)})
    if may:
        assert import_onnx(path, batch=3).spec("y") == f32(3, 4, 5)
    else:
        assert "sums along the batch" in refusal(path, batch=3)


def test_a_constant_along_the_batch_is_refused(tmp_path: Path) -> None:
    nodes = [node("Relu", ("x",), ("a",)), node("Add", ("a", "p"), ("y",), name="position")]
    path = save(tmp_path, nodes, {"x": (3, 4)}, {"y": (3, 4)}, {"p": array(3, 4)})
    message = refusal(path, batch=2)
    assert "'position'" in message and "fixed shape [3, 4]" in message


def test_a_sum_over_the_batch_is_refused(tmp_path: Path) -> None:
    nodes = [node("Gemm", ("x", "w"), ("y",), name="fc", transA=1)]
    path = save(tmp_path, nodes, {"x": (1, 4)}, {"y": (4, 3)}, {"w": array(1, 3)})
    assert "'fc'" in refusal(path, batch=2)


# -- products of stacks


def attention(folder: Path, batch: int = 2) -> Path:
    """Two heads of attention as PyTorch exports them: every transposition a node."""
    nodes = []
    for name, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        nodes += [
            node("MatMul", ("x", f"w{name}"), (name,)),
            node("Reshape", (name, "heads"), (f"{name}4",)),
            node("Transpose", (f"{name}4",), (f"{name}t",), perm=perm),
        ]
    nodes += [
        node("MatMul", ("qt", "kt"), ("s",)),
        node("Softmax", ("s",), ("p",), axis=-1),
        node("MatMul", ("p", "vt"), ("o",), name="values"),
        node("Transpose", ("o",), ("ot",), perm=(0, 2, 1, 3)),
        node("Reshape", ("ot", "joined"), ("y",)),
    ]
    weights = {f"w{n}": array(6, 6, seed=k) for k, n in enumerate("qkv")}
    weights["heads"] = np.array([batch, 5, 2, 3], np.int64)
    weights["joined"] = np.array([batch, 5, 6], np.int64)
    return save(folder, nodes, {"x": (batch, 5, 6)}, {"y": (batch, 5, 6)}, weights)


def test_the_transposes_of_attention_cost_no_node(tmp_path: Path) -> None:
    path = attention(tmp_path)
    kinds = [type(n.op).__name__ for n in import_onnx(path).nodes if not n.op.view]
    assert kinds == ["Gemm"] * 3 + ["PermutedMatMul", "Softmax", "PermutedMatMul"]
    assert_agrees_with_onnxruntime(path)


def test_attention_takes_another_batch(tmp_path: Path) -> None:
    model = import_onnx(attention(tmp_path, batch=1), batch=3)
    assert model.spec("y").shape == (3, 5, 6)


def test_a_transpose_that_is_read_elsewhere_stays(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", ("x",), ("t",), perm=(0, 2, 1)),
        node("MatMul", ("x", "t"), ("a",)),
        node("MatMul", ("t", "a"), ("y",)),
        node("Relu", ("t",), ("z",)),
    ]
    path = save(tmp_path, nodes, {"x": (2, 4, 3)}, {"y": (2, 3, 4), "z": (2, 3, 4)})
    kinds = [type(n.op).__name__ for n in import_onnx(path).nodes]
    assert sorted(kinds) == ["PermutedMatMul", "PermutedMatMul", "Relu", "Transpose"]
    assert_agrees_with_onnxruntime(path)


def test_a_mask_of_integers_chooses_at_run_time(tmp_path: Path) -> None:
    """As PyTorch exports masked_fill(mask == 0, -1e9)."""
    nodes = [
        node("Equal", ("mask", "zero"), ("m",)),
        node("Unsqueeze", ("m", "axis"), ("m3",)),
        node("Expand", ("m3", "shape"), ("hidden",)),
        node("Where", ("hidden", "low", "x"), ("s",)),
        node("Softmax", ("s",), ("y",), axis=-1),
    ]
    constants = {
        "zero": np.array(0, np.int64),
        "axis": np.array([1], np.int64),
        "shape": np.array([2, 3, 4], np.int64),
        "low": np.array(-1e9, np.float32),
    }
    path = save(tmp_path, nodes, {"x": (2, 3, 4)}, {"y": (2, 3, 4)}, constants)
    model = onnx.load(path)
    model.graph.input.append(helper.make_tensor_value_info("mask", TensorProto.INT64, (2, 4)))
    onnx.save(model, path)
    assert_agrees_with_onnxruntime(path)


@pytest.mark.parametrize("op", ["Sum", "Max", "Min"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_any_number_of_operands_is_a_chain_of_pairs(tmp_path: Path, op: str, count: int) -> None:
    weights = {f"w{k}": array(*(4, 1, 3)[k - 1 :], seed=k) for k in range(1, count)}
    nodes = [node(op, ("x", *weights), ("a",)), node("Tanh", ("a",), ("y",))]
    path = save(tmp_path, nodes, {"x": (2, 4, 1, 3)}, {"y": (2, 4, 1, 3)}, weights)
    assert len([n for n in import_onnx(path).nodes if not n.op.view]) == count
    assert_agrees_with_onnxruntime(path)


# -- refusals


def attributed() -> list[str]:
    """ONNX ops that poetgen imports."""
    return sorted(by_onnx())


@pytest.mark.parametrize("op_type", attributed())
def test_an_attribute_that_nobody_reads_is_refused(tmp_path: Path, op_type: str) -> None:
    """Every op that is imported, with an attribute that it cannot know."""
    shape = (2, 3, 4, 4)
    needed: dict[str, dict[str, Any]] = {
        "MaxPool": {"kernel_shape": [2, 2]},
        "AveragePool": {"kernel_shape": [2, 2]},
        "Cast": {"to": TensorProto.BOOL},
        "Concat": {"axis": 1},
        "LRN": {"size": 3},
    }
    inputs = {
        "Conv": {"w": array(2, 3, 2, 2)},
        "Gemm": {"w": array(4, 3)},
        "MatMul": {"w": array(4, 3)},
        "BatchNormalization": {"s": array(3), "b": array(3), "m": array(3), "v": abs(array(3))},
        "Reshape": {"shape": np.array([2, -1], np.int64)},
        "Unsqueeze": {"axes": np.array([0], np.int64)},
        "Gather": {"k": np.array(0, np.int64)},
        "LayerNormalization": {"w": array(4)},
        "PRelu": {"w": array(3, 1, 1)},
        "Where": {"c": np.ones((3, 1, 1), np.bool_), "w": array(4)},
        "Slice": {"s": np.array([0], np.int64), "e": np.array([1], np.int64), "a": np.array([1], np.int64)},
        "Expand": {"shape": np.array([2, 3, 4, 4], np.int64)},
        "Pad": {"p": np.array([0, 0, 1, 1] * 2, np.int64)},
        "Pow": {"k": np.array(2, np.float32)},
        "ConvTranspose": {"w": array(3, 2, 2, 2)},
        **{op: {"w": array(4)} for op in "Add Sub Mul Div Equal".split()},
        **{op: {"w": array(4)} for op in "Less LessOrEqual Greater GreaterOrEqual".split()},
        **{op: {"w": np.array([True, False, True, True])} for op in ("And", "Or")},
    }.get(op_type, {})
    x_shape = (2, 4) if op_type == "Gemm" else shape
    operands = ("c", "x", "w") if op_type == "Where" else ("x", *inputs)
    before = []
    if op_type in ("And", "Or", "Not"):
        before = [node("Cast", ("x",), ("b",), to=TensorProto.BOOL)]
        operands = ("b", *inputs)
    made = node(op_type, operands, ("y",), name="it", **needed.get(op_type, {}))
    path = save(tmp_path, [*before, made], {"x": x_shape}, {"y": ()}, inputs)
    import_onnx(path)  # without the attribute it imports
    made.attribute.append(helper.make_attribute("not_in_any_standard", 3))
    message = refusal(save(tmp_path, [*before, made], {"x": x_shape}, {"y": ()}, inputs))
    assert "'not_in_any_standard'" in message and "'it'" in message


def test_an_output_that_is_not_made_is_named(tmp_path: Path) -> None:
    nodes = [
        node("BatchNormalization", ("x", "s", "b", "m", "v"), ("a", "rm", "rv"), name="bn", training_mode=1),
        node("Relu", ("rm",), ("y",), name="act"),
    ]
    weights = {n: abs(array(2, seed=k)) + 1 for k, n in enumerate("sbmv")}
    message = refusal(save(tmp_path, nodes, {"x": (4, 2)}, {"y": (2,)}, weights))
    assert "'act'" in message and "output 1 ('rm')" in message and "'bn'" in message


def test_a_graph_output_that_is_not_made_is_named(tmp_path: Path) -> None:
    nodes = [node("Dropout", ("x",), ("y", "mask"), name="drop")]
    path = save(tmp_path, nodes, {"x": (2, 3)}, {"y": (2, 3), "mask": (2, 3)})
    assert "'mask' is output 1 of Dropout node 'drop'" in refusal(path)
    assert import_onnx(path, output="y").outputs == ("y",)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "nowhere.onnx" in refusal(tmp_path / "nowhere.onnx")


@pytest.mark.parametrize("cut", range(1, 400, 13))
def test_no_cut_of_a_file_gives_a_traceback(tmp_path: Path, cut: int) -> None:
    """Cut anywhere, a file is refused or (where only what is not needed is gone) imports."""
    nodes = [node("Relu", ("x",), ("a",)), node("Flatten", ("a",), ("y",))]
    path = save(tmp_path, nodes, {"x": (1, 2, 2)}, {"y": (1, 4)})
    data = path.read_bytes()
    path.write_bytes(data[: cut % len(data)])
    try:
        import_onnx(path)
    except ModelError as error:
        assert error.hint


# -- writing back


def test_exported_parameters_are_what_onnxruntime_computes_with(tmp_path: Path) -> None:
    path = conv_net(tmp_path, 1, (1, 32))
    trained = {"w": array(3, 32, seed=7), "v": array(3, seed=8)}
    out = tmp_path / "out" / "trained.onnx"
    export_onnx(path, trained, out)
    model = import_onnx(out)
    np.testing.assert_array_equal(model.parameters["w"], trained["w"])
    np.testing.assert_array_equal(model.parameters["k"], import_onnx(path).parameters["k"])
    assert_agrees_with_onnxruntime(out)
    assert os.listdir(out.parent) == ["trained.onnx"]


def test_constants_and_external_data_are_exported(tmp_path: Path) -> None:
    nodes = [
        node("Constant", (), ("w",), value=numpy_helper.from_array(array(4, 3))),
        node("Gemm", ("x", "w", "b"), ("y",)),
    ]
    path = save(
        tmp_path,
        nodes,
        {"x": (1, 4)},
        {"y": (1, 3)},
        {"b": array(3)},
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    (tmp_path / "out").mkdir()
    out = tmp_path / "out" / "trained.onnx"
    trained = {"w": array(4, 3, seed=5), "b": array(3, seed=6)}
    export_onnx(path, trained, out)
    model = import_onnx(out)
    for name, expected in trained.items():
        np.testing.assert_array_equal(model.parameters[name], expected)
    assert_agrees_with_onnxruntime(out)


def test_new_classes_change_the_shape_of_the_export(tmp_path: Path) -> None:
    path = conv_net(tmp_path, 1, (1, 32))
    out = tmp_path / "trained.onnx"
    export_onnx(path, {"w": array(5, 32), "v": array(5)}, out)
    assert import_onnx(out).spec("y") == f32(1, 5)
    assert_agrees_with_onnxruntime(out)


def test_training_batch_norms_are_exported_in_inference_form(tmp_path: Path) -> None:
    """ONNX Runtime refuses training_mode; the device's _infer uses the running statistics."""
    nodes = [
        node("BatchNormalization", ("x", "s", "b", "m", "v"), ("a", "rm", "rv"), training_mode=1),
        node("Relu", ("a",), ("y",)),
    ]
    weights = {n: abs(array(2, seed=k)) + 1 for k, n in enumerate("sbmv")}
    path = save(tmp_path, nodes, {"x": (4, 2, 3)}, {"y": (4, 2, 3), "rm": (2,), "rv": (2,)}, weights)
    out = tmp_path / "trained.onnx"
    export_onnx(path, {"m": array(2, seed=9)}, out)
    np.testing.assert_array_equal(import_onnx(out).parameters["m"], array(2, seed=9))
    assert_agrees_with_onnxruntime(out)


def test_an_export_of_an_unknown_parameter_leaves_nothing(tmp_path: Path) -> None:
    path = conv_net(tmp_path, 1, (1, 32))
    with pytest.raises(ModelError, match="no parameter 'nope'"):
        export_onnx(path, {"nope": array(1)}, tmp_path / "trained.onnx")
    assert os.listdir(tmp_path) == ["model.onnx"]


# -- whole models


@pytest.mark.parametrize("path", sorted(DATA.glob("*.onnx")), ids=lambda p: p.stem)
def test_the_sample_models_compute_what_onnxruntime_does(path: Path, tmp_path: Path) -> None:
    inference = tmp_path / path.name
    export_onnx(path, {}, inference)  # ONNX Runtime has no training batch norm
    model = import_onnx(path)
    feeds = feeds_of(model)
    values = forward(model, feeds)
    expected = onnxruntime_outputs(inference, feeds, model.outputs)
    for name, one in zip(model.outputs, expected, strict=True):
        np.testing.assert_allclose(values[name], one, rtol=1e-4, atol=1e-5 * float(abs(one).max()))


def test_an_op_imports_under_one_name() -> None:
    names = [n for op in all_ops() for n in ((op.onnx,) if op.onnx else ()) + op.onnx_aliases()]
    assert len(names) == len(set(names)) == len(by_onnx())
    assert all(issubclass(op, Op) for op in by_onnx().values())


# -- forms that exporters take apart; the two ops stand in for the real ones


SCALARS = {
    "root2": np.array(2**0.5, np.float32),
    "one": np.array(1, np.float32),
    "half": np.array(0.5, np.float32),
    "two": np.array(2, np.float32),
    "eps": np.array(1e-5, np.float32),
}


@pytest.mark.parametrize("half_at", ["end", "before x", "on x"])
def test_five_nodes_of_gelu_become_one(tmp_path: Path, half_at: str) -> None:
    tails = {
        "end": [node("Mul", ("x", "p"), ("q",)), node("Mul", ("q", "half"), ("y",))],
        "before x": [node("Mul", ("p", "half"), ("q",)), node("Mul", ("x", "q"), ("y",))],
        "on x": [node("Mul", ("x", "half"), ("q",)), node("Mul", ("q", "p"), ("y",))],
    }
    nodes = [
        node("Div", ("x", "root2"), ("d",)),
        node("Erf", ("d",), ("e",)),
        node("Add", ("e", "one"), ("p",)),
        *tails[half_at],
    ]
    path = save(tmp_path, nodes, {"x": (2, 4)}, {"y": (2, 4)}, SCALARS)
    assert [(n.op, n.inputs, n.outputs) for n in import_onnx(path).nodes] == [(Gelu(), ("x",), ("y",))]
    assert_agrees_with_onnxruntime(path)


def test_a_gelu_with_another_constant_is_left_alone(tmp_path: Path) -> None:
    nodes = [
        node("Div", ("x", "two"), ("d",)),
        node("Erf", ("d",), ("e",)),
        node("Add", ("e", "one"), ("p",)),
        node("Mul", ("x", "p"), ("q",)),
        node("Mul", ("q", "half"), ("y",)),
    ]
    path = save(tmp_path, nodes, {"x": (2, 4)}, {"y": (2, 4)}, SCALARS)
    assert len(import_onnx(path).nodes) == 5
    assert_agrees_with_onnxruntime(path)


def nine_nodes(mean_read_outside: bool = False) -> list[Any]:
    more = [node("Add", ("y0", "m"), ("y",))] if mean_read_outside else []
    return [
        node("ReduceMean", ("x",), ("m",), axes=[-1]),
        node("Sub", ("x", "m"), ("c",)),
        node("Pow", ("c", "two"), ("c2",)),
        node("ReduceMean", ("c2",), ("v",), axes=[-1]),
        node("Add", ("v", "eps"), ("ve",)),
        node("Sqrt", ("ve",), ("s",)),
        node("Div", ("c", "s"), ("n",)),
        node("Mul", ("n", "w"), ("nw",)),
        node("Add", ("nw", "b"), ("y0" if mean_read_outside else "y",)),
        *more,
    ]


def test_nine_nodes_of_layer_norm_become_one(tmp_path: Path) -> None:
    weights = {**SCALARS, "w": array(4), "b": array(4)}
    path = save(tmp_path, nine_nodes(), {"x": (2, 3, 4)}, {"y": (2, 3, 4)}, weights, opset=13)
    (only,) = import_onnx(path).nodes
    assert only.inputs == ("x", "w", "b") and only.outputs[0] == "y"
    assert only.op == LayerNorm(Rows(-1, float(np.float32(1e-5))))
    assert_agrees_with_onnxruntime(path)


def test_a_layer_norm_whose_mean_is_read_elsewhere_is_left_alone(tmp_path: Path) -> None:
    weights = {**SCALARS, "w": array(4), "b": array(4)}
    path = save(tmp_path, nine_nodes(True), {"x": (2, 3, 4)}, {"y": (2, 3, 4)}, weights, opset=13)
    assert len(import_onnx(path).nodes) == 10
    assert_agrees_with_onnxruntime(path)


def test_branches_of_one_name_are_inlined_side_by_side(tmp_path: Path) -> None:
    """Two Ifs whose branches call their tensors alike."""

    def branch(outer: str, factor: float) -> Any:
        made = helper.make_tensor_value_info("r", TensorProto.FLOAT, (1, 2))
        k = numpy_helper.from_array(np.array([factor, 1], np.float32), "k")
        return helper.make_graph([node("Add", (outer, "k"), ("r",))], "body", [], [made], [k])

    nodes = [
        node("If", ("yes",), ("a",), then_branch=branch("x", 2), else_branch=branch("x", 3)),
        node("If", ("no",), ("y",), then_branch=branch("a", 5), else_branch=branch("a", 7)),
    ]
    conditions = {"yes": np.array(True), "no": np.array(False)}
    path = save(tmp_path, nodes, {"x": (1, 2)}, {"y": (1, 2)}, conditions)
    model = import_onnx(path)
    assert sorted(float(p[0]) for p in model.parameters.values()) == [2, 7]
    assert_agrees_with_onnxruntime(path)


def test_damage_anywhere_gives_one_error(tmp_path: Path) -> None:
    """Bytes flipped, lost and added at random: an import or a ModelError, nothing else."""
    rng = np.random.default_rng(0)
    weights = {n: np.abs(array(3, seed=k)) + 1 for k, n in enumerate("sbmv")}
    nodes = [
        node("BatchNormalization", ("x", "s", "b", "m", "v"), ("a",), name="bn", epsilon=1e-3),
        node("Relu", ("a",), ("r",)),
        node("Shape", ("r",), ("n",)),
        node("Reshape", ("r", "n"), ("y",)),
    ]
    path = save(tmp_path, nodes, {"x": ("N", 3, 6)}, {"y": ("N", 3, 6)}, weights)
    data = path.read_bytes()
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        for at in rng.integers(0, len(data) - 4, rng.integers(1, 4)):
            match rng.integers(0, 3):
                case 0:
                    damaged[at] = int(rng.integers(0, 256))
                case 1:
                    del damaged[at : at + 2]
                case _:
                    damaged[at:at] = rng.bytes(2)
        path.write_bytes(damaged)
        try:
            import_onnx(path)
        except ModelError as error:
            refused += 1
            assert error.message
    assert refused > 150
