"""Processes on a target that share a page store: each plays a script of calls of the model's interface."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np

from poetgen.boards import Board
from poetgen.build import build
from poetgen.data import random_batches
from poetgen.op import Array
from poetgen.program import Program
from poetgen.project import Project

SOURCE, CUTS = (Path(__file__).parent / f"{name}.c" for name in ("session", "cuts"))
EINVAL, ENOMEM, ERANGE, EARITH, ECHECK, ESTATE = -1, -2, -3, -5, -15, -16


class Do(IntEnum):
    """enum command of session.c."""

    INIT = 0
    SEED = 1
    TRAIN = 2
    SAVE = 3
    LOAD = 4
    COMMIT_BOTH = 5
    GET = 6
    SET = 7
    INFER = 8


Command = tuple[Do, int]
START, TWIN = (Do.INIT, 1), 1 << 30
"""TWIN: more bytes than any model has parameters."""


@dataclass(frozen=True)
class Target:
    """A project whose main.c is session.c, and the folder in which its store and files lie."""

    program: Program
    project: Project
    board: Board
    elf: Path
    folder: Path

    def play(self, *commands: Command | Do) -> list[tuple[int, int]]:
        """Run one process; what each command returned, and the model's step after it."""
        pairs = [c if isinstance(c, tuple) else (c, 0) for c in commands]
        script = struct.pack("<65I", len(pairs), *(w for p in pairs for w in p), *[0] * (64 - 2 * len(pairs)))
        (self.folder / "script.bin").write_bytes(script)
        command = [str(self.elf)]
        if self.board.emulator is not None:
            command = list(self.board.emulator.command(self.elf))
        done = subprocess.run(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout
        raw = (self.folder / "answers.bin").read_bytes()
        return [(rc, step) for rc, step in struct.iter_unpack("<iI", raw)]

    def must(self, *commands: Command | Do) -> int:
        """The same where all has to go well; the step."""
        answers = self.play(*commands)
        assert [rc for rc, _ in answers] == [0] * len(commands), answers
        return answers[-1][1]

    def fresh_store(self) -> None:
        """The image as it was generated."""
        if self.project.store is not None:
            shutil.copyfile(self.project.store, self.folder / "store.bin")

    @property
    def params(self) -> Array:
        """What the last GET wrote."""
        return np.fromfile(self.folder / "params.bin", "<u4")  # bits, so that a NaN would count

    @property
    def store(self) -> bytes:
        return (self.folder / "store.bin").read_bytes()


def defines(project: Project) -> str:
    """What session.c and cuts.c know of a model."""
    assert len(project.inputs) == 1 and project.label is not None
    data, store = random_batches(project, 12, 5), project.store
    label_bytes = 4 * int(np.prod(project.label.shape))
    defines = {
        "MODEL": project.name,
        "UPPER": project.name.upper(),
        "HEADER": f'"{project.name}.h"',
        "LR": f"{project.lr}f",
        "INPUT_BYTES": f"{data.batch_bytes - label_bytes}u",
        "LABEL_BYTES": f"{label_bytes}u",
        "OUTPUTS": str(int(np.prod(project.output.shape))),
        "SECTOR_BYTES": f"{project.sector_bytes}u",
        "SECTORS": f"{store.stat().st_size // project.sector_bytes if store else 0}u",
    }
    return "".join(f"#define {k} {v}\n" for k, v in defines.items())


def target(program: Program, project: Project, board: Board, folder: Path) -> Target:
    """Build one; CFLAGS hold for it."""
    (project.folder / "main.c").write_text(defines(project) + SOURCE.read_text())
    elf = build(project, board).elf.resolve()
    work = folder / f"work-{board.name}"
    work.mkdir()
    random_batches(project, 12, 5).write(work / "data.bin", 12)
    made = Target(program, project, board, elf, work)
    made.fresh_store()
    return made
