"""BatchNormalization: with frozen statistics, or in training form with those of the batch.

Per channel, float32, one rounding an operation:

    is = 1 / sqrt(var + eps)
    frozen:   y = x sc + sh, sc = g is, sh = b - mean sc;             dx = dy sc
    training: y = (x - mean) sc + b, mean and var of the batch;
              dx = sc ((dy - db / M) - ((x - mean) is) (dg / M)), M elements a channel
    both:     dg = sum of dy ((x - mean) is), db = sum of dy          n, y, x ascending
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poetgen.arithmetic import sqrt, sum_in_order
from poetgen.op import (
    Array,
    Call,
    Emit,
    Example,
    In,
    Kernel,
    OnnxNode,
    Op,
    Out,
    Raw,
    Spec,
    Struct,
    Value,
    Work,
    f32,
)
from poetgen.ops.channel_sum import ChannelSum

Ints = tuple[int, ...]
_FAMILY = "batchnorm"


def _check(x: Spec, *vectors: Spec) -> None:
    if len(x.shape) < 2:
        raise ValueError(f"batch norm needs [N, C, ...], not {list(x.shape)}")
    for v in vectors:
        if v.shape != x.shape[1:2]:
            raise ValueError(f"x {list(x.shape)} has {x.shape[1]} channels, a parameter {list(v.shape)}")


def _struct(x: Spec, eps: float) -> Struct:
    batch, channels, size = x.planes()
    fields = (("batch", batch), ("channels", channels), ("size", size), ("eps", float(eps)))
    return Struct("struct poet_batchnorm", fields)


def _each(vector: Array, x: Array) -> Array:
    """A number a channel, shaped to meet x."""
    return vector.reshape(-1, *(1,) * (x.ndim - 2))


def _inverse_std(var: Array, eps: float) -> Array:
    real = var.dtype.type
    return np.asarray(real(1) / sqrt(var + real(eps)))


def _over(x: Array) -> Ints:
    return (0, *range(2, x.ndim))


@dataclass(frozen=True)
class BatchNorm(Op):
    """With frozen statistics; inputs (x, g, b, mean, var). ``momentum`` is for ``trained``."""

    eps: float = 1e-5
    momentum: float = 0.9

    onnx: ClassVar[str] = "BatchNormalization"
    in_place: ClassVar[Ints] = (0,)
    rows: ClassVar[bool] = True
    statistics: ClassVar[Ints] = (3, 4)

    def trained(self) -> BatchNormTrain:
        """The same layer with the batch's own statistics."""
        return BatchNormTrain(self.eps, self.momentum)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        _check(*inputs)
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Scale and shift are formed once a channel."""
        x, g, b, mean, var = inputs
        scale = g * _inverse_std(var, self.eps)
        shift = b - mean * scale
        return (np.asarray(x * _each(scale, x) + _each(shift, x)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("norm", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = _struct(inputs[0], self.eps)
        return (Call(Kernel("poet_batchnorm_f32", _FAMILY), (s, *map(In, range(5)), Out(0))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Only dg reads x."""
        x, g, _, mean, var = inputs
        dy = douts[0]
        assert dy is not None
        (dx,) = emit(BatchNormDx(self.eps), dy, g, var)
        (dg,) = emit(BatchNormDg(self.eps), dy, x, mean, var)
        (db,) = emit(ChannelSum(), dy)
        return dx, dg, db, None, None

    def attributes(self) -> dict[str, Any]:
        """As ONNX's."""
        return {"epsilon": self.eps, "momentum": self.momentum}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[Op, Ints]:
        """Training form: five outputs below opset 14, training_mode = 1 from it on."""
        eps, momentum = float(node.take("epsilon", 1e-5)), float(node.take("momentum", 0.9))
        if node.opset < 9 and not node.take("spatial", 1):
            raise node.refuse("spatial = 0 normalises each element by itself", "export with a newer opset")
        if node.opset < 7:
            training = not node.take("is_test", 0)
            node.take("consumed_inputs", None)
        elif node.opset < 14:
            training = node.output_count > 1
        else:
            training = bool(node.take("training_mode", 0))
        op = cls(eps, momentum)
        return op.trained() if training else op, tuple(range(5))

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Images, sequences, rows."""
        return tuple(
            Example(cls(eps), (f32(*s), f32(s[1]), f32(s[1]), f32(s[1]), _variances(s[1])))
            for s, eps in (((2, 3, 4, 5), 1e-5), ((2, 3, 7), 1e-3), ((4, 5), 1e-5), ((1, 1, 1, 1), 1e-5))
        )


def _variances(channels: int) -> Array:
    return np.random.default_rng(5).uniform(0.1, 3, channels).astype(np.float32)


@dataclass(frozen=True)
class BatchNormDx(Op):
    """Frozen statistics: dx = dy sc; inputs (dy, g, var)."""

    eps: float

    in_place: ClassVar[Ints] = (0,)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As dy."""
        _check(*inputs)
        return (inputs[0],)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The forward scale."""
        dy, g, var = inputs
        return (np.asarray(dy * _each(g * _inverse_std(var, self.eps), dy)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("norm", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = _struct(inputs[0], self.eps)
        return (Call(Kernel("poet_batchnorm_dx_f32", _FAMILY), (s, In(0), In(1), In(2), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Images, rows."""
        return tuple(
            Example(cls(1e-5), (f32(*s), f32(s[1]), _variances(s[1])))
            for s in ((2, 3, 4, 5), (4, 5), (1, 1, 1))
        )


