"""Write a program as a C project. In: Program. Out: SourceTree, {path: text or bytes}.

Templates only print; what they print is put together here, as text. Nothing here knows an op.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from poetgen import resources
from poetgen.emit.context import context_of
from poetgen.emit.files import runtime_files
from poetgen.emit.store import store_image
from poetgen.emit.text import WIDTH, c_float, columns, comment
from poetgen.errors import UsageError
from poetgen.program import Program

MARKER = "poetgen.json"
"""The file that says that a folder is ours to replace."""


@dataclass(frozen=True)
class SourceTree:
    """Files by path, ``/`` between folders."""

    files: Mapping[str, str | bytes]

    def write(self, folder: Path) -> None:
        """Replace a folder as a whole, or leave it as it was.

        Raises:
            UsageError: the folder holds something that poetgen did not write, or cannot be written.
        """
        if folder.exists() and (
            not folder.is_dir() or (any(folder.iterdir()) and not (folder / MARKER).exists())
        ):
            raise UsageError(
                f"{folder} exists and was not written by poetgen", hint="choose another -o, or remove it"
            )
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        except OSError as error:
            raise UsageError(f"cannot write {folder}: {error.strerror}", hint="choose another -o") from error
        try:
            fresh.chmod(0o755)
            for path, content in self.files.items():
                target = fresh / path
                target.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(content, bytes):
                    target.write_bytes(content)
                else:
                    target.write_text(content, encoding="utf-8", newline="\n")
            if folder.exists():
                old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
                os.replace(folder, old / folder.name)
                os.replace(fresh, folder)
                shutil.rmtree(old)
            else:
                os.replace(fresh, folder)
        except OSError as error:
            raise UsageError(f"cannot write {folder}: {error.strerror}", hint="is the disk full?") from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def emit(
    program: Program,
    claims: Sequence[str] = (),
    extra: Mapping[str, str | bytes] | None = None,
    version: str = "",
) -> SourceTree:
    """The whole project; ``claims`` are lines for its header and README, ``extra`` files beside it."""
    context = context_of(program, claims, version)
    name = program.name
    files: dict[str, str | bytes] = {
        f"{name}.h": render("model.h.j2", context),
        f"{name}_internal.h": render("internal.h.j2", context),
        f"{name}.c": render("model.c.j2", context),
        f"{name}_parameters.c": render("parameters.c.j2", context),
        f"{name}_infer.c": render("infer.c.j2", context),
        "main.c": render("main.c.j2", context),
        "CMakeLists.txt": render("CMakeLists.txt.j2", context),
        "README.md": render("README.md.j2", context),
    }
    if program.train is not None:
        files[f"{name}_train_step.c"] = render("train_step.c.j2", context)
        traced = context_of(program, claims, version, trace=True)
        files[f"trace/{name}_train_step.c"] = render("train_step.c.j2", traced)
        files["trace/main.c"] = render("main.c.j2", traced)
    if program.uses_store:
        files[f"{name}.store"] = store_image(program)
    files |= runtime_files(program)
    files |= extra or {}
    return SourceTree(files)


def render(template: str, context: Mapping[str, Any]) -> str:
    loader = jinja2.FileSystemLoader(resources.templates())
    environment = jinja2.Environment(
        loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    environment.filters["comment"] = comment
    environment.filters["columns"] = columns
    text = environment.get_template(template).render(context)
    lines = [line.rstrip() for line in text.splitlines()]
    out: list[str] = []
    for line in lines:  # at most one blank line in a row
        if line or (out and out[-1]):
            out.append(line)
    return "\n".join(out).strip("\n") + "\n"


__all__ = ["MARKER", "WIDTH", "SourceTree", "c_float", "columns", "comment", "emit", "store_image"]
