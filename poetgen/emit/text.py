"""Text of C: comments, columns, lists and numbers, wrapped to one width."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from poetgen.op import Array, Spec

WIDTH = 110
LARGE = 4096
"""Elements from which on an array is written six to a line, without wrapping."""


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


def signature(head: str, arguments: Sequence[str]) -> str:
    """A function's first lines, without ``;`` or ``{``."""
    return "\n".join(wrap_list(head + "(", arguments, ")", " " * (len(head) + 1), WIDTH - 1))


def wrap_list(head: str, items: Sequence[str], tail: str, margin: str, width: int) -> list[str]:
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


def hash_bytes(sha256: str) -> tuple[str, str]:
    """Two lines of 16 bytes."""
    values = [f"0x{sha256[i : i + 2]}" for i in range(0, 64, 2)]
    return ", ".join(values[:16]), ", ".join(values[16:])


def shape(spec: Spec) -> str:
    """A shape as the user writes it: ``[8, 6, 100]``."""
    return "[" + ", ".join(map(str, spec.shape)) + "]"


def comment_safe(text: str) -> str:
    """Text that cannot end a C comment or a line."""
    clean = "".join(ch if ch.isprintable() else "?" for ch in text)
    return clean.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/")


def array_text(c: str, array: Array, note: str) -> dict[str, Any]:
    """A constant array: its name, type, size, values and a note."""
    flat = array.reshape(-1)
    if flat.dtype == np.float32 and flat.size > LARGE:
        texts = np.char.add(flat.astype("U32"), "f,").tolist()  # as short, and a hundred times as fast
        rows = (" ".join(texts[k : k + 6]) for k in range(0, len(texts), 6))
        values = "\n".join(f"    {row}" for row in rows)
        return {"c": c, "ctype": "float", "size": flat.size, "values": values, "note": comment_safe(note)}
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
    return {"c": c, "ctype": ctype, "size": flat.size, "values": values, "note": comment_safe(note)}


def c_float(value: np.float32) -> str:
    """The shortest decimal that reads back as the same float32."""
    text = np.format_float_scientific(value, trim="0", unique=True, exp_digits=1)
    plain = np.format_float_positional(value, trim="0", unique=True)
    return (plain if len(plain) <= len(text) else text) + "f"
