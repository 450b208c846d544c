"""Write a program as a C project. In: Program. Out: SourceTree, {path: text or bytes}.

Templates only print; what they print is put together here, as text. Nothing here knows an op.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import tempfile
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from poetgen import resources
from poetgen.errors import UsageError
from poetgen.interpreter import check_word
from poetgen.memory import Page
from poetgen.op import C_TYPE, Array, Spec
from poetgen.program import Constant, Function, Member, Pointer, Program, Step

WIDTH = 110
MARKER = "poetgen.json"
"""The file that says that a folder is ours to replace."""
_PHASES = {
    "forward": "Forward",
    "loss": "Loss",
    "backward": "Backward: each parameter is updated after the last op that reads it.",
}


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
    context = _context(program, claims, version)
    name = program.name
    files: dict[str, str | bytes] = {
        f"{name}.h": _render("model.h.j2", context),
        f"{name}_internal.h": _render("internal.h.j2", context),
        f"{name}.c": _render("model.c.j2", context),
        f"{name}_parameters.c": _render("parameters.c.j2", context),
        f"{name}_infer.c": _render("infer.c.j2", context),
        "main.c": _render("main.c.j2", context),
        "CMakeLists.txt": _render("CMakeLists.txt.j2", context),
        "README.md": _render("README.md.j2", context),
    }
    if program.train is not None:
        files[f"{name}_train_step.c"] = _render("train_step.c.j2", context)
        traced = _context(program, claims, version, trace=True)
        files[f"trace/{name}_train_step.c"] = _render("train_step.c.j2", traced)
        files["trace/main.c"] = _render("main.c.j2", traced)
    if program.uses_store:
        files[f"{name}.store"] = store_image(program)
    files |= _runtime_files(program)
    files |= extra or {}
    return SourceTree(files)


def store_image(program: Program) -> bytes:
    """The store as it is before the first step (docs/store-format.md): superblocks, slot 0."""
    layout = program.store
    size = layout.sector_bytes
    image = bytearray(layout.sectors * size)
    training = program.costed.training
    for page in layout.pages.values():
        if page.region != "slot":
            continue
        data = np.ascontiguousarray(training.initial[page.tensor]).tobytes()
        data += bytes(page.nbytes - len(data))
        at = page.sector * size
        image[at : at + len(data)] = data
        end = at + (len(data) // size + 1) * size
        image[end - 4 : end] = struct.pack("<I", check_word(np.frombuffer(data, np.uint8)))
    for copy in range(2):
        block = bytearray(256)
        geometry = (layout.sector_bytes, layout.erase_sectors, layout.slot_sectors, layout.sectors)
        struct.pack_into("<8sIIIIIIII", block, 0, b"poetgen\0", 1, copy, 0, *geometry, 0)
        block[64:96] = bytes.fromhex(training.model.sha256)
        block[96:128] = bytes.fromhex(program.layout_sha256)
        struct.pack_into("<I", block, 252, check_word(np.frombuffer(bytes(block[:252]), np.uint8)))
        at = copy * layout.erase_sectors * size
        image[at : at + 256] = block
    return bytes(image)


def _render(template: str, context: Mapping[str, Any]) -> str:
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


def comment(text: str) -> str:
    """A C comment of running text, wrapped."""
    words = " ".join(text.split())
    lines = textwrap.wrap(words, WIDTH - 6, break_long_words=False, break_on_hyphens=False)
    return "/* " + "\n * ".join(lines) + " */"


def columns(text: str, width: int = WIDTH) -> str:
    """Lines of code with their comments below each other; a comment that is too long stands above."""
    rows = [line.partition("/*") for line in text.strip("\n").split("\n")]
    column = max((len(code.rstrip()) for code, mark, tail in rows if mark), default=0)
    longest = max((len(mark) + len(tail) for _, mark, tail in rows if mark), default=0)
    column = max(min(column, width - longest - 1), 0)
    lines: list[str] = []
    for code, mark, tail in rows:
        code = code.rstrip()
        beside = f"{code:<{column}} {mark}{tail}" if mark else code
        if len(beside) > width:
            beside = f"{code} {mark}{tail}"
        if len(beside) > width:
            margin = code[: len(code) - len(code.lstrip())]
            lines.append(f"{margin}{mark}{tail}")
            beside = code
        lines.append(beside)
    return "\n".join(lines)


def _signature(head: str, arguments: Sequence[str]) -> str:
    """A function's first lines, without ``;`` or ``{``."""
    return "\n".join(_wrap_list(head + "(", arguments, ")", " " * (len(head) + 1), WIDTH - 1))


