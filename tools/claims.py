"""Run the commands of docs/claims.md. `make claims` runs all; `make claims POINT=2.5` those of one point.

    python tools/claims.py [POINT ...]                    2 means 2.1, 2.2, ...
    python tools/claims.py --expect EXPRESSION COMMAND    COMMAND's JSON answer makes EXPRESSION true

A row is shown when its command ends with 0 and no test was skipped. The first that is not stops the run.
In a command, $OUT is an empty folder of its own, .venv/bin comes first on PATH, and `expect` is --expect.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "claims.md"
HEAD = ("point", "claim", "command", "figure")
TIMEOUT_S = 3600
SHOWN_LINES = 40


@dataclass(frozen=True)
class Claim:
    """A row: ``Claim("2.7", "the demo runs", "make demo", "accuracy 0.7305 -> 0.9727")``."""

    point: str
    claim: str
    command: str
    figure: str


def read(page: Path = PAGE) -> tuple[Claim, ...]:
    """The rows of every table with our head; raises ValueError for one that is not whole."""
    rows: list[Claim] = []
    ours = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("|"):
            ours = False
            continue
        cells = [c.strip().replace(r"\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if tuple(cells) == HEAD:
            ours = True
        elif ours and set(line) - set("|-: "):
            if len(cells) != len(HEAD) or not all(cells):
                raise ValueError(f"{page.name}, line {number}: a row has {', '.join(HEAD)}")
            point, claim, command, figure = cells
            if not (command.startswith("`") and command.endswith("`") and "`" not in command[1:-1]):
                raise ValueError(f"{page.name}, line {number}: the command stands between backquotes")
            rows.append(Claim(point, claim, command[1:-1], figure))
    return tuple(rows)


def chosen(claims: Sequence[Claim], points: Sequence[str]) -> tuple[Claim, ...]:
    """The rows of these points, all without any; raises ValueError for a point that has none."""
    for p in points:
        if not any(c.point == p or c.point.startswith(f"{p}.") for c in claims):
            known = ", ".join(dict.fromkeys(c.point for c in claims))
            raise ValueError(f"{PAGE.name} has no point {p}; there are {known}")
    return tuple(
        c for c in claims if not points or any(c.point == p or c.point.startswith(f"{p}.") for p in points)
    )


def run(claim: Claim) -> tuple[bool, str]:
    """Does the command show the claim; and what it said."""
    here = f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).resolve()))}"
    script = f'expect() {{ {here} --expect "$@"; }}\n{claim.command}'
    with tempfile.TemporaryDirectory(prefix="poetgen-claim-") as out:
        path = os.pathsep.join((str(ROOT / ".venv" / "bin"), os.environ.get("PATH", "")))
        try:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=ROOT,
                env={**os.environ, "PATH": path, "OUT": out},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False, f"not done after {TIMEOUT_S} s"
    if done.returncode:
        return False, f"{done.stdout}\nended with {done.returncode}"
    if skipped := re.search(r"\b[1-9]\d* skipped\b", done.stdout):
        return False, f"{done.stdout}\n{skipped[0]}: what is skipped shows nothing"
    return True, done.stdout


def expect(expression: str, command: Sequence[str]) -> int:
    """Run a command that answers in JSON; its keys are the names that the expression may use."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return done.returncode
    facts = json.loads(done.stdout)
    code = compile(expression, "expression", "eval")
    used = ", ".join(f"{n} = {facts[n]!r}" for n in code.co_names if n in facts)
    true = bool(eval(code, {"__builtins__": {}}, facts))
    print(f"{expression}: {true}, {used}")
    return 0 if true else 1


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; 0 if all of it is shown."""
    if arguments[:1] == ["--expect"]:
        return expect(arguments[1], arguments[2:])
    try:
        claims = chosen(read(), arguments)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    began = time.monotonic()
    for number, claim in enumerate(claims):
        print(f"{claim.point}  {claim.claim}\n    {claim.command}", flush=True)
        started = time.monotonic()
        shown, said = run(claim)
        lines = said.rstrip().splitlines()
        for line in lines[-1:] if shown else lines[-SHOWN_LINES:]:
            print(f"    {line}")
        print(f"    {'shown' if shown else 'NOT SHOWN'}, {time.monotonic() - started:.0f} s\n", flush=True)
        if not shown:
            print(f"{number} of {len(claims)} claims shown; stopped at {claim.point}")
            return 1
    print(f"{len(claims)} of {len(claims)} claims shown, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
