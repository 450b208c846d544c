"""Run a program in numpy on one flat arena. In: Program, batch, parameters. Out: the same bits as the C.

Freed bytes become NaN and erased pages 0xFF, so that whoever reads too late is found at the loss.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from poetgen.op import Array, Spec
from poetgen.program import Function, Operand, Program, Step

POISON = 0xFF
"""Of freed bytes: four of them are a NaN, one of them no window's index."""

Trace = Callable[[Step, tuple[Array, ...]], None]


class NonFiniteLossError(ArithmeticError):
    """The loss of a step is not finite; what the schedule updates before the loss was updated."""


@dataclass
class Machine:
    """RAM, store and parameters of one running model; ``Machine.start(program)`` is a fresh one."""

    program: Program
    arena: Array
    ram: dict[str, Array]
    store: tuple[dict[str, Array], dict[str, Array]]
    scratch: dict[str, Array] = field(default_factory=dict)
    step: int = 0
    seed: int = 0

    @classmethod
    def start(cls, program: Program, initial: Mapping[str, Array] | None = None, seed: int = 0) -> Machine:
        """Parameters at their initial values, the arena full of NaN."""
        values = dict((program.train or program.infer).plan.schedule.costed.training.initial)
        values.update(initial or {})
        machine = cls(
            program,
            np.full(program.arena_bytes, POISON, np.uint8),
            {m.tensor: np.array(values[m.tensor], m.spec.numpy) for m in program.members},
            ({t.name: np.array(values[t.name], t.spec.numpy) for t in program.stored}, {}),
            seed=seed,
        )
        home = program.train or program.infer
        for r in home.plan.residencies:
            if r.born == 0 and r.tensor in home.plan.schedule.resident:
                machine._view_bytes(r.offset, values[r.tensor].nbytes)[:] = (
                    np.ascontiguousarray(values[r.tensor]).view(np.uint8).reshape(-1)
                )
        return machine

    def train_step(
        self, inputs: Mapping[str, Array], label: Array, lr: float, trace: Trace | None = None
    ) -> float:
        """One training step; the loss.

        Raises:
            NonFiniteLossError: the loss is Inf or NaN; parameters are as before, and so are statistics
                where the schedule moves them after the loss.
        """
        function = self.program.train
        assert function is not None, "an inference-only program does not train"
        results = self._run(function, inputs, label, lr, trace)
        self.step += 1
        return float(results[function.plan.schedule.costed.training.loss])

    def infer(self, inputs: Mapping[str, Array]) -> Array:
        """The model's output."""
        function = self.program.infer
        results = self._run(function, inputs, None, 0.0, None)
        return results[function.plan.schedule.costed.training.output]

    def evaluate(self, inputs: Mapping[str, Array], label: Array) -> tuple[float, int | None]:
        """Loss, and for classes the number of correct samples."""
        function = self.program.evaluate
        assert function is not None, "an inference-only program has no loss"
        results = self._run(function, inputs, label, 0.0, None)
        training = function.plan.schedule.costed.training
        correct = next((results[t.name] for t in training.of_kind("result") if t.name != training.loss), None)
        return float(results[training.loss]), None if correct is None else int(correct)

    def parameters(self) -> dict[str, Array]:
        """Current value of everything that persists, by tensor name."""
        slot = self.store[self.step & 1]
        values = {m.tensor: self.ram[m.tensor] for m in self.program.members}
        return values | {t.name: slot[t.name] for t in self.program.stored}

    def _run(
        self,
        function: Function,
        inputs: Mapping[str, Array],
        label: Array | None,
        lr: float,
        trace: Trace | None,
    ) -> dict[str, Array]:
        training = function.plan.schedule.costed.training
        caller: dict[str, Array] = {k: np.asarray(v) for k, v in inputs.items()}
        for t in training.of_kind("label"):
            if label is not None:
                caller[t.name] = np.asarray(label)
        scalars: dict[str, Array] = {
            "lr": np.array(lr, np.float32),
            "seed": np.array(self.seed, np.int32),
            "step": np.array(self.step, np.int32),
        }
        slots = self.store[self.step & 1], self.store[(self.step + 1) & 1]
        for step in function.steps:
            if step.node is not None:
                outputs = self._compute(step, caller, scalars, training.initial, slots)
                if trace is not None:
                    trace(step, outputs)
                if step.phase == "loss" and function.name == "train_step":
                    loss = caller.get(training.loss)
                    if loss is not None and not np.isfinite(loss):
                        for where in step.rescues:
                            self._view(where)[...] = slots[0][where.tensor].reshape(where.spec.shape)
                        raise NonFiniteLossError
            elif step.verb in ("page in", "restore"):
                where = step.outputs[0]
                page = slots[0] if self._in_slot(where) else self.scratch
                self._view(where)[...] = page[where.tensor].reshape(where.spec.shape)
            elif step.verb in ("page out", "write back"):
                where = step.inputs[0]
                page = slots[1] if self._in_slot(where) else self.scratch
                page[where.tensor] = self._view(where).copy()
            elif step.verb == "move":
                self._view(step.outputs[0])[...] = self._view(step.inputs[0]).copy()
            for freed in step.frees:
                self._view_bytes(freed.offset, freed.spec.nbytes)[:] = POISON
        return caller

    def _in_slot(self, operand: Operand) -> bool:
        return self.program.store.pages[operand.tensor].region == "slot"

    def _compute(
        self,
        step: Step,
        caller: dict[str, Array],
        scalars: Mapping[str, Array],
        flash: Mapping[str, Array],
        slots: tuple[dict[str, Array], dict[str, Array]],
    ) -> tuple[Array, ...]:
        node = step.node
        assert node is not None
        read = [self._read(o, caller, scalars, flash, slots[0]) for o in step.inputs]
        with np.errstate(all="ignore"):
            made = node.op.reference(*read)
        if node.op.mutates:
            targets = [step.inputs[i] for i in node.op.mutates]
        else:
            targets = list(step.outputs)
        for where, value in zip(targets, made, strict=True):
            if where.space == "arena":
                self._view(where)[...] = value
            elif where.space == "ram":
                self.ram[where.tensor][...] = np.reshape(value, self.ram[where.tensor].shape)
            elif where.space == "store":
                page = slots[1] if self._in_slot(where) else self.scratch
                page[where.tensor] = np.array(value, where.spec.numpy)
            else:
                caller[where.tensor] = np.array(value, where.spec.numpy)
        return tuple(np.asarray(v) for v in made)

    def _read(
        self,
        operand: Operand,
        caller: Mapping[str, Array],
        scalars: Mapping[str, Array],
        flash: Mapping[str, Array],
        slot: Mapping[str, Array],
    ) -> Array:
        if operand.space == "arena":
            return self._view(operand).copy()
        if operand.space == "scalar":
            return scalars[operand.tensor]
        page = slot if operand.space == "store" and self._in_slot(operand) else self.scratch
        spaces = {"ram": self.ram, "flash": flash, "caller": caller, "store": page}
        value = spaces[operand.space][operand.tensor]
        return np.array(value, operand.spec.numpy).reshape(operand.spec.shape)

    def _view(self, operand: Operand) -> Array:
        raw = self._view_bytes(operand.offset, operand.spec.nbytes)
        view: Array = raw.view(operand.spec.numpy)
        if operand.spec.layout == "rows":
            n, c, height, width = operand.spec.shape
            return view.reshape(n, height, c, width).transpose(0, 2, 1, 3)
        return view.reshape(operand.spec.shape)

    def _view_bytes(self, offset: int, nbytes: int) -> Array:
        return self.arena[offset : offset + nbytes]


def digest(values: Mapping[str, Array]) -> str:
    """SHA-256 over the little-endian bytes of each array, in bytewise order of names."""
    h = hashlib.sha256()
    for name in sorted(values, key=lambda n: n.encode()):
        h.update(np.ascontiguousarray(values[name]).astype("<f4").tobytes())
    return h.hexdigest()


def check_word(array: Array) -> int:
    """The runtime's poet_check over an array's bytes, zero-padded to whole words."""
    raw = np.ascontiguousarray(array).tobytes()
    words = np.frombuffer(raw + bytes(-len(raw) % 4), "<u4")
    h = 2166136261
    for word in words.tolist():
        h = ((h ^ word) * 16777619) & 0xFFFFFFFF
    return h


__all__ = ["Machine", "NonFiniteLossError", "Spec", "check_word", "digest"]