def _wrap_list(head: str, items: Sequence[str], tail: str, margin: str, width: int) -> list[str]:
    """``head item, item, ... tail`` in lines that break only between items."""
    lines = [head]
    for k, item in enumerate(items):
        text = item + (tail if k == len(items) - 1 else ",")
        space = "" if lines[-1] in (head, margin) and lines[-1].endswith(("(", " ")) else " "
        if len(lines[-1]) + len(space) + len(text) > width and lines[-1] != margin and k:
            lines.append(margin)
            space = ""
        lines[-1] += space + text
    return lines


def _signatures(program: Program) -> dict[str, str]:
    """The interface, function by function."""
    name = program.name
    m, batch = f"struct {name} *m", f"const struct {name}_inputs *in"
    y = f"const {name}_label_t *y"
    arguments = {
        "init": (m, "void *arena", "size_t arena_bytes", "const struct poet_blockdev *store"),
        "train_step": (m, batch, y, "float lr", "float *loss"),
        "evaluate": (m, batch, y, "struct poet_metrics *sum"),
        "infer": (m, batch, "float *out"),
        "save": (m,),
        "load": (m,),
        "get_params": (m, "poet_sink sink", "void *context"),
        "set_params": (m, "poet_source source", "void *context"),
        "commit": (m, "uint32_t step", "uint32_t parts"),
        "restore": (m,),
    }
    return {f: _signature(f"int {name}_{f}", a) for f, a in arguments.items()}


