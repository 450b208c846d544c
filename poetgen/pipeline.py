"""The stages in order, from an ONNX file to a C project.

    import_onnx -> differentiate -> cost -> plan -> place -> lower -> emit

compile_model() runs all of them; generate() writes the project; load() brings a written one back.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from poetgen import __version__
from poetgen.autodiff import (
    Adam,
    Optimizer,
    Sgd,
    differentiate,
    evaluation_graph,
    inference_graph,
    inference_only,
    trainable,
)
from poetgen.autodiff.fused_passes import fuse_passes
from poetgen.autodiff.fused_updates import fuse_updates
from poetgen.autodiff.sparse_updates import sparse_updates
from poetgen.boards import board
from poetgen.cost import Budget, CostedGraph, aligned, cost
from poetgen.emit import MARKER, SourceTree, emit
from poetgen.errors import DataError, FitError, UsageError
from poetgen.graph import Model, TrainingGraph
from poetgen.layout import to_rows
from poetgen.memory import MemoryPlan, place
from poetgen.memory import check as check_placement
from poetgen.new_classes import with_classes
from poetgen.onnx_import import import_onnx
from poetgen.program import Program, lower, static_bytes
from poetgen.report import BaselineFact, PlanReport, claims, code_flash_bytes
from poetgen.schedule import BrokenSchedule, Schedule, Strategy, Verdict, check
from poetgen.schedule.baselines import BASELINES
from poetgen.schedule.floor import keep_all_bytes, min_ram
from poetgen.schedule.inference import plan_forward
from poetgen.schedule.plan import Progress, plan
from poetgen.schedule.plan_json import from_json, to_json


@dataclass(frozen=True)
class Options:
    """What the command line's options say; ``Options(Path("net.onnx"), "host")`` takes every default."""

    model: Path
    board: str
    ram_bytes: int | None = None
    deadline_s: float | None = None
    loss: str = "cross_entropy"
    optimizer: str = "sgd"
    lr: float = 0.01
    momentum: float = 0.0
    eps: float = 1e-8
    batch: int | None = None
    train: tuple[str, ...] = ("*",)
    freeze: tuple[str, ...] = ()
    bn: str = "file"
    output: str | None = None
    classes: int | None = None
    seed: int = 0
    strategy: Strategy = "milp"
    time_limit_s: float = 60.0
    depth: int = 1
    gap: float = 1e-4
    stream: str = "auto"
    """Work on tensors in the store, a piece at a time: on, off, auto (when nothing fits otherwise)."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """Everything that is known about one project."""

    options: Options
    schedule: Schedule | None
    verdict: Verdict | None
    program: Program

    @property
    def costed(self) -> CostedGraph:
        """The priced training graph (the inference graph where nothing trains)."""
        return self.program.costed


def read_model(options: Options) -> Model:
    """Import the model that the options name."""
    model = import_onnx(options.model, batch=options.batch, output=options.output)
    return model if options.classes is None else with_classes(model, options.classes, options.seed)


def training_graph(model: Model, options: Options) -> TrainingGraph:
    """Differentiate as the options say."""
    training = differentiate(
        model,
        loss=options.loss,
        optimizer=_optimizer(options),
        train=options.train,
        freeze=options.freeze,
        output=options.output,
        bn=options.bn,
    )
    return sparse_updates(training)


def priced(model: Model, options: Options) -> CostedGraph:
    """The training graph with prices, in the form that is planned.

    Streamed if asked for, or if nothing else fits the budget.
    """
    training = training_graph(model, options)
    if options.stream == "on":
        return costed_graph(streamable(training), options, streaming=True)
    resident = costed_graph(training, options)
    budget = resident.arena_budget_bytes
    if options.stream == "off" or resident.board.store is None or budget is None:
        return resident
    if min_ram(resident, depth=options.depth).arena_bytes <= budget:
        return resident
    return costed_graph(streamable(training), options, streaming=True)


def streamable(training: TrainingGraph) -> TrainingGraph:
    """The form that streams best: images by rows, gradients fused with updates and with each other."""
    return to_rows(fuse_passes(fuse_updates(training)))


def costed_graph(training: TrainingGraph, options: Options, streaming: bool = False) -> CostedGraph:
    """Price a graph on the options' board; the RAM budget is the board's unless the options say less.

    Raises:
        FitError: the budget is more than the board has.
    """
    where = board(options.board)
    capacity = where.ram_bytes - where.reserved_bytes
    ram_bytes = capacity if options.ram_bytes is None else options.ram_bytes
    if ram_bytes > capacity:
        raise FitError(
            f"--ram {ram_bytes} B is more than {where.name} has: {where.ram_bytes} B, of which "
            f"{where.reserved_bytes} B are reserved for stack and drivers",
            hint=f"try --ram {capacity}",
        )
    fixed = static_bytes(
        training.of_kind("input", "label"), where.store.sector_bytes if where.store else None
    )
    return cost(training, where, Budget(ram_bytes, options.deadline_s), fixed, streaming)


def compile_model(
    options: Options, progress: Progress | None = None, plan_text: str | None = None
) -> Compiled:
    """All stages up to the program; ``plan_text`` is a stored plan.json to use instead of solving."""
    model = read_model(options)
    if not any(not why for why in trainable(model).values()):
        return _inference_only(model, options)
    costed = priced(model, options)
    training = costed.training
    if plan_text is not None:
        schedule = _stored(plan_text, costed)
    else:
        schedule = plan(
            costed,
            strategy=options.strategy,
            time_limit_s=options.time_limit_s,
            depth=options.depth,
            gap=options.gap,
            progress=progress,
        )
    placed = place(schedule)
    check_placement(placed)
    verdict = check(placed.schedule)  # with the moves that placement planned
    program = lower(
        placed,
        _forward(inference_graph(training), costed, placed),
        _forward(evaluation_graph(training), costed, placed),
    )
    _check_flash(program)
    return Compiled(options, placed.schedule, verdict, program)


def _stored(plan_text: str, costed: CostedGraph) -> Schedule:
    try:
        return from_json(plan_text, costed)
    except BrokenSchedule as broken:
        raise DataError(f"the stored plan is not legal: {broken.message}", hint="make a new one") from broken


def plan_report(
    options: Options, progress: Progress | None = None, plan_text: str | None = None
) -> PlanReport:
    """A schedule, and what to measure it by: the least RAM, the RAM that keeps everything, the baselines.

    Raises:
        UsageError: the model has nothing to train, so there is nothing to plan.
    """
    compiled = compile_model(options, progress, plan_text)
    schedule, verdict = compiled.schedule, compiled.verdict
    if schedule is None or verdict is None:
        raise UsageError(
            f"{compiled.program.name} has no parameter to train: there is nothing to plan",
            hint="`poetgen inspect` says why; `poetgen generate` gives a project that infers",
        )
    costed = schedule.costed
    in_ram = sum(aligned(m.spec.nbytes) for m in compiled.program.members)
    least = min_ram(costed, depth=options.depth)
    facts = [_baseline(costed, name) for name in BASELINES]
    return PlanReport(
        schedule=schedule,
        verdict=verdict,
        peak_bytes=compiled.program.peak_bytes,
        static_bytes=compiled.program.peak_bytes - compiled.program.arena_bytes - in_ram,
        min_ram_bytes=least.arena_bytes + costed.static_bytes,
        min_ram_set_by=least.node,
        min_ram_exact=least.exact,
        keep_all_bytes=keep_all_bytes(costed) + costed.static_bytes,
        baselines=tuple(f for f in facts if f is not None),
    )


def least_ram(options: Options) -> tuple[int, int]:
    """The --ram below which no schedule exists, and the one above which more buys nothing, in bytes."""
    costed = priced(read_model(options), replace(options, ram_bytes=None))
    least = min_ram(costed, depth=options.depth).arena_bytes
    return least + costed.static_bytes, keep_all_bytes(costed) + costed.static_bytes


def _baseline(costed: CostedGraph, name: Strategy) -> BaselineFact | None:
    """What a strategy takes, within the budget or without one; None where the board has no store for it."""
    within = BASELINES[name](costed)
    schedule = within or BASELINES[name](replace(costed, budget=Budget()))
    if schedule is None:
        return None
    verdict = check(schedule)
    ram_bytes = verdict.peak_bytes + costed.static_bytes
    return BaselineFact(name, within is not None, ram_bytes, verdict.energy_j, verdict.time_s)


def source_tree(compiled: Compiled) -> SourceTree:
    """The C project of a compiled model, with what brings it back: options, plan and model."""
    program = compiled.program
    model_file = f"{program.name}.onnx"
    extra: dict[str, str | bytes] = {
        MARKER: json.dumps(manifest(compiled, model_file), indent=1) + "\n",
        model_file: compiled.options.model.read_bytes(),
    }
    if compiled.schedule is not None:
        extra["plan.json"] = to_json(compiled.schedule)
    return emit(program, claims(program, compiled.schedule, compiled.verdict), extra, __version__)


def generate(
    options: Options, folder: Path, progress: Progress | None = None, plan_text: str | None = None
) -> Compiled:
    """Compile a model and write its project to a folder, as a whole or not at all."""
    compiled = compile_model(options, progress, plan_text)
    source_tree(compiled).write(folder)
    return compiled


def load(folder: Path, plan_file: Path | None = None) -> Compiled:
    """A written project as it was compiled: same options, same plan; or with the plan in a file.

    Raises:
        DataError: the folder is no project of this version.
    """
    try:
        kept = json.loads((folder / MARKER).read_text())
        options = kept["options"]
        version = kept["version"]
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"{folder} is no project written by poetgen: {MARKER} {_reason(error)}",
            hint="write one: poetgen generate MODEL --board B -o DIR",
        ) from error
    if version != __version__:
        raise DataError(
            f"{folder} was written by poetgen {version}, this is {__version__}", hint="generate it again"
        )
    for name in ("train", "freeze"):
        options[name] = tuple(options[name])
    options["model"] = folder / kept["model_file"]
    plan_file = plan_file or folder / "plan.json"
    plan_text = plan_file.read_text() if plan_file.exists() else None
    return compile_model(Options(**options), plan_text=plan_text)


def manifest(compiled: Compiled, model_file: str) -> dict[str, Any]:
    """What `build`, `run` and `verify` read: names, shapes and order of what goes in and out."""
    program, options = compiled.program, compiled.options
    training = program.costed.training
    model = training.model
    kept = asdict(replace(options, model=Path(model_file)))
    kept["model"] = model_file
    return {
        "version": __version__,
        "name": program.name,
        "board": options.board,
        "batch": training.batch,
        "loss": training.loss_name,
        "lr": options.lr,
        "inputs": [
            {
                "name": i,
                "c": program.input_names[i],
                "shape": list(model.spec(i).shape),
                "dtype": model.spec(i).dtype,
            }
            for i in model.inputs
        ],
        "label": None
        if program.label is None
        else {
            "name": program.label.name,
            "shape": list(program.label.spec.shape),
            "dtype": program.label.spec.dtype,
            "classes": program.classes,
        },
        "params": [
            {
                "name": t.name,
                "kind": t.kind,
                "shape": list(t.spec.shape),
                "onnx": t.name in model.parameters,
                "home": "ram" if t.name in {m.tensor for m in program.members} else "store",
            }
            for t in training.tensors.values()
            if t.persistent
        ],
        "outputs": [{"name": model.outputs[0], "shape": list(model.spec(model.outputs[0]).shape)}],
        "arena_bytes_predicted": program.arena_bytes,
        "peak_bytes": program.peak_bytes,
        "struct_bytes": program.struct_bytes,
        "uses_store": program.uses_store,
        "sector_bytes": program.store.sector_bytes,
        "store_file": f"{program.name}.store" if program.uses_store else None,
        "model_file": model_file,
        "trains": program.train is not None,
        "traffic": _traffic(compiled),
        "gradients": _gradient_steps(program),
        "options": kept,
    }


def _traffic(compiled: Compiled) -> dict[str, int]:
    """What one training step moves to and from the store, whole sectors, its commit record too."""
    verdict = compiled.verdict
    if verdict is None:
        return {"pages_in": 0, "pages_out": 0, "bytes_in": 0, "bytes_out": 0}
    commit = compiled.program.store.sector_bytes if compiled.program.stored else 0
    return {
        "pages_in": verdict.pages_in,
        "pages_out": verdict.pages_out,
        "bytes_in": verdict.page_bytes_in,
        "bytes_out": verdict.page_bytes_out + commit,
    }


def _gradient_steps(program: Program) -> list[dict[str, Any]]:
    """Which steps of the training function make whose gradient."""
    if program.train is None:
        return []
    of: dict[str, list[str]] = {}
    for parameter, gradient in program.costed.training.gradients.items():
        of.setdefault(gradient, []).append(parameter)
    return [
        {"step": step.number, "params": of[made.tensor]}
        for step in program.train.steps
        for made in step.outputs
        if step.node is not None and made.tensor in of
    ]


def _optimizer(options: Options) -> Optimizer:
    if options.optimizer == "sgd":
        return Sgd(momentum=options.momentum)
    if options.optimizer == "adam":
        return Adam(eps=options.eps)
    raise UsageError(f"unknown optimizer {options.optimizer!r}", hint="one of: sgd, adam")


def _forward(graph: TrainingGraph, costed: CostedGraph, home: MemoryPlan) -> MemoryPlan:
    """Plan a forward function around the homes that training chose."""
    streaming = any(len(v) > 1 for v in costed.variants.values())
    graph = to_rows(graph) if streaming else graph
    forward = cost(graph, costed.board, Budget(costed.budget.ram_bytes), costed.static_bytes, streaming)
    try:
        schedule = plan_forward(forward, home.in_ram)
    except FitError:
        if not streaming:
            raise
        here = {t.name for t in graph.tensors.values() if t.persistent}  # no optimizer state in here
        homes = frozenset(home.in_ram) & here
        schedule = plan(replace(forward, homes=homes), depth=0, gap=1e-2)
    placed = place(schedule)
    check(placed.schedule)
    check_placement(placed)
    return placed


def _inference_only(model: Model, options: Options) -> Compiled:
    graph = inference_only(model)
    placed = place(plan_forward(costed_graph(graph, options), ()))
    check_placement(placed)
    return Compiled(options, None, None, lower(None, placed))


def _check_flash(program: Program) -> None:
    """Constants alone must fit the code flash; `build` sees the whole image.

    Raises:
        FitError: they do not.
    """
    need, have = code_flash_bytes(program), program.costed.board.code_bytes
    if need > have:
        raise FitError(
            f"{program.name} needs {need} B of code flash for frozen parameters and initial values, "
            f"{program.costed.board.name} has {have} B",
            hint="keep more parameters in the store with a smaller --ram, or use a larger board",
        )


def _reason(error: Exception) -> str:
    return "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
