"""A written project as its poetgen.json tells: names, shapes and order of what goes in and out.

In: a folder that `generate` wrote. Out: Project. Nothing is imported or solved again for it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poetgen.errors import UsageError

MANIFEST = "poetgen.json"


@dataclass(frozen=True)
class Port:
    """One batch of what goes in or out: ``Port("x", (8, 6, 100), "f32")``; the first axis is the batch."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Parameter:
    """A tensor that training changes, in the order in which the target writes them."""

    name: str
    kind: str  # param, statistic or state
    shape: tuple[int, ...]
    in_onnx: bool

    @property
    def size(self) -> int:
        """Number of float32 elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Traffic:
    """What the plan moves between RAM and the page store in one training step."""

    pages_in: int = 0
    pages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass(frozen=True)
class GradientStep:
    """Step ``number`` of the schedule makes the gradient of these parameters."""

    number: int
    parameters: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Project:
    """A folder with the C of one model; ``open_project(Path("build/net"))`` reads one."""

    folder: Path
    name: str
    board: str
    batch: int
    inputs: tuple[Port, ...]
    label: Port | None
    classes: int | None
    output: Port
    parameters: tuple[Parameter, ...]
    lr: float
    trains: bool
    arena_bytes: int
    peak_bytes: int
    sector_bytes: int
    store: Path | None
    model: Path
    traffic: Traffic
    gradient_steps: tuple[GradientStep, ...]


def open_project(folder: Path) -> Project:
    """Read the folder's poetgen.json.

    Raises:
        UsageError: there is none, or it is not whole.
    """
    file = folder / MANIFEST
    try:
        return _project(folder, json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        why = f"there is no {MANIFEST} in it" if folder.is_dir() else "there is no such folder"
        raise UsageError(
            f"{folder} is not a project of poetgen's: {why}",
            hint="write one: poetgen generate MODEL --board B -o DIR",
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"{file} cannot be read ({why})", hint="generate the project again") from error


def _project(folder: Path, m: Mapping[str, Any]) -> Project:
    label = m["label"]
    (output, *_) = m["outputs"]
    return Project(
        folder=folder,
        name=m["name"],
        board=m["board"],
        batch=m["batch"],
        inputs=tuple(Port(i["name"], tuple(i["shape"]), i["dtype"]) for i in m["inputs"]),
        label=Port("y", tuple(label["shape"]), label["dtype"]) if label else None,
        classes=label["classes"] if label else None,
        output=Port(output["name"], tuple(output["shape"]), "f32"),
        parameters=tuple(Parameter(p["name"], p["kind"], tuple(p["shape"]), p["onnx"]) for p in m["params"]),
        lr=m["lr"],
        trains=m["trains"],
        arena_bytes=m["arena_bytes_predicted"],
        peak_bytes=m["peak_bytes"],
        sector_bytes=m["sector_bytes"],
        store=folder / m["store_file"] if m["store_file"] else None,
        model=folder / m["model_file"],
        traffic=Traffic(**m["traffic"]),
        gradient_steps=tuple(GradientStep(g["step"], tuple(g["params"])) for g in m["gradients"]),
    )