def _context(program: Program, claims: Sequence[str], version: str, trace: bool = False) -> dict[str, Any]:
    training = program.costed.training
    model, board = training.model, program.costed.board
    home = program.train or program.infer
    output = model.spec(model.outputs[0])
    persistent = program.persistent
    in_ram = {m.tensor: m for m in program.members}
    initial = [
        _array(f"{program.name}_initial_{m.c}", training.initial[m.tensor], f"{m.tensor}: initial value")
        for m in program.members
        if np.any(training.initial[m.tensor])
    ]
    has_initial = {m.tensor for m in program.members if np.any(training.initial[m.tensor])}
    boundary = _boundary(program, home)
    buffers = [
        {
            "c": c,
            "ctype": C_TYPE[model.spec(i).dtype],
            "size": model.spec(i).size,
            "bytes": model.spec(i).nbytes,
        }
        for i, c in ((i, f"input_{program.input_names[i]}") for i in model.inputs)
    ]
    if program.label is not None:
        spec = program.label.spec
        buffers.append({"c": "label", "ctype": C_TYPE[spec.dtype], "size": spec.size, "bytes": spec.nbytes})
    forward = [f for f in (program.infer, program.evaluate) if f is not None]
    what = "train" if program.train else "run"
    return {
        "name": program.name,
        "NAME": program.name.upper(),
        "version": version,
        "what": what,
        "about": f"{what} {program.name} on {board.about}.",
        "model_file": _comment_safe(Path(model.path).name or model.name),
        "model_sha256": model.sha256,
        "board": board,
        "claims": [_comment_safe(c) for c in claims],
        "uses_store": program.uses_store,
        "needs_store": program.needs_store,
        "saves": program.uses_store and bool(persistent),
        "signature": _signatures(program),
        "step_commits": " | ".join(_step_commits(program)) or "0",
        "batch": training.batch,
        "classes": program.classes,
        "output_size": output.size,
        "output_shape": _shape(output),
        "param_count": sum(t.spec.size for t in persistent),
        "arena_bytes": program.arena_bytes,
        "arena_symbol_bytes": max(program.arena_bytes, 8),
        "inputs": [
            {
                "ctype": C_TYPE[model.spec(i).dtype],
                "c": program.input_names[i],
                "shape": f"{_comment_safe(i)} {_shape(model.spec(i))}",
            }
            for i in model.inputs
        ],
        "label": None
        if program.label is None
        else {
            "ctype": C_TYPE[program.label.spec.dtype],
            "note": f"{_shape(program.label.spec)}"
            + (f": class 0 to {program.classes - 1}" if program.classes else ""),
        },
        "label_check": bool(program.classes and program.label),
        "labels": program.label.spec.size if program.label else 0,
        "members": [
            {
                "ctype": C_TYPE[m.spec.dtype],
                "c": m.c,
                "size": m.spec.size,
                "note": f"{_comment_safe(m.tensor)} {_shape(m.spec)}",
                "initial": f"{program.name}_initial_{m.c}" if m.tensor in has_initial else "",
            }
            for m in program.members
        ],
        "frozen": [
            _array(m.c, _frozen_value(program, m), f"{m.tensor} {_shape(m.spec)}") for m in program.frozen
        ],
        "initial": initial,
        "about_parameters": "frozen parameters and initial values.",
        "stored": [t.name for t in program.stored],
        "trains": program.train is not None,
        "nonfinite_note": _nonfinite_note(program),
        "in_ram": bool(program.members),
        "persistent": [f"{_comment_safe(t.name)} {_shape(t.spec)}" for t in persistent],
        "stream": [
            {
                "c": in_ram[t.name].c if t.name in in_ram else "",
                "page": program.page_names.get(t.name, ""),
            }
            for t in persistent
        ],
        "boundary": boundary,
        "state_pages": [_page(c, program.store.pages[t]) for t, c in program.page_names.items()],
        "struct_bytes": program.struct_bytes,
        "sector_bytes": program.store.sector_bytes,
        "erase_sectors": program.store.erase_sectors,
        "slot_sectors": program.store.slot_sectors,
        "store_sectors": program.store.sectors,
        "model_hash": _hash_bytes(model.sha256),
        "layout_hash": _hash_bytes(program.layout_sha256),
        "train_file": _file_of([program.train] if program.train else [], trace),
        "train": _function(program.train, trace) if program.train else None,
        "forward_file": _file_of(forward, False),
        "infer": _function(program.infer, False),
        "evaluate": _function(program.evaluate, False) if program.evaluate else None,
        "trace": trace,
        "lr": "0.01f",
        "buffers": buffers,
        "batch_bytes": sum(b["bytes"] for b in buffers),
        "input_initialisers": ", ".join(
            f".{program.input_names[i]} = input_{program.input_names[i]}" for i in model.inputs
        ),
        "cross": not board.is_host,
        "compiler": board.compiler,
        "flags": board.flags,
        "optimize": "-O2",
        "model_sources": _model_sources(program),
        "main_sources": _main_sources(program, board.is_host),
        "host_sources": _main_sources(program, on_host=True),
        "ram": program.ram,
        "peak_bytes": program.peak_bytes,
        "reserved_bytes": board.reserved_bytes,
    }


def _step_commits(program: Program) -> list[str]:
    """Parts of the state that a training step commits; all of it where none has its home in RAM."""
    if not program.stored:
        return []
    return ["POET_PART_STORE"] if program.members else ["POET_PART_STORE", "POET_PART_RAM"]


def _frozen_value(program: Program, member: Member) -> Array:
    for function in program.functions:
        initial = function.plan.schedule.costed.training.initial
        if member.tensor in initial:
            return initial[member.tensor]
    raise AssertionError(f"{member.tensor} has no value")


def _nonfinite_note(program: Program) -> str:
    if program.train is None:
        return ""
    steps = program.train.steps
    loss = next(s.number for s in steps if s.phase == "loss")
    early = [s for s in steps[:loss] if s.verb == "update"]
    return "nothing was changed" if not early else f"{len(early)} updates came before it"


def _boundary(program: Program, home: Function) -> list[dict[str, Any]]:
    """Persistent tensors that stay in the arena between steps, though they leave it during one."""
    training = home.plan.schedule.costed.training
    resident = set(home.plan.schedule.resident)
    return [
        {
            "tensor": r.tensor,
            "ctype": C_TYPE[training.tensors[r.tensor].spec.dtype],
            "offset": r.offset,
            "page": program.page_names[r.tensor],
        }
        for r in home.plan.residencies
        if r.born == 0 and r.tensor in resident
    ]


