"""Every op's examples: shapes, gradient, work, ONNX Runtime, and the C kernel bit for bit."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from poetgen.op import Example, Op, Spec, Value
from poetgen.ops import all_ops
from tests.ops.kernels import in_place_choices, run, same_bits, specs_of
from tests.ops.onnx_node import FakeNode


def _name(example: Example) -> str:
    shapes = ",".join("x".join(map(str, i.shape)) or "scalar" for i in example.inputs)
    return f"{example.op}[{shapes}]"


EXAMPLES = [pytest.param(e, id=_name(e)) for cls in all_ops() for e in cls.examples()]


def _finite(example: Example) -> bool:
    return all(np.isfinite(a).all() for a in example.arrays() if a.dtype.kind == "f")


FINITE = [p for p in EXAMPLES if _finite(p.values[0])]
IMPORTED = [p for p in EXAMPLES if type(p.values[0].op).onnx]
FAMILIES = sorted(
    {
        c.kernel.family
        for p in EXAMPLES
        for c in p.values[0].op.calls(*specs_of(p.values[0].op, p.values[0].arrays()))
    }
)


def _has_gradient(op: Op) -> bool:
    return type(op).gradient is not Op.gradient


def _has_numbers(example: Example) -> bool:
    return any(a.dtype.kind == "f" for a in example.arrays())


def test_every_op_has_examples() -> None:
    """A fused update is made of two ops: tests/unit/test_fused_update.py has its examples."""
    alone = [c for c in all_ops() if c.__module__ != "poetgen.ops.fused_update"]
    assert [c.__name__ for c in alone if not c.examples()] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_reference_has_the_inferred_shapes_and_types(example: Example) -> None:
    op, arrays = example.op, example.arrays()
    in_specs, out_specs = specs_of(op, arrays)
    expected = [in_specs[i] for i in op.mutates] + list(out_specs)
    got = op.reference(*arrays)
    assert [(tuple(a.shape), a.dtype) for a in got] == [(s.shape, np.dtype(s.numpy)) for s in expected]


@pytest.mark.parametrize("example", EXAMPLES)
def test_work_is_positive_where_a_kernel_runs(example: Example) -> None:
    op = example.op
    specs = specs_of(op, example.arrays())
    assert (op.work(*specs).count > 0) == bool(op.calls(*specs))


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_view_has_no_kernel_and_any_other_op_has_one(example: Example) -> None:
    op = example.op
    assert bool(op.calls(*specs_of(op, example.arrays()))) != op.view


@pytest.mark.parametrize("example", [p for p in EXAMPLES if not p.values[0].op.view])
def test_kernel_gives_the_bits_of_the_reference(example: Example) -> None:
    op = example.op
    for seed in (0, 1):
        arrays = example.arrays(seed)
        expected = op.reference(*arrays)
        for place in in_place_choices(op, example):
            got = run(op, arrays, place)
            for k, (a, b) in enumerate(zip(got, expected, strict=True)):
                assert same_bits(a, b), f"result {k}, in place of {place}:\n{a}\nnot\n{b}"


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_are_clean_under_the_address_and_undefined_behaviour_sanitizers(family: str) -> None:
    preload = " ".join(
        subprocess.run(
            ["gcc", f"-print-file-name={lib}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for lib in ("libasan.so", "libubsan.so")
    )
    here = os.path.dirname(__file__)
    done = subprocess.run(
        [sys.executable, os.path.join(here, "kernels.py"), family],
        env={**os.environ, "LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 0


class _Executor:
    """Runs what ``gradient`` emits, at once and in float64."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def put(self, array: np.ndarray, spec: Spec) -> Value:
        name = f"t{len(self.arrays)}"
        self.arrays[name] = array
        return Value(name, spec)

    def emit(self, op: Op, *inputs: Value) -> tuple[Value, ...]:
        specs = op.infer(*(v.spec for v in inputs))
        outputs = op.reference(*(self.arrays[v.name] for v in inputs))
        assert not op.mutates
        for array, spec in zip(outputs, specs, strict=True):
            assert array.shape == spec.shape
            assert array.dtype != np.float32, f"{op} computes in float32 where float64 came in"
        return tuple(self.put(a, s) for a, s in zip(outputs, specs, strict=True))


