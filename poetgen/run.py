"""Train a project on data files. In: Project, Job. Out: RunResult, as the target computed it.

Each run happens in a temporary folder, on a copy of the page store's image, so the same job gives the
same result again.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from poetgen.boards import Board
from poetgen.build import (
    NONFINITE,
    WANT_ARENA,
    WANT_TRACE,
    Built,
    Metrics,
    Outcome,
    Progress,
    Record,
    build,
    read_trace,
    run_target,
    write_job,
)
from poetgen.data import Batches
from poetgen.errors import TargetError
from poetgen.project import Project

Array = npt.NDArray[Any]
Float = npt.NDArray[np.float32]
_PATTERNS = (0xA5, 0x5A)
"""Of an arena before it is measured; no byte is equal to both."""
_GUARD_BYTES = 128
"""Behind the arena while it is measured: who writes there is seen."""


@dataclass(frozen=True, eq=False)
class Job:
    """What to run: ``Job(batches, steps=200)`` trains with the project's learning rate.

    ``lr`` None is the project's; ``shuffle`` is the seed of the order of rows, None is the file's order;
    ``measure`` also runs one step twice to see which bytes of the arena it touches; ``gradients`` runs
    one step of the traced program for the first gradients.
    """

    data: Batches
    steps: int
    lr: float | None = None
    eval_data: Batches | None = None
    shuffle: int | None = None
    seed: int = 0
    measure: bool = True
    gradients: bool = False
    timeout_s: float = 3600.0


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run gave. ``parameters`` are all that persist, by ONNX name or ``LAYER/role``."""

    status: Literal["done", "nonfinite"]
    project: Project
    built: Built
    outcome: Outcome
    losses: Float
    outputs: Float | None
    parameters: Mapping[str, Float]
    gradients: Mapping[str, Float] = field(default_factory=dict)
    arena_bytes_measured: int | None = None

    @property
    def trained(self) -> Mapping[str, Float]:
        """Trained parameters and updated statistics: what the ONNX file knows."""
        known = {p.name for p in self.project.parameters if p.in_onnx}
        return {name: value for name, value in self.parameters.items() if name in known}

    @property
    def params_sha256(self) -> str | None:
        """SHA-256 over the little-endian bytes of ``trained``, in bytewise order of ONNX name."""
        if self.status != "done":
            return None
        digest = hashlib.sha256()
        for name in sorted(self.trained, key=str.encode):
            digest.update(np.asarray(self.trained[name], "<f4").tobytes())
        return digest.hexdigest()

    def arrays(self) -> dict[str, Array]:
        """What ``--dump`` writes."""
        found: dict[str, Array] = dict(self.trained)
        if self.outputs is not None:
            found[self.project.output.name] = self.outputs
        return found | {f"grad/{name}": value for name, value in self.gradients.items()}

    def json(self) -> dict[str, Any]:
        """For machines; a number that is not finite is null."""
        steps, per_step = self.outcome.steps, self.project.traffic
        sector_bytes = self.project.sector_bytes
        done = self.status == "done"
        answer: dict[str, Any] = {
            "status": self.status,
            "board": self.project.board,
            "on": "host" if self.built.board.is_host else "qemu",
            "steps": steps,
            "losses": [finite(float(loss)) for loss in self.losses],
            "params_sha256": self.params_sha256,
            "arena_bytes_predicted": self.project.arena_bytes,
            "arena_bytes_measured": self.arena_bytes_measured,
            "peak_bytes": self.project.peak_bytes,
            # The host's stack is not measured: it is not what the board will need.
            "stack_bytes_measured": self.outcome.stack_bytes or None,
            "pages_in": steps * per_step.pages_in,
            "pages_out": steps * per_step.pages_out,
            # The device's own counts; a run that ended early does not tell them.
            "page_bytes_in": self.outcome.sectors_read * sector_bytes if done else None,
            "page_bytes_out": self.outcome.sectors_written * sector_bytes if done else None,
            "page_bytes_in_predicted": steps * per_step.bytes_in,
            "page_bytes_out_predicted": steps * per_step.bytes_out,
            "device_reads": self.outcome.device_reads if done else None,
            "device_writes": self.outcome.device_writes if done else None,
            "text_bytes": self.built.sizes.text,
            "data_bytes": self.built.sizes.data,
            "bss_bytes": self.built.sizes.bss,
        }
        for suffix, metrics in (("_before", self.outcome.before), ("", self.outcome.after)):
            if metrics.count:
                answer[f"eval_loss{suffix}"] = finite(metrics.loss_sum / metrics.count)
                if self.project.classes is not None:
                    answer[f"accuracy{suffix}"] = accuracy(metrics)
        return answer


def accuracy(metrics: Metrics) -> float:
    """The part of samples whose first largest output is the label."""
    return metrics.correct / metrics.count


def finite(value: float) -> float | None:
    """The value, or None where it is not finite: JSON has no NaN."""
    return value if math.isfinite(value) else None


