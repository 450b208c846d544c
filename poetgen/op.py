"""What an op is: shapes, numbers, gradient, work and the C call that does it.

An op is a frozen dataclass whose fields are its attributes. It lives in one file of ``poetgen/ops``
together with its gradient ops; ``poetgen.ops`` finds it by itself. It knows neither boards nor
schedules nor C text: it says how much *work* it is and which kernel takes which arguments.

Example (the whole of Relu)::

    @dataclass(frozen=True)
    class Relu(Op):
        onnx = "Relu"
        in_place = (0,)  # y may take x's bytes, if x dies here

        def infer(self, x):
            return (x,)

        def reference(self, x):
            return (np.where(x < 0, np.float32(0), x),)  # a NaN passes

        def work(self, inputs, outputs):
            return Work("elementwise", inputs[0].size)

        def calls(self, inputs, outputs):
            return (Call(Kernel("poet_relu_f32", "relu"), (inputs[0].size, In(0), Out(0))),)

        def gradient(self, emit, inputs, outputs, douts):
            (dx,) = emit(ReluDx(), outputs[0], douts[0])  # reads y, not x: x need not be kept
            return (dx,)

        @classmethod
        def examples(cls):
            return (Example(cls(), (f32(2, 3, 4),)),)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from poetgen.strides import row_major

Dtype = Literal["f32", "i32", "u8"]
Array = npt.NDArray[Any]
DTYPE_BYTES: dict[str, int] = {"f32": 4, "i32": 4, "u8": 1}
NUMPY_DTYPE: dict[str, Any] = {"f32": np.float32, "i32": np.int32, "u8": np.uint8}
C_TYPE: dict[str, str] = {"f32": "float", "i32": "int32_t", "u8": "uint8_t"}


Layout = Literal["dense", "rows"]


@dataclass(frozen=True)
class Spec:
    """Shape and type of a tensor: ``Spec((8, 6, 100))`` is float32.

    ``layout`` is the order of its bytes: dense is row-major; rows, for images [n, c, y, x], is
    [n][y][c][x], so that a band of rows of all channels is one run. ``reference`` never sees it.
    """

    shape: tuple[int, ...]
    dtype: Dtype = "f32"
    layout: Layout = "dense"

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes, without alignment."""
        return self.size * DTYPE_BYTES[self.dtype]

    @property
    def numpy(self) -> Any:
        """The numpy dtype."""
        return NUMPY_DTYPE[self.dtype]

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one index of each axis to the next, as the bytes lie."""
        if self.layout == "rows":
            _, channels, height, width = self.shape
            return height * channels * width, width, channels * width, 1
        return row_major(self.shape)

    def planes(self) -> tuple[int, int, int]:
        """Sizes (batch, channels, inner) with which [N, C, ...] is walked per channel in n, y, x order.

        In rows a row of a channel is a plane: the sums of a channel take the same order in both.
        """
        n, c, *rest = self.shape
        if self.layout == "rows":
            height, width = rest
            return n * height, c, width
        return n, c, math.prod(rest)


def f32(*shape: int) -> Spec:
    """A float32 spec: ``f32(8, 6, 100)``."""
    return Spec(shape)


@dataclass(frozen=True)
class Value:
    """A tensor as an op's ``gradient`` sees it: a name and what it is."""

    name: str
    spec: Spec


@dataclass(frozen=True)
class Work:
    """How much an op is to do; ``cost`` turns it into seconds and joules on a board.

    ``kind`` is a row of the board's ``[cycles]`` table: conv, gemm (count: multiply-accumulates),
    elementwise, pool, norm, loss, update (count: elements read or visited), move (count: bytes).
    """

    kind: Literal["conv", "gemm", "elementwise", "pool", "norm", "loss", "update", "move"]
    count: int


@dataclass(frozen=True)
class Kernel:
    """A C function: its symbol and its family, ``runtime_c/kernels/FAMILY.c`` and its header."""

    symbol: str
    family: str


@dataclass(frozen=True)
class In:
    """Argument: a pointer to input ``index`` (the value itself where the tensor is a scalar)."""

    index: int


@dataclass(frozen=True)
class Out:
    """Argument: a pointer to output ``index``."""

    index: int


@dataclass(frozen=True)
class Workspace:
    """Argument: a pointer to the op's workspace bytes."""


@dataclass(frozen=True)
class Struct:
    """Argument: the address of a ``static const struct`` that the program names after the node."""

    ctype: str
    fields: tuple[tuple[str, int | float], ...]


@dataclass(frozen=True)
class Raw:
    """Argument: a C token, such as an enumerator or ``NULL``."""

    text: str


@dataclass(frozen=True)
class Pager:
    """Argument: the model's pager, for a streamed node."""


@dataclass(frozen=True)
class StreamIn:
    """Argument: input ``index`` as a ``struct poet_stream``, resident or in the store."""

    index: int