@pytest.mark.parametrize(
    "example", [p for p in FINITE if _has_gradient(p.values[0].op) and _has_numbers(p.values[0])]
)
def test_gradient_agrees_with_central_differences(example: Example) -> None:
    op, rng = example.op, np.random.default_rng(7)
    arrays = [a.astype(np.float64) if a.dtype == np.float32 else a for a in example.arrays()]
    in_specs, out_specs = specs_of(op, example.arrays())
    executor = _Executor()
    inputs = tuple(executor.put(a, s) for a, s in zip(arrays, in_specs, strict=True))
    outputs = executor.emit(op, *inputs)
    is_loss = out_specs[0].shape == () and not op.onnx  # the end of the graph: its own gradient is 1
    # A loss reads output 0 alone: further outputs are there for the backward pass.
    weights = [np.ones(()) if is_loss else rng.standard_normal(out_specs[0].shape)]
    weights += [None] * (len(out_specs) - 1)
    douts = tuple(
        None if w is None or is_loss else executor.put(w, s) for w, s in zip(weights, out_specs, strict=True)
    )
    gradients = op.gradient(executor.emit, inputs, outputs, douts)
    assert len(gradients) == len(inputs)
    assert any(g is not None for g in gradients)
    for i, g in enumerate(gradients):
        if g is None:
            continue
        assert g.spec.shape == in_specs[i].shape
        analytic = executor.arrays[g.name].reshape(-1)
        picked = rng.permutation(analytic.size)[:40]
        for at in picked:
            h = 1e-6
            ends = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[i].reshape(-1)[at] += sign * h
                got = op.reference(*moved)
                ends.append(sum(np.sum(y * w) for y, w in zip(got, weights, strict=True) if w is not None))
            numeric = (ends[0] - ends[1]) / (2 * h)
            assert analytic[at] == pytest.approx(numeric, rel=1e-5, abs=1e-7), f"input {i}, element {at}"


@pytest.mark.parametrize("example", IMPORTED)
def test_from_onnx_reads_back_the_attributes(example: Example) -> None:
    op = example.op
    node = FakeNode.of(op, example)
    got, operands = type(op).from_onnx(node)
    assert node.unread() == set()
    assert operands == tuple(range(len(operands)))
    out = specs_of(op, example.arrays())[1]
    specs = tuple(s for s in specs_of(op, example.arrays())[0][: len(operands)])
    if dataclasses.is_dataclass(got) and type(got) is type(op):
        assert got.infer(*(specs if len(specs) == len(operands) else ()))[0] == out[0]


@pytest.mark.parametrize("example", IMPORTED)
def test_an_unknown_attribute_stays_unread(example: Example) -> None:
    node = FakeNode.of(example.op, example)
    node.attributes["no_such_attribute"] = 1
    type(example.op).from_onnx(node)
    assert node.unread() == {"no_such_attribute"}


@pytest.mark.parametrize("example", [p for p in FINITE if type(p.values[0].op).onnx])
def test_reference_agrees_with_onnx_runtime(example: Example) -> None:
    op, arrays = example.op, example.arrays()
    instead = op.inference()
    run_op, used = (op, tuple(range(len(arrays)))) if instead is None else instead[:2]
    expected = run_op.reference(*(arrays[i] for i in used))
    feeds = [arrays[i] for i in used]
    node = FakeNode.of(op, example)
    got = onnx_runtime(node, feeds)
    scale = max(1.0, float(np.max(np.abs(expected[0]), initial=0.0)))
    np.testing.assert_allclose(got, expected[0], rtol=2e-6, atol=2e-6 * scale)


def onnx_runtime(node: FakeNode, feeds: list[np.ndarray]) -> np.ndarray:
    """Output 0 of a model of one node."""
    names, initializers, inputs, feed = [], [], [], {}
    outputs = ["out", *(f"out{k}" for k in range(1, node.output_count))]
    rest = iter(feeds)
    for k, constant in enumerate(node.constants):
        name = f"in{k}"
        if node.inputs[k] is None:
            names.append("")
        elif constant is not None:
            names.append(name)
            initializers.append(numpy_helper.from_array(constant, name))
        else:
            array = next(rest)
            array = array.view(np.bool_) if array.dtype == np.uint8 else array
            names.append(name)
            inputs.append(
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            )
            feed[name] = array
    graph = helper.make_graph(
        [helper.make_node(node.op_type, names, outputs, **node.attributes)],
        "one",
        inputs,
        [onnx.ValueInfoProto(name="out")],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    got = session.run(None, feed)[0]
    return got.astype(np.uint8) if got.dtype == np.bool_ else got