@dataclass(frozen=True)
class BatchNormDg(Op):
    """dg = sum of dy ((x - mean) is), n, y, x ascending; inputs (dy, x, mean, var)."""

    eps: float

    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """One number a channel."""
        dy, x, mean, var = inputs
        _check(x, mean, var)
        if dy.shape != x.shape:
            raise ValueError(f"dy is {list(dy.shape)}, x {list(x.shape)}")
        return (mean,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """In the kernel's order."""
        dy, x, mean, var = inputs
        normal = (x - _each(mean, x)) * _each(_inverse_std(var, self.eps), x)
        return (sum_in_order(dy * normal, _over(x)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("norm", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """Start afresh."""
        s = _struct(inputs[0], self.eps)
        kernel = Kernel("poet_batchnorm_dg_f32", _FAMILY)
        return (Call(kernel, (s, Raw("POET_START_ZERO"), *map(In, range(4)), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Images, rows."""
        return tuple(
            Example(cls(1e-5), (f32(*s), f32(*s), f32(s[1]), _variances(s[1])))
            for s in ((2, 3, 4, 5), (4, 5), (1, 1, 1))
        )


@dataclass(frozen=True)
class BatchNormSums(Op):
    """dg and db in one pass over dy; inputs (dy, x, mean, var). poetgen.autodiff makes it of the two."""

    eps: float

    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """Two numbers a channel."""
        return BatchNormDg(self.eps).infer(*inputs) * 2

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """As the two."""
        return *BatchNormDg(self.eps).reference(*inputs), *ChannelSum().reference(inputs[0])

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once, with two sums."""
        return Work("norm", 2 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """Two calls."""
        return _sums(inputs[0], inputs[1], self.eps, (0, 1, 2, 3), (0, 1))

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Images, rows."""
        return tuple(
            Example(cls(1e-5), (f32(*s), f32(*s), f32(s[1]), _variances(s[1])))
            for s in ((2, 3, 4, 5), (4, 5), (1, 1, 1))
        )


def _sums(dy: Spec, x: Spec, eps: float, inputs: Ints, outputs: Ints) -> tuple[Call, ...]:
    """dg, then db, of (dy, x, mean, var)."""
    start = Raw("POET_START_ZERO")
    dg, db = map(Out, outputs)
    sizes = dy.planes()
    return (
        Call(Kernel("poet_batchnorm_dg_f32", _FAMILY), (_struct(x, eps), start, *map(In, inputs), dg)),
        Call(Kernel("poet_channel_sum_f32", "channel_sum"), (*sizes, start, In(inputs[0]), db)),
    )


@dataclass(frozen=True)
class BatchNormGradients(Op):
    """dx, dg and db with frozen statistics; inputs (dy, x, g, mean, var). Made of the three."""

    eps: float

    in_place: ClassVar[Ints] = (0, 1)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x, and two numbers a channel."""
        dy, x, g, mean, var = inputs
        BatchNormDg(self.eps).infer(dy, x, mean, var)
        return x, g, g

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """As the three."""
        dy, x, g, mean, var = inputs
        dx = BatchNormDx(self.eps).reference(dy, g, var)
        return *dx, *BatchNormSums(self.eps).reference(dy, x, mean, var)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once, with two sums."""
        return Work("norm", 2 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """The sums first: dx may take dy's place."""
        dx = Kernel("poet_batchnorm_dx_f32", _FAMILY)
        return (
            *_sums(inputs[0], inputs[1], self.eps, (0, 1, 3, 4), (1, 2)),
            Call(dx, (_struct(inputs[1], self.eps), In(0), In(2), In(4), Out(0))),
        )

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Images, rows."""
        return tuple(
            Example(cls(1e-5), (f32(*s), f32(*s), f32(s[1]), f32(s[1]), _variances(s[1])))
            for s in ((2, 3, 4, 5), (4, 5), (1, 1, 1))
        )


@dataclass(frozen=True)
class BatchNormTrain(Op):
    """With the batch's statistics; inputs (x, g, b[, running mean, running var]).

    Outputs (y, mean, var), var of the population. The running statistics are not read: who builds the
    training graph drops those inputs and adds one StatisticUpdate for each pair in ``moves``, so that
    they move once a step however often this node runs.
    """

    eps: float = 1e-5
    momentum: float = 0.9

    in_place: ClassVar[Ints] = (0,)
    rows: ClassVar[bool] = True
    statistics: ClassVar[Ints] = (3, 4)
    moves: ClassVar[tuple[tuple[int, int], ...]] = ((3, 1), (4, 2))
    """(running statistic among the inputs, what it moves towards among the outputs)."""

    def update(self) -> StatisticUpdate:
        """What moves a running statistic; inputs (running, batch)."""
        return StatisticUpdate(self.momentum)

    def frozen(self) -> BatchNorm:
        """The same layer with frozen statistics."""
        return BatchNorm(self.eps, self.momentum)

    def inference(self) -> tuple[Op, Ints, Ints] | None:
        """With the running statistics."""
        return self.frozen(), (0, 1, 2, 3, 4), (0,)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x, and two numbers a channel."""
        x, g, *rest = inputs
        _check(x, g, *rest)
        if x.size == x.shape[1]:
            raise ValueError(f"x {list(x.shape)} has one element a channel: its variance is no statistic")
        return x, g, g

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Two passes."""
        x, g, b = inputs[:3]
        real = x.dtype.type
        count = real(x.size // x.shape[1])
        mean = np.asarray(sum_in_order(x, _over(x)) / count)
        d = x - _each(mean, x)
        var = np.asarray(sum_in_order(d * d, _over(x)) / count)
        scale = g * _inverse_std(var, self.eps)
        return np.asarray(d * _each(scale, x) + _each(b, x)), mean, var

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Three passes."""
        return Work("norm", 3 * inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = _struct(inputs[0], self.eps)
        kernel = Kernel("poet_batchnorm_train_f32", _FAMILY)
        return (Call(kernel, (s, In(0), In(1), In(2), Out(0), Out(1), Out(2))),)

    def gradient(
        self,
        emit: Emit,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        douts: tuple[Value | None, ...],
    ) -> tuple[Value | None, ...]:
        """Reads x and two numbers a channel, not y; dx needs dg and db whether or not they train."""
        x, g, *_ = inputs
        _, mean, var = outputs
        dy = douts[0]
        assert dy is not None
        (dg,) = emit(BatchNormDg(self.eps), dy, x, mean, var)
        (db,) = emit(ChannelSum(), dy)
        (dx,) = emit(BatchNormTrainDx(self.eps), dy, x, g, mean, var, dg, db)
        return (dx, dg, db, None, None)[: len(inputs)]

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Images, sequences, rows; with and without running statistics."""
        return (
            *(
                Example(cls(eps), (f32(*s), f32(s[1]), f32(s[1])))
                for s, eps in (((2, 3, 4, 5), 1e-5), ((2, 3, 7), 1e-3), ((4, 5), 1e-5), ((2, 1, 1), 1e-5))
            ),
            Example(cls(), (f32(2, 3, 4), f32(3), f32(3), f32(3), _variances(3))),
        )


@dataclass(frozen=True)
class BatchNormTrainDx(Op):
    """Batch statistics: see the module; inputs (dy, x, g, mean, var, dg, db)."""

    eps: float

    in_place: ClassVar[Ints] = (0, 1)
    rows: ClassVar[bool] = True

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """As x."""
        dy, x, *vectors = inputs
        _check(x, *vectors)
        if dy.shape != x.shape:
            raise ValueError(f"dy is {list(dy.shape)}, x {list(x.shape)}")
        return (x,)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """Elementwise, given the sums."""
        dy, x, g, mean, var, dg, db = inputs
        count = x.dtype.type(x.size // x.shape[1])
        inverse = _inverse_std(var, self.eps)
        normal = (x - _each(mean, x)) * _each(inverse, x)
        inner = (dy - _each(db / count, x)) - normal * _each(dg / count, x)
        return (np.asarray(inner * _each(g * inverse, x)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each element once."""
        return Work("norm", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call."""
        s = _struct(inputs[0], self.eps)
        kernel = Kernel("poet_batchnorm_train_dx_f32", _FAMILY)
        return (Call(kernel, (s, *map(In, range(7)), Out(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Images, rows."""
        return tuple(
            Example(
                cls(1e-5),
                (f32(*s), f32(*s), f32(s[1]), f32(s[1]), _variances(s[1]), f32(s[1]), f32(s[1])),
            )
            for s in ((2, 3, 4, 5), (4, 5), (2, 1, 1))
        )


@dataclass(frozen=True)
class StatisticUpdate(Op):
    """running = running momentum + batch (1 - momentum), as ONNX has it; inputs (running, batch)."""

    momentum: float

    mutates: ClassVar[Ints] = (0,)
    recomputable: ClassVar[bool] = False

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """No output: the running statistic changes in place."""
        running, batch = inputs
        if running.shape != batch.shape:
            raise ValueError(f"the statistic is {list(running.shape)}, the batch's {list(batch.shape)}")
        return ()

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """The new running statistic."""
        running, batch = inputs
        real = running.dtype.type
        return (np.asarray(running * real(self.momentum) + batch * real(1 - self.momentum)),)

    def work(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> Work:
        """Each channel once."""
        return Work("update", inputs[0].size)

    def calls(self, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> tuple[Call, ...]:
        """One call; 1 - momentum is formed here, in double."""
        kernel = Kernel("poet_statistic_update_f32", _FAMILY)
        factors = (float(self.momentum), 1 - float(self.momentum))
        return (Call(kernel, (inputs[0].size, *factors, In(1), In(0))),)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """ONNX's default, and odd."""
        return (Example(cls(0.9), (f32(5), f32(5))), Example(cls(0.75), (f32(1), f32(1))))
