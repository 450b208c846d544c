"""Options that several commands share, and how their words become values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from poetgen.boards import parse_bytes, parse_time
from poetgen.pipeline import Options
from poetgen.schedule import Strategy

Command = TypeVar("Command", bound=Callable[..., Any])


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return value if isinstance(value, int) else parse_bytes(value)


class _Time(click.ParamType[float]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        return value if isinstance(value, float) else parse_time(value)


SIZE, TIME = _Size(), _Time()
FILE = click.Path(path_type=Path)

_DEFAULT = Options(Path("model.onnx"), "host")

_MODEL = click.argument("model", type=FILE)
_BOARD = "Board: a name of `poetgen boards`, or a folder."

_COMPILE = (
    click.option(
        "--ram", type=SIZE, metavar="SIZE", help="RAM for the model: bytes, or 64KiB. [default: all]"
    ),
    click.option("--deadline", type=TIME, metavar="T", help="Time a training step may take: 2s, 250ms."),
    click.option("--loss", default=_DEFAULT.loss, show_default=True, help="cross_entropy, mse, ..."),
    click.option("--optimizer", default=_DEFAULT.optimizer, show_default=True, help="sgd, adam."),
    click.option(
        "--lr",
        type=click.FloatRange(min=0, min_open=True),
        default=_DEFAULT.lr,
        show_default=True,
        help="Learning rate that `poetgen run` uses; on the device an argument.",
    ),
    click.option(
        "--momentum",
        type=click.FloatRange(min=0, max=1, max_open=True),
        default=_DEFAULT.momentum,
        show_default=True,
        help="Of SGD, as in PyTorch.",
    ),
    click.option(
        "--eps",
        type=click.FloatRange(min=0, min_open=True),
        default=_DEFAULT.eps,
        show_default=True,
        help="Of Adam.",
    ),
    click.option(
        "--batch", type=click.IntRange(min=1), help="Samples in a training step. [default: the file's]"
    ),
    click.option(
        "--train",
        multiple=True,
        default=_DEFAULT.train,
        show_default=True,
        metavar="GLOB",
        help="Parameters to train, by ONNX name; may be repeated.",
    ),
    click.option("--freeze", multiple=True, metavar="GLOB", help="Parameters not to train; may be repeated."),
    click.option(
        "--bn",
        type=click.Choice(("file", "train", "frozen")),
        default=_DEFAULT.bn,
        show_default=True,
        help="Batch norm's statistics: as the file says, moved by training, or frozen.",
    ),
    click.option("--output", metavar="NAME", help="The output that takes the loss, where there are several."),
    click.option("--classes", type=click.IntRange(min=2), help="A fresh last layer for that many classes."),
    click.option(
        "--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Of the fresh layer's weights."
    ),
)

_PLAN = (
    click.option(
        "--strategy",
        type=click.Choice(get_args(Strategy)),
        default=_DEFAULT.strategy,
        show_default=True,
        help="milp is proven optimal; the others are baselines.",
    ),
    click.option(
        "--time-limit",
        type=TIME,
        default=_DEFAULT.time_limit_s,
        metavar="T",
        help=f"Time the solver may take. [default: {_DEFAULT.time_limit_s:g}s]",
    ),
    click.option(
        "--depth",
        type=click.IntRange(min=0, max=2),
        default=_DEFAULT.depth,
        show_default=True,
        help="How many operators a recompute may chain.",
    ),
    click.option(
        "--stream",
        type=click.Choice(("auto", "on", "off")),
        default=_DEFAULT.stream,
        show_default=True,
        help="Work on tensors in the page store, a piece at a time; auto: when nothing else fits.",
    ),
    click.option(
        "--gap",
        type=click.FloatRange(min=0, max=1, max_open=True),
        default=_DEFAULT.gap,
        show_default=True,
        help="Relative gap at which the solver may stop.",
    ),
)

as_json = click.option("--json", "as_json", is_flag=True, help="The answer as one JSON document.")


def model_options(command: Command) -> Command:
    """MODEL and what decides the training graph; a board may be named."""
    return _with(command, (_MODEL, click.option("--board", metavar="B", help=_BOARD), *_COMPILE))


def plan_options(command: Command) -> Command:
    """MODEL, what decides the training graph, the board, the budget, and how to plan."""
    board = click.option("--board", required=True, metavar="B", help=_BOARD)
    return _with(command, (_MODEL, board, *_COMPILE, *_PLAN))


def _with(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def to_options(values: dict[str, Any]) -> Options:
    """The pipeline's Options of a command's values; what a command does not ask keeps its default."""
    names = {"ram": "ram_bytes", "deadline": "deadline_s", "time_limit": "time_limit_s"}
    known = {f.name for f in fields(Options)}
    chosen = {names.get(k, k): tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    kept: dict[str, Any] = {k: v for k, v in chosen.items() if k in known}
    return replace(_DEFAULT, **kept)
