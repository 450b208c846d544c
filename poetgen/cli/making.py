"""`poetgen inspect`, `plan` and `generate`: from a model to a project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from poetgen import pipeline
from poetgen.cli.options import FILE, as_json, model_options, plan_options, to_options
from poetgen.cli.show import answer, answer_json, say, solving, table, write_text
from poetgen.errors import DataError, FitError, ModelError, NoPlanError, UsageError
from poetgen.inspect import inspect_model
from poetgen.report import claims, step_facts, step_line, timeline
from poetgen.schedule.plan_json import to_json


@click.command()
@model_options
@as_json
def inspect(as_json: bool, **values: Any) -> None:
    """Show what is in a model, what can be trained, what cannot and why."""
    options = to_options(values)
    model = pipeline.read_model(options)
    found = inspect_model(model)
    if options.board is None:
        if as_json:
            answer_json(found.json())
        else:
            answer(found.text().rstrip())
            answer("name a --board to see what a training step takes on it")
        return
    try:
        costed = pipeline.priced(model, options)
    except (ModelError, UsageError, FitError) as error:
        if as_json:
            answer_json(found.json() | {"step": None, "cannot_train": error.message})
        else:
            answer(found.text().rstrip())
            answer(f"does not train: {error.message}")
        return
    least, most = pipeline.least_ram(options)
    if as_json:
        facts = step_facts(costed) | {"min_ram_bytes": least, "keep_all_bytes": most}
        answer_json(found.json() | {"step": facts, "cannot_train": None})
    else:
        answer(found.text().rstrip())
        answer(step_line(costed))
        answer(f"It needs {least} B of RAM at least; {most} B keep everything.")


@click.command()
@plan_options
@click.option("-o", "out", type=FILE, metavar="FILE", help="Keep the plan, for `generate --plan`.")
@as_json
def plan(out: Path | None, as_json: bool, **values: Any) -> None:
    """Find the schedule of a training step with the least energy; show its timeline."""
    options = to_options(values)
    try:
        with solving(options.strategy, options.time_limit_s) as progress:
            report = pipeline.plan_report(options, progress)
    except (FitError, NoPlanError) as error:
        if as_json:
            answer_json(_no_plan(options, error))
        raise
    if out is not None:
        write_text(out, to_json(report.schedule))
    if as_json:
        answer_json(report.json())
        return
    rows = timeline(report.schedule, report.verdict, report.static_bytes)
    table(("step", "what", "node or tensor", "RAM, B"), rows, right=(0, 3))
    answer()
    answer(report.text())
    answer()
    table(("strategy", "fits", "RAM", "energy", "time"), report.baseline_rows(), right=(2, 3, 4))


def _no_plan(options: pipeline.Options, error: FitError | NoPlanError) -> dict[str, Any]:
    """What plan's JSON says where there is no plan."""
    least, most = pipeline.least_ram(options)
    return {
        "status": "infeasible" if isinstance(error, FitError) else "no plan in time",
        "message": error.message,
        "min_ram_bytes": least,
        "keep_all_bytes": most,
    }


@click.command()
@plan_options
@click.option("--plan", "plan_file", type=FILE, metavar="FILE", help="A plan that `plan -o` kept.")
@click.option("-o", "out", type=FILE, required=True, metavar="DIR", help="The project's folder.")
@as_json
def generate(plan_file: Path | None, out: Path, as_json: bool, **values: Any) -> None:
    """Write the C project of a model."""
    options = to_options(values)
    plan_text = None if plan_file is None else _read_plan(plan_file)
    with solving(options.strategy, options.time_limit_s) as progress:
        compiled = pipeline.generate(options, out, progress, plan_text)
    program = compiled.program
    for note in (*program.costed.training.model.notes, *program.costed.training.notes):
        say(f"note: {note}")
    if as_json:
        facts = pipeline.manifest(compiled, f"{program.name}.onnx")
        solved = compiled.schedule.solved if compiled.schedule is not None else None
        answer_json(
            {
                "status": solved.status if solved is not None else "inference only",
                "folder": str(out),
                "ram": [{"what": row.what, "bytes": row.nbytes} for row in program.ram],
                **facts,
            }
        )
        return
    answer(f"{out}: {program.name} for {options.board}")
    for line in claims(program, compiled.schedule, compiled.verdict):
        answer(line)


def _read_plan(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"there is no plan {file}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as a plan: {error}") from error