def run(project: Project, target: Board, job: Job, progress: Progress | None = None) -> RunResult:
    """Build a project and run a job on it.

    Raises:
        ToolError, BuildError, FitError, TargetError: as build() and run_target() do.
    """
    built = build(project, target)
    lr = project.lr if job.lr is None else job.lr
    with _workspace(project) as folder:
        batches = job.data.write(folder / "data.bin", job.steps, job.shuffle)
        evaluations = 0
        if job.eval_data is not None:
            evaluations = job.eval_data.write(folder / "eval.bin", job.eval_data.count)
        write_job(folder, steps=job.steps, batches=batches, lr=lr, eval_batches=evaluations, seed=job.seed)
        outcome = run_target(built, folder, job.timeout_s, progress, _loss_bytes(project))
        written = np.fromfile(folder / "loss.bin", "<f4")
        parameters = _parameters(project, folder) if outcome.status == 0 else {}
    result = RunResult(
        status="nonfinite" if outcome.status == NONFINITE else "done",
        project=project,
        built=built,
        outcome=outcome,
        losses=written if project.trains else written[:0],
        outputs=None if project.trains else written.reshape(-1, *project.output.shape[1:]),
        parameters=parameters,
    )
    if job.measure:
        result = replace(result, arena_bytes_measured=_measure(project, target, job, lr))
    if job.gradients:
        result = replace(result, gradients=first_gradients(project, target, job))
    return result


@contextmanager
def _workspace(project: Project) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="poetgen-") as name:
        folder = Path(name)
        if project.store is not None:
            shutil.copyfile(project.store, folder / "store.bin")
        yield folder


def _loss_bytes(project: Project) -> int:
    return 4 if project.trains else 4 * math.prod(project.output.shape)


def _parameters(project: Project, folder: Path) -> dict[str, Float]:
    flat = np.fromfile(folder / "params.bin", "<f4")
    wanted = sum(p.size for p in project.parameters)
    if len(flat) != wanted:
        raise TargetError(f"the target wrote {len(flat)} parameters, the project has {wanted}")
    found: dict[str, Float] = {}
    at = 0
    for p in project.parameters:
        found[p.name] = flat[at : at + p.size].reshape(p.shape)
        at += p.size
    return found


def _measure(project: Project, target: Board, job: Job, lr: float) -> int | None:
    """The end of the bytes that a step touches; None where its loss is not finite."""
    built = build(project, target, extra_flags=f"-DPOET_ARENA_GUARD={_GUARD_BYTES}", name="measure")
    ends = [_touched(project, built, job, lr, pattern) for pattern in _PATTERNS]
    return None if None in ends else max(end for end in ends if end is not None)


def _touched(project: Project, built: Built, job: Job, lr: float, pattern: int) -> int | None:
    """One step, and one evaluation, in an arena full of ``pattern``: the end of what they changed."""
    with _workspace(project) as folder:
        batches = job.data.write(folder / "data.bin", 1, job.shuffle)
        evaluations = 0
        if project.trains:
            shutil.copyfile(folder / "data.bin", folder / "eval.bin")
            evaluations = 1
        write_job(
            folder,
            steps=1,
            batches=batches,
            lr=lr,
            eval_batches=evaluations,
            flags=WANT_ARENA,
            pattern=pattern,
            seed=job.seed,
        )
        if run_target(built, folder, job.timeout_s).status != 0:
            return None
        arena = np.fromfile(folder / "arena.bin", np.uint8)
    changed = np.flatnonzero(arena != pattern)
    return int(changed[-1]) + 1 if len(changed) else 0


def first_gradients(project: Project, target: Board, job: Job) -> dict[str, Float]:
    """The gradients of training step 0, by ONNX name."""
    shapes = {p.name: p.shape for p in project.parameters}
    makes = {g.number: g.parameters for g in project.gradient_steps}
    found: dict[str, Float] = {}
    with traced(project, target, replace(job, steps=1)) as records:
        for record in records:
            if record.is_gradient:
                for name in makes[record.step]:
                    found[name] = np.frombuffer(record.data, "<f4").reshape(shapes[name])
    missing = [p.name for p in project.parameters if p.kind == "param" and p.name not in found]
    if missing:
        raise TargetError(f"the target did not tell the gradients of {', '.join(missing)}")
    return found


@contextmanager
def traced(
    project: Project, target: Board, job: Job, progress: Progress | None = None
) -> Iterator[Iterator[Record]]:
    """Run the traced program: what each step of each training step computed, in order.

    The records are read while they are asked for; the file is gone when the context ends.
    """
    built = build(project, target, trace=True)
    with _workspace(project) as folder:
        batches = job.data.write(folder / "data.bin", job.steps, job.shuffle)
        lr = project.lr if job.lr is None else job.lr
        write_job(folder, steps=job.steps, batches=batches, lr=lr, flags=WANT_TRACE, seed=job.seed)
        run_target(built, folder, job.timeout_s, progress)
        yield read_trace(folder / "trace.bin")
