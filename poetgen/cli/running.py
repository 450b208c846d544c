"""`poetgen build`, `run` and `verify`: what is done with a written project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from poetgen import pipeline
from poetgen.boards import board
from poetgen.build import build as build_project
from poetgen.build import where_to_run
from poetgen.cli.options import FILE, TIME, as_json
from poetgen.cli.show import answer, answer_json, say, step_progress, table
from poetgen.data import random_batches, read_batches, write_npz
from poetgen.errors import TargetError, UsageError
from poetgen.onnx_import import export_onnx
from poetgen.project import open_project
from poetgen.report import kib, si
from poetgen.run import Job, RunResult
from poetgen.run import run as run_project
from poetgen.verify import verify as verify_project

_SHOWN = 20
"""Losses that are printed; --json has all."""

_on = click.option(
    "--on", type=click.Choice(("host", "qemu")), help="Where: this computer, or its board under QEMU."
)
_timeout = click.option("--timeout", type=TIME, default=3600.0, metavar="T", help="[default: 1h]")


@click.command()
@click.argument("folder", metavar="DIR", type=FILE)
@_on
@click.option("--optimize", metavar="FLAG", default="", help="-O2, -Os, -O3. [default: -O2]")
@click.option("--flags", default="", help="More flags for compiler and linker: '-fsanitize=address'.")
@as_json
def build(folder: Path, on: str | None, optimize: str, flags: str, as_json: bool) -> None:
    """Compile a project for its board; the sizes of its sections."""
    project = open_project(folder)
    target = board(project.board) if on != "host" else where_to_run(project, on)
    say(f"building {folder} for {target.name}")
    built = build_project(project, target, extra_flags=flags, optimize=optimize)
    sizes = built.sizes
    if as_json:
        answer_json(
            {
                "status": "done",
                "elf": str(built.elf),
                "board": target.name,
                "text_bytes": sizes.text,
                "data_bytes": sizes.data,
                "bss_bytes": sizes.bss,
            }
        )
        return
    answer(str(built.elf))
    flash = kib(target.code_bytes) if not target.is_host else "-"
    ram = kib(target.ram_bytes) if not target.is_host else "-"
    table(
        ("section", "bytes", "of"),
        [
            ("text", sizes.text, flash),
            ("data", sizes.data, ram),
            ("bss", sizes.bss, ram),
        ],
        right=(1, 2),
    )


@click.command()
@click.argument("folder", metavar="DIR", type=FILE)
@_on
@click.option(
    "--data", required=True, type=FILE, metavar="FILE.npz", help="Inputs by ONNX name, labels as y."
)
@click.option("--steps", type=click.IntRange(min=0), help="Training steps. [default: once through the data]")
@click.option("--eval", "evaluation", type=FILE, metavar="FILE.npz", help="Evaluate on it before and after.")
@click.option("--shuffle", type=click.IntRange(min=0), metavar="SEED", help="Permute the rows in each epoch.")
@click.option("--lr", type=click.FloatRange(min=0, min_open=True), help="[default: as generated]")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Of random ops, such as Dropout.")
@click.option("--dump", type=FILE, metavar="PARAMS.npz", help="Write the trained parameters, by ONNX name.")
@click.option("--dump-gradients", is_flag=True, help="Add the first step's gradients to --dump: grad/NAME.")
@click.option("--export", type=FILE, metavar="MODEL.onnx", help="Write the model with trained parameters.")
@click.option("--no-measure", is_flag=True, help="Leave out the two short runs that measure the arena.")
@_timeout
@as_json
def run(folder: Path, as_json: bool, **values: Any) -> None:
    """Train a project on data files, on this computer or under QEMU."""
    if values["dump_gradients"] and values["dump"] is None:
        raise click.UsageError("--dump-gradients goes with --dump PARAMS.npz")
    project = open_project(folder)
    target = where_to_run(project, values["on"])
    data = read_batches(values["data"], project)
    steps = data.count if values["steps"] is None else values["steps"]
    job = Job(
        data=data,
        steps=steps,
        lr=values["lr"],
        eval_data=None if values["evaluation"] is None else read_batches(values["evaluation"], project),
        shuffle=values["shuffle"],
        seed=values["seed"],
        measure=not values["no_measure"],
        gradients=values["dump_gradients"],
        timeout_s=values["timeout"],
    )
    say(f"running {project.name} on {target.name}: {steps} steps of {project.batch} samples")
    with step_progress(f"{project.name} on {target.name}", steps) as progress:
        result = run_project(project, target, job, progress)
    if result.status == "done":
        if values["dump"] is not None:
            write_npz(values["dump"], result.arrays())
        if values["export"] is not None:
            export_onnx(project.model, result.trained, values["export"])
    if as_json:
        answer_json(result.json())
    else:
        _show_run(result)
    if result.status == "nonfinite":
        raise TargetError(
            f"the loss of training step {result.outcome.steps} is not finite: training stopped there",
            hint="try a smaller --lr, and look at the data: are the inputs normalised?",
        )


def _show_run(result: RunResult) -> None:
    facts = result.json()
    losses = facts["losses"]
    stride = max(1, -(-len(losses) // _SHOWN))
    shown = sorted({*range(0, len(losses), stride), len(losses) - 1} - {-1})
    if shown:
        table(("step", "loss"), [(k, _loss(losses[k])) for k in shown], right=(0, 1))
        answer()
    rows: list[tuple[str, str]] = []
    for what, key in (("accuracy", "accuracy"), ("loss on --eval", "eval_loss")):
        if key in facts:
            rows.append((what, f"{_loss(facts[f'{key}_before'])} before, {_loss(facts[key])} after"))
    measured = facts["arena_bytes_measured"]
    rows.append(("arena", f"{facts['arena_bytes_predicted']} B predicted" + _measured(measured)))
    if facts["stack_bytes_measured"] is not None:
        rows.append(("stack", f"{facts['stack_bytes_measured']} B measured"))
    rows.append(("RAM of the plan", f"{facts['peak_bytes']} B"))
    for way in ("in", "out"):
        pages, counted = facts[f"pages_{way}"], facts[f"page_bytes_{way}"]
        if pages or counted:
            text = f"{pages} pages, {facts[f'page_bytes_{way}_predicted']} B predicted"
            rows.append((f"paged {way}", text + ("" if counted is None else f", {counted} B counted")))
    sizes = result.built.sizes
    rows.append(("program", f"text {sizes.text} B, data {sizes.data} B, bss {sizes.bss} B"))
    if facts["params_sha256"]:
        rows.append(("parameters", f"sha256 {facts['params_sha256']}"))
    for what, text in rows:
        answer(f"{what:<16} {text}")


def _loss(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.6g}"


def _measured(nbytes: int | None) -> str:
    return "" if nbytes is None else f", {nbytes} B measured"


@click.command()
@click.argument("folder", metavar="DIR|plan.json", type=FILE)
@_on
@click.option("--data", type=FILE, metavar="FILE.npz", help="[default: random numbers]")
@click.option("--steps", type=click.IntRange(min=1), default=3, show_default=True, help="Training steps.")
@click.option("--lr", type=click.FloatRange(min=0, min_open=True), help="[default: as generated]")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Of random data and ops.")
@_timeout
@as_json
def verify(folder: Path, as_json: bool, **values: Any) -> None:
    """Compare the C with the interpreter, output by output; name the first difference.

    Of a plan.json in a project's folder: only judge the plan, by replaying it.
    """
    if folder.is_file():
        _judge(folder, as_json)
        return
    project = open_project(folder)
    target = where_to_run(project, values["on"])
    steps = values["steps"]
    compiled = pipeline.load(folder)
    if values["data"] is None:
        data = random_batches(project, steps, values["seed"])
    else:
        data = read_batches(values["data"], project)
    job = Job(data=data, steps=steps, lr=values["lr"], seed=values["seed"], timeout_s=values["timeout"])
    say(f"comparing {steps} training steps of {project.name} on {target.name} with the interpreter")
    with step_progress(f"{project.name} on {target.name}", steps) as progress:
        found = verify_project(compiled.program, project, target, job, progress)
    if as_json:
        answer_json(
            {
                "status": "different" if found.differences else "equal",
                "on": "host" if target.is_host else "qemu",
                "training_steps": found.training_steps,
                "steps": found.steps,
                "values": found.values,
                "nonfinite": found.nonfinite,
                "first_difference": found.differences[0].json() if found.differences else None,
            }
        )
    if found.differences:
        raise found.differences[0].error()
    if not as_json:
        answer(
            f"equal: {found.training_steps} training steps of {found.steps} steps, {found.values} values, "
            f"bit for bit, on {target.name}"
        )
        if found.nonfinite:
            answer("both stopped at a loss that is not finite")


def _judge(plan_file: Path, as_json: bool) -> None:
    """Replay a plan; the judge knows nothing of how it was found."""
    compiled = pipeline.load(plan_file.parent, plan_file)
    verdict = compiled.verdict
    if verdict is None:
        raise UsageError(f"{plan_file.parent} only infers: it has no plan to judge")
    if as_json:
        answer_json(
            {
                "status": "legal",
                "energy_j": verdict.energy_j,
                "time_s": verdict.time_s,
                "peak_bytes": compiled.program.peak_bytes,
                "pages_in": verdict.pages_in,
                "pages_out": verdict.pages_out,
                "recomputes": verdict.recomputes,
            }
        )
        return
    answer(
        f"legal: {len(verdict.bytes_at)} actions, {si(verdict.energy_j, 'J')}, {si(verdict.time_s, 's')}, "
        f"{compiled.program.peak_bytes} B of RAM, {verdict.pages_in} pages in, {verdict.pages_out} out, "
        f"{verdict.recomputes} recomputes"
    )