def _hash_bytes(sha256: str) -> tuple[str, str]:
    """Two lines of 16 bytes."""
    values = [f"0x{sha256[i : i + 2]}" for i in range(0, 64, 2)]
    return ", ".join(values[:16]), ", ".join(values[16:])


def _shape(spec: Spec) -> str:
    return "[" + ", ".join(map(str, spec.shape)) + "]"


def _comment_safe(text: str) -> str:
    """Text that cannot end a C comment or a line."""
    clean = "".join(ch if ch.isprintable() else "?" for ch in text)
    return clean.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/")


def _array(c: str, array: Array, note: str) -> dict[str, Any]:
    flat = array.reshape(-1)
    if flat.dtype == np.float32:
        items: Iterator[str] = (c_float(v) for v in flat)
        ctype = "float"
    else:
        items = (str(int(v)) for v in flat)
        ctype = "int32_t"
    values = textwrap.fill(
        ", ".join(items),
        WIDTH,
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return {"c": c, "ctype": ctype, "size": flat.size, "values": values, "note": _comment_safe(note)}


def c_float(value: np.float32) -> str:
    """The shortest decimal that reads back as the same float32."""
    text = np.format_float_scientific(value, trim="0", unique=True, exp_digits=1)
    plain = np.format_float_positional(value, trim="0", unique=True)
    return (plain if len(plain) <= len(text) else text) + "f"


# Functions


def _page(c: str, page: Page) -> dict[str, Any]:
    """A page's declaration; a streamed one has no check word."""
    streamed = ", .streamed = 1" if page.streamed else ""
    fields = f".sector = {page.sector}, .bytes = {page.nbytes}{streamed}"
    return {"declaration": f"static const struct poet_page {c} = {{ {fields} }};"}


def _file_of(functions: Sequence[Function], trace: bool) -> dict[str, Any]:
    """What a C file needs before its functions."""
    made = [_function(f, trace) for f in functions]
    constants: dict[str, Constant] = {c.c: c for f in functions for c in f.constants}
    pages = dict.fromkeys(p for f in functions for p in f.pages)
    return {
        "headers": sorted({h for f in made for h in f["headers"]}),
        "constants": [{"lines": _fields(c)} for c in constants.values()],
        "pages": [_page(c, page) for c, page in pages],
        "uses_string": any(f["uses_string"] for f in made),
    }


def _function(function: Function, trace: bool) -> dict[str, Any]:
    digits = len(str(max(len(function.steps) - 1, 0)))
    groups: list[dict[str, Any]] = []
    phases = list(_PHASES)
    phase = 0
    for step in function.steps:  # what is recomputed for the backward pass belongs to it
        at = phases.index("backward" if step.phase == "update" else step.phase)
        if not groups or at > phase:
            phase = at
            groups.append({"title": _PHASES[phases[phase]], "steps": []})
        groups[-1]["steps"].append({"lines": _step_lines(function, step, digits, trace)})
    families = {kernel.family for step in function.steps for kernel in step.kernels}
    text = "\n".join(s for step in function.steps for s in step.statements)
    return {
        "pointers": columns("\n".join(_declaration(p, digits) for p in function.pointers), WIDTH - 4).split(
            "\n"
        )
        if function.pointers
        else [],
        "groups": groups,
        "headers": _headers(families),
        "uses_m": bool(function.pointers) or "m->" in text,
        "uses_arena": bool(function.pointers) or "arena" in text,
        "uses_string": "memcpy(" in text or "memmove(" in text,
    }


def _declaration(p: Pointer, digits: int) -> str:
    const = f"{p.ctype} *const {p.c} = POET_AT({p.ctype}, arena, {p.offset});"
    steps = f"step  {p.first:>{digits}}" if p.first == p.last else f"steps {p.first:>{digits}}..{p.last}"
    note = f"{steps:<{2 * digits + 8}}  {p.note}".rstrip()
    return f"{const} /* {note} */"


def _step_lines(function: Function, step: Step, digits: int, trace: bool) -> list[str]:
    margin = f"POET_STEP({step.number:>{digits}}, {step.verb.replace(' ', '_')})"
    margin = f"{margin:<{digits + 23}} "
    blank = " " * len(margin)
    lines: list[str] = []
    for statement in step.statements:
        lead = blank if lines else margin
        lines += _wrap(statement, lead, blank + "    ")
    if not step.statements:
        lines.append(f"{margin}/* {step.node.name if step.node else ''}: nothing to do */")
    if trace and step.node is not None:
        gradients = set(function.plan.schedule.costed.training.gradients.values())
        written = [step.inputs[i] for i in step.node.op.mutates] or list(step.outputs)
        for o in (w for w in written if w.space != "store"):
            flag = 1 if o.tensor in gradients else 0
            address = o.c.removeprefix("&") if o.c.startswith("&") else o.c
            lines.append(f"{blank}poet_trace({step.number}, {flag}, {address}, {o.spec.nbytes});")
    return lines


def _wrap(statement: str, first: str, rest: str) -> list[str]:
    """A call in lines of 110 columns, the body's four included, that break between arguments."""
    head, *items = statement.split(", ")
    call = head.rfind("(")
    if not items or call < 0:
        return [first + statement]
    for k in range(len(items) - 1, 0, -1):  # a residency's address stays whole
        if "POET_AT(" in items[k - 1] and ")" not in items[k - 1].partition("POET_AT(")[2]:
            items[k - 1 : k + 1] = [f"{items[k - 1]}, {items[k]}"]
    return _wrap_list(first + head[: call + 1], [head[call + 1 :], *items], "", rest, WIDTH - 4)


def _fields(constant: Constant) -> list[str]:
    """The lines of a constant's definition."""
    items = [f".{k} = {v}" for k, v in constant.fields]
    others = [user for user in constant.users if not f"{constant.c}_".startswith(f"{user}_")]
    shared = comment(f"Also of {', '.join(others)}.").split("\n") if others else []
    head = f"static const {constant.ctype} {constant.c} = {{"
    line = f"{head} {', '.join(items)} }};"
    if len(line) <= WIDTH:
        return [*shared, line]
    return [*shared, head, *_wrap_list("    ", items, ",", "    ", WIDTH), "};"]


# Files of the runtime and of the board


def _families(program: Program) -> list[str]:
    return sorted({k.family for k in program.kernels})


def _model_sources(program: Program) -> list[str]:
    name = program.name
    own = [f"{name}.c", f"{name}_infer.c", f"{name}_parameters.c"]
    if program.train is not None:
        own.append("${TRACE_DIR}" + f"{name}_train_step.c")
    pager = ["runtime/pager/pager.c"] if program.uses_store else []
    return own + [f"runtime/{f}" for f in _kernel_sources(program)] + pager


def header_of(family: str) -> str:
    """Header of a family of kernels, or of streamed nests."""
    return f"poet/{'streams' if family.startswith('stream_') else 'kernels'}/{family}.h"


def _headers(families: Collection[str]) -> list[str]:
    """What generated code includes to call these families."""
    found = {header_of(family) for family in families}
    if any(family.startswith("stream_") for family in families):
        found.add("poet/streams/operand.h")
    return sorted(found)


def _kernel_sources(program: Program) -> list[str]:
    """Sources of the kernels that are called, and of what these include headers of."""
    runtime = resources.runtime()
    todo = set(_headers(_families(program)))
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


def _main_sources(program: Program, on_host: bool) -> list[str]:
    store = ["runtime/blockdev/file.c"] if program.uses_store else []
    if on_host:
        return ["runtime/platform/posix.c", *store]
    return ["runtime/platform/semihost.c", "board/startup.c", *store]


def _runtime_files(program: Program) -> dict[str, str | bytes]:
    runtime, board = resources.runtime(), program.costed.board
    sources = {
        *_model_sources(program),
        *_main_sources(program, board.is_host),
        *_main_sources(program, on_host=True),
    }
    wanted = sorted(f for f in sources if f.startswith("runtime/"))
    files: dict[str, str | bytes] = {f: (runtime / f.removeprefix("runtime/")).read_bytes() for f in wanted}
    for header in _included(runtime / "include", files.values(), _headers(_families(program))):
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