@dataclass(frozen=True)
class StreamOut:
    """Argument: output ``index`` as a ``struct poet_stream``, resident or in the store."""

    index: int


@dataclass(frozen=True)
class StreamNew:
    """Argument: where the new value of the mutated input ``index`` goes: the other slot, or its own place."""

    index: int


Arg = In | Out | Workspace | Struct | Raw | Pager | StreamIn | StreamOut | StreamNew | int | float


@dataclass(frozen=True)
class Call:
    """One call of a kernel. Floats print as hex floats."""

    kernel: Kernel
    args: tuple[Arg, ...]


class Emit(Protocol):
    """Adds a node to the graph and gives its outputs."""

    def __call__(self, op: Op, *inputs: Value) -> tuple[Value, ...]:
        """The new node's outputs."""


@dataclass(frozen=True)
class Example:
    """One use of an op, for every test in ``tests/ops``.

    ``inputs`` are specs (filled with seeded normal numbers) or arrays as they are.
    """

    op: Op
    inputs: tuple[Spec | Array, ...]
    opset: int = 17

    def arrays(self, seed: int = 0) -> tuple[Array, ...]:
        """The inputs as arrays."""
        rng = np.random.default_rng(seed)
        return tuple(
            rng.standard_normal(i.shape).astype(i.numpy) if isinstance(i, Spec) else i for i in self.inputs
        )


class OnnxNode(Protocol):
    """An ONNX node as ``from_onnx`` sees it; poetgen.onnx_import makes it."""

    op_type: str
    opset: int
    inputs: tuple[Spec | None, ...]
    constants: tuple[Array | None, ...]
    output_count: int

    def take(self, attribute: str, default: Any) -> Any:
        """The attribute's value, marked as read (what nobody reads is an error)."""

    def refuse(self, why: str, hint: str = "") -> Exception:
        """A ModelError that names this node, its op and opset."""


@dataclass(frozen=True)
class Op:
    """The base of all ops. See the module's docstring."""

    onnx: ClassVar[str] = ""
    """ONNX operator type; empty for ops that only training makes."""
    in_place: ClassVar[tuple[int, ...]] = ()
    """Inputs whose bytes output 0 may take when they die here (same byte size)."""
    continues: ClassVar[int | None] = None
    """Input that output 0 goes on from (a running sum): copied first where it is not in place."""
    rows: ClassVar[bool] = False
    """Its images may be in rows layout."""
    view: ClassVar[bool] = False
    """The output is input 0's bytes under another shape; differentiate() removes such nodes."""
    recomputable: ClassVar[bool] = True
    """False for what is not a pure function of its inputs."""
    mutates: ClassVar[tuple[int, ...]] = ()
    """Inputs changed in place: parameters, statistics and optimizer state."""

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Output specs; raises ValueError in words where shapes do not fit."""
        raise NotImplementedError

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The same numbers in numpy, summed in the documented order (docs/arithmetic.md).

        float32 inputs give the C kernel's bits. float64 inputs must work too (gradient tests).
        An op that mutates returns the new values of ``mutates`` in that order.
        """
        raise NotImplementedError

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """How much there is to do."""
        raise NotImplementedError

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """The kernels to call, in order. Empty for a view."""
        raise NotImplementedError

    def workspace_bytes(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> int:
        """Scratch the kernels need while they run."""
        return 0

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Emit the nodes that give each input's gradient; None where there is none.

        Which tensors they name is what the schedule must keep, page or recompute. What nobody needs
        is pruned afterwards, so emit all. ``douts[i]`` is None for an output without gradient.
        """
        raise NotImplementedError

    def inference(self) -> tuple[Op, tuple[int, ...], tuple[int, ...]] | None:
        """What runs in ``_infer`` instead: op, input indices and output indices. None: itself."""
        return None

    def attributes(self) -> dict[str, Any]:
        """The ONNX attributes that say the same, for tests against ONNX Runtime."""
        return {}

    def onnx_constants(self) -> dict[int, Array]:
        """Constant ONNX inputs by position, such as a Reshape's shape, for the same tests."""
        return {}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, tuple[int, ...]]:
        """The op for an ONNX node, and which of its inputs are run-time operands."""
        return cls(), tuple(i for i, spec in enumerate(node.inputs) if spec is not None)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Uses that tests/ops walks over."""
        return ()

    @classmethod
    def onnx_aliases(cls) -> tuple[str, ...]:
        """Further ONNX operator types that this class imports."""
        return ()


__all__ = [
    "C_TYPE",
    "DTYPE_BYTES",
    "Arg",
    "Array",
    "Call",
    "Dtype",
    "Emit",
    "Example",
    "In",
    "Kernel",
    "Layout",
    "OnnxNode",
    "Op",
    "Out",
    "Pager",
    "Raw",
    "Self",
    "Spec",
    "StreamIn",
    "StreamNew",
    "StreamOut",
    "Struct",
    "Value",
    "Work",
    "Workspace",
    "f32",
]
