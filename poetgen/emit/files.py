"""Files of the runtime and of the board that a project carries."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from poetgen import resources
from poetgen.program import Program


def families_of(program: Program) -> list[str]:
    """Families of kernels and nests that the program calls."""
    return sorted({k.family for k in program.kernels})


def model_sources(program: Program) -> list[str]:
    """Sources of the model's library, in its folder."""
    name = program.name
    own = [f"{name}.c", f"{name}_infer.c", f"{name}_parameters.c"]
    if program.train is not None:
        own.append("${TRACE_DIR}" + f"{name}_train_step.c")
    pager = ["runtime/pager/pager.c"] if program.uses_store else []
    return own + [f"runtime/{f}" for f in _kernel_sources(program)] + pager


def header_of(family: str) -> str:
    """Header of a family of kernels, or of streamed nests."""
    return f"poet/{'streams' if family.startswith('stream_') else 'kernels'}/{family}.h"


def headers_of(families: Collection[str]) -> list[str]:
    """What generated code includes to call these families."""
    found = {header_of(family) for family in families}
    if any(family.startswith("stream_") for family in families):
        found.add("poet/streams/operand.h")
    return sorted(found)


def _kernel_sources(program: Program) -> list[str]:
    """Sources of the kernels that are called, and of what these include headers of."""
    runtime = resources.runtime()
    todo = set(headers_of(families_of(program)))
    seen: set[str] = set()
    found = {"kernels/arith.c"}
    while todo:
        header = todo.pop()
        seen.add(header)
        source = header.removeprefix("poet/").removesuffix(".h") + ".c"
        source = {"math.c": "kernels/math.c"}.get(source, source)
        texts = [(runtime / "include" / header).read_bytes()]
        if source.partition("/")[0] in ("kernels", "streams") and (runtime / source).exists():
            found.add(source)
            texts.append((runtime / source).read_bytes())
        todo |= set(_included(runtime / "include", texts, ())) - seen
    return sorted(found)


def main_sources(program: Program, on_host: bool) -> list[str]:
    """Sources that the example main needs beside it."""
    store = ["runtime/blockdev/file.c"] if program.uses_store else []
    if on_host:
        return ["runtime/platform/posix.c", *store]
    return ["runtime/platform/semihost.c", "board/startup.c", *store]


def runtime_files(program: Program) -> dict[str, str | bytes]:
    """Every file of the runtime and of the board, by its path in the project."""
    runtime, board = resources.runtime(), program.costed.board
    sources = {
        *model_sources(program),
        *main_sources(program, board.is_host),
        *main_sources(program, on_host=True),
    }
    wanted = sorted(f for f in sources if f.startswith("runtime/"))
    files: dict[str, str | bytes] = {f: (runtime / f.removeprefix("runtime/")).read_bytes() for f in wanted}
    for header in _included(runtime / "include", files.values(), headers_of(families_of(program))):
        files[f"runtime/include/{header}"] = (runtime / "include" / header).read_bytes()
    if program.uses_store:
        files["runtime/blockdev/file.h"] = (runtime / "blockdev" / "file.h").read_bytes()
    if not board.is_host:
        for source in _board_files(board.folder):
            files[f"board/{source.name}"] = source.read_bytes()
    return files


def _included(folder: Path, texts: Iterable[str | bytes], headers: Iterable[str]) -> list[str]:
    """Headers of the runtime that these sources and headers include, and what those include."""
    pattern = re.compile(rb'^#include "(poet/[a-z0-9_/]+\.h)"', re.MULTILINE)
    todo = {*headers, "poet/blockdev.h"}
    for text in texts:
        todo |= {m.decode() for m in pattern.findall(text if isinstance(text, bytes) else text.encode())}
    found: set[str] = set()
    while todo:
        header = todo.pop()
        found.add(header)
        text = (folder / header).read_bytes()
        near = re.findall(rb'^#include "([a-z0-9_]+\.h)"', text, re.MULTILINE)
        more = {m.decode() for m in pattern.findall(text)} | {
            f"{Path(header).parent}/{n.decode()}" for n in near
        }
        todo |= more - found
    return sorted(found)


def _board_files(folder: Path) -> Iterable[Path]:
    """The board's own files over the common ones."""
    found: dict[str, Path] = {}
    for place in (resources.boards() / "common", folder):
        for path in sorted(place.glob("*")) if place.is_dir() else ():
            if path.suffix in (".c", ".h", ".ld", ".S"):
                found[path.name] = path
    return found.values()
