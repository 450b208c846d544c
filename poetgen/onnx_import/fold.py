"""Compute what follows from constants: shape arithmetic above all, once the shapes are known.

ONNX's own reference evaluator does the computing; this module says what may be folded, and looks
at the size of a result before anything of that size exists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from poetgen.errors import ModelError
from poetgen.onnx_import.raw import RawNode
from poetgen.op import Array

LARGEST_FOLD_BYTES = 1 << 28
"""Folding is for shapes and tables; 256 MiB is far above both."""

# Softmax and the normalizations are not here: the reference evaluator is wrong in old opsets.
_ELEMENTWISE = frozenset(
    "Abs Add And BitShift Cast CastLike Ceil Clip Cos Div Equal Erf Exp Floor Greater "
    "GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Log Max Min Mod Mul Neg Not Or Pow "
    "Reciprocal Relu Round Sigmoid Sign Sin Sqrt Sub Sum Tanh Trunc Where Xor".split()
)
_MOVES = frozenset(
    "Concat Flatten Gather GatherElements GatherND Pad Reshape Slice Split Squeeze Transpose "
    "Trilu Unsqueeze ScatterND ScatterElements NonZero".split()
)
_REDUCES = frozenset("ArgMax ArgMin CumSum ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum".split())
_GROWS = frozenset("ConstantOfShape EyeLike Expand OneHot Range Tile".split())
FOLDABLE = _ELEMENTWISE | _MOVES | _REDUCES | _GROWS | {"Shape", "Size"}


def evaluate(node: RawNode, inputs: Sequence[Array | None], opset: int) -> tuple[Array, ...]:
    """Outputs of a foldable node; inputs left out are None."""
    check_node(node, opset)
    predicted = _predict_elements(node, inputs)
    if predicted * 8 > LARGEST_FOLD_BYTES:
        raise ModelError(
            f"{node.label} would make a constant of {predicted} elements",
            hint=f"constants that the importer computes are limited to {LARGEST_FOLD_BYTES} bytes",
        )
    names = [f"i{k}" if a is not None else "" for k, a in enumerate(inputs)]
    feeds = {n: a for n, a in zip(names, inputs, strict=True) if a is not None}
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    outputs = [f"o{k}" for k in range(len(node.outputs))]
    proto = helper.make_node(node.op_type, names, outputs)
    for key, value in node.attributes.items():
        if isinstance(value, np.ndarray):
            value = onnx.numpy_helper.from_array(value)
        proto.attribute.append(helper.make_attribute(key, value))
    results = [helper.make_value_info(o, onnx.TypeProto()) for o in outputs]
    graph = helper.make_graph([proto], "fold", values, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):  # a result that is not finite is reported where it is used
            made = ReferenceEvaluator(model).run(None, feeds)
    except Exception as error:  # the evaluator raises whatever numpy does
        raise ModelError(
            f"{node.label} cannot be computed from its constants: {error}",
            hint="export the model again, with another exporter if it persists",
        ) from error
    return tuple(_array(a) for a in made)


def _array(value: object) -> Array:
    array = np.array(value)
    array.flags.writeable = False
    return array


def check_node(node: RawNode, opset: int) -> None:
    """Raise for what ONNX does not define: unknown attributes, too few or too many inputs."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError as error:
        raise ModelError(
            f"ONNX opset {opset} has no op {node.kind} (node {node.short})", hint="export the model again"
        ) from error
    unknown = sorted(set(node.attributes) - set(schema.attributes))
    if unknown:
        raise ModelError(
            f"{node.label} has attribute {unknown[0]!r}, which {node.op_type} does not have in opset {opset}",
            hint="poetgen refuses what it does not understand; export the model again",
        )
    check_inputs(node, opset)


def check_inputs(node: RawNode, opset: int) -> None:
    """Raise for a number of inputs or outputs that the op does not take, where ONNX defines the op."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return
    for what, count, least, most in (
        ("inputs", len(node.inputs), schema.min_input, schema.max_input),
        ("outputs", len(node.outputs), schema.min_output, schema.max_output),
    ):
        if not least <= count <= most:
            raise ModelError(
                f"{node.label} has {count} {what}, {node.op_type} takes {least} to {most} (opset {opset})",
                hint="export the model again",
            )
    for k, name in enumerate(node.inputs[: schema.min_input]):
        if not name:
            raise ModelError(
                f"{node.label} leaves out input {k}, which {node.op_type} needs",
                hint="export the model again",
            )
    if not any(node.outputs):
        raise ModelError(f"{node.label} has no output", hint="export the model again")


def _predict_elements(node: RawNode, inputs: Sequence[Array | None]) -> int:
    """An upper bound of the elements of the largest output, in Python ints."""
    given = [a for a in inputs if a is not None]
    largest = max((a.size for a in given), default=0)
    try:
        match node.op_type:
            case "ConstantOfShape":
                return math.prod(int(d) for d in given[0].ravel())
            case "Expand":
                return _broadcast(given[0].shape, tuple(int(d) for d in given[1].ravel()))
            case "Tile":
                return given[0].size * math.prod(int(d) for d in given[1].ravel())
            case "Range":
                start, limit, delta = (float(a.ravel()[0]) for a in given)
                return max(0, math.ceil((limit - start) / delta)) if delta else 0
            case "OneHot":
                return given[0].size * int(given[1].ravel()[0])
            case "Pad":
                return _padded(node, given)
            case op if op in _ELEMENTWISE:
                return _broadcast(*(a.shape for a in given))
            case "Gather":
                return given[0].size * max(1, given[1].size)
    except (IndexError, ValueError, OverflowError):
        return largest  # malformed: the evaluator says how
    return sum(a.size for a in given)


def _broadcast(*shapes: tuple[int, ...]) -> int:
    """Elements after broadcasting; np.broadcast_shapes has trouble with sizes above 2^63."""
    rank = max(len(s) for s in shapes)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return math.prod(max(column) for column in zip(*padded, strict=True))


def _padded(node: RawNode, given: Sequence[Array]) -> int:
    pads = node.attributes.get("pads", given[1].ravel() if len(given) > 1 else ())
    total = max(0, *(int(p) for p in pads), 0)
    return math.prod(d + 2 * total for d in given[0].shape)
