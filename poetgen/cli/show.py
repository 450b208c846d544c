"""How answers and progress look: tables on a terminal, plain columns in a pipe."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich import progress as bars
from rich.console import Console
from rich.table import Table

from poetgen.build import Progress
from poetgen.errors import UsageError
from poetgen.report import si
from poetgen.schedule.milp import Improvement

_PLAIN_EVERY_S = 5.0


def answer(text: str = "") -> None:
    """A line of the answer."""
    click.echo(text)


def answer_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """The answer for a machine: one JSON document."""
    click.echo(json.dumps(value, indent=1, allow_nan=False))


def say(text: str) -> None:
    """Progress, and what a person should know."""
    click.echo(text, err=True)


def complain(message: str, hint: str = "") -> None:
    """An error: the first line says what, the others where, why and what to try."""
    first, *rest = message.splitlines() or [""]
    say(f"error: {first}")
    for line in (*rest, *hint.splitlines()):
        say(f"  {line.strip()}")


def table(header: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[int] = ()) -> None:
    """Rows under a header; the columns in ``right`` hold numbers."""
    texts = [[str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        pretty = Table(box=None, pad_edge=False, header_style="bold")
        for n, name in enumerate(header):
            pretty.add_column(name, justify="right" if n in right else "left", overflow="fold")
        for row in texts:
            pretty.add_row(*(cell.replace("[", r"\[") for cell in row))
        Console().print(pretty)
        return
    widths = [max(len(line[n]) for line in ([*header], *texts)) for n in range(len(header))]
    for line in ([*header], *texts):
        cells = [
            cell.rjust(w) if n in right else cell.ljust(w)
            for n, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        answer("  ".join(cells).rstrip())


def write_text(file: Path, text: str) -> None:
    """Write a file whole."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from error


@contextmanager
def step_progress(what: str, total: int) -> Iterator[Progress]:
    """A bar on a terminal, else a line on stderr now and then."""
    if sys.stderr.isatty():
        columns = (
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TimeRemainingColumn(),
        )
        with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)

            def move(done: int, loss: float) -> None:
                bar.update(task, completed=done, description=f"{what}, loss {loss:.4g}")

            yield move
        return
    last = time.monotonic()

    def tell(done: int, loss: float) -> None:
        nonlocal last
        if time.monotonic() - last >= _PLAIN_EVERY_S:
            last = time.monotonic()
            say(f"{what}: step {done} of {total}, loss {loss:.6g}")

    yield tell


@contextmanager
def solving(strategy: str, time_limit_s: float) -> Iterator[Callable[[Improvement], None] | None]:
    """Show how far the solver is, where somebody looks."""
    if strategy != "milp" or not sys.stderr.isatty():
        yield None
        return
    with Console(stderr=True).status(f"solving, for {time_limit_s:g} s at most") as status:

        def tell(news: Improvement) -> None:
            best = "no plan yet" if news.energy_j is None else si(news.energy_j, "J")
            bound = "" if news.bound_j is None else f", at least {si(news.bound_j, 'J')}"
            status.update(f"solving, recompute depth {news.depth}, {news.seconds:.0f} s: {best}{bound}")

        yield tell
