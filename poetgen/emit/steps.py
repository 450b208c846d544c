"""A function of the program as lines of C: pointers, constants, steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poetgen.emit.files import headers_of
from poetgen.emit.text import WIDTH, columns, comment, wrap_list
from poetgen.memory import Page
from poetgen.program import Constant, Function, Pointer, Step

_PHASES = {
    "forward": "Forward",
    "loss": "Loss",
    "backward": "Backward: each parameter is updated after the last op that reads it.",
}


def page_text(c: str, page: Page) -> dict[str, Any]:
    """A page's declaration; a streamed one has no check word."""
    streamed = ", .streamed = 1" if page.streamed else ""
    fields = f".sector = {page.sector}, .bytes = {page.nbytes}{streamed}"
    return {"declaration": f"static const struct poet_page {c} = {{ {fields} }};"}


def file_of(functions: Sequence[Function], trace: bool) -> dict[str, Any]:
    """What a C file needs before its functions."""
    made = [function_text(f, trace) for f in functions]
    constants: dict[str, Constant] = {c.c: c for f in functions for c in f.constants}
    pages = dict.fromkeys(p for f in functions for p in f.pages)
    return {
        "headers": sorted({h for f in made for h in f["headers"]}),
        "constants": [{"lines": _fields(c)} for c in constants.values()],
        "pages": [page_text(c, page) for c, page in pages],
        "uses_string": any(f["uses_string"] for f in made),
    }


def function_text(function: Function, trace: bool) -> dict[str, Any]:
    """One function: its pointers, its steps in groups, and what they need."""
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
        "headers": headers_of(families),
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
    return wrap_list(first + head[: call + 1], [head[call + 1 :], *items], "", rest, WIDTH - 4)


def _fields(constant: Constant) -> list[str]:
    """The lines of a constant's definition."""
    items = [f".{k} = {v}" for k, v in constant.fields]
    others = [user for user in constant.users if not f"{constant.c}_".startswith(f"{user}_")]
    shared = comment(f"Also of {', '.join(others)}.").split("\n") if others else []
    head = f"static const {constant.ctype} {constant.c} = {{"
    line = f"{head} {', '.join(items)} }};"
    if len(line) <= WIDTH:
        return [*shared, line]
    return [*shared, head, *wrap_list("    ", items, ",", "    ", WIDTH), "};"]
