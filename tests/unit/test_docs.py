"""What the documents say is so: links, commands, tables, and that nothing names somebody's machine."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from poetgen import errors, resources
from poetgen.boards import board, names
from poetgen.cli import group
from poetgen.cost import CostedGraph
from poetgen.emit import SourceTree
from poetgen.graph import Model, TrainingGraph
from poetgen.memory import MemoryPlan
from poetgen.ops import by_onnx
from poetgen.pipeline import Options, compile_model, source_tree
from poetgen.program import Program
from poetgen.report import PlanReport
from poetgen.run import RunResult
from poetgen.schedule import Schedule
from tests import toy
from tests.unit.test_architecture import FLOORS
from tools import claims

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").rglob("*.md")))
FENCE = re.compile(r"^```[a-z]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
OF_A_PROJECT = ("link.ld", "board.toml", "main.c", "build/")
"""Files of which each board or project has one, in no fixed place."""
page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def outside_fences(text: str) -> str:
    return FENCE.sub("", text)


def tracked() -> list[Path]:
    """The files that belong to the project."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        said = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True
        )
        return [p for n in said.stdout.split("\0") if n and (p := ROOT / n).is_file()]
    folders = "poetgen templates runtime_c boards docs examples tests tools benchmarks .ci".split()
    inside = [p for f in folders for p in (ROOT / f).rglob("*") if "__pycache__" not in p.parts]
    return [p for p in (*inside, *ROOT.iterdir()) if p.is_file()]


# Links and paths


@page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", outside_fences(page.read_text())):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name} links to {target}"


@page
def test_files_that_are_named_exist(page: Path) -> None:
    """In backquotes, with an ending: beside the page, in the project, or in one of its rooms."""
    places = [page.parent, ROOT, ROOT / "docs", ROOT / "poetgen", ROOT / "poetgen" / "schedule"]
    places += [ROOT / "runtime_c", ROOT / "runtime_c" / "include", ROOT / "runtime_c" / "pager"]
    places += [ROOT / "runtime_c" / "include" / "poet", ROOT / "runtime_c" / "include" / "poet" / "kernels"]
    places += [ROOT / "tools" / "icnt", ROOT / "boards" / "common", ROOT / "examples" / "watch"]
    for name in INLINE.findall(outside_fences(page.read_text())):
        path = re.fullmatch(r"[\w./-]+\.(?:md|py|c|h|ld|sh|j2|toml)|[\w-]+/[\w./-]*/", name)
        if path is None or name in OF_A_PROJECT or re.match(r"net/|runtime/|[\w/]*NAME", name):
            continue
        assert any((p / name).exists() for p in places), f"{page.name} names {name}"


# Commands


def commands(text: str) -> Iterator[list[str]]:
    """What a page asks one to type that begins with poetgen; names in capitals stand for something."""
    lines = [line for block in FENCE.findall(text) for line in block.splitlines()]
    for line in (*lines, *INLINE.findall(outside_fences(text))):
        if line.startswith("poetgen ") and not re.search(r"\b[A-Z]{2,}\b(?!\.)|\[|\.\.\.|\|", line):
            yield shlex.split(line, comments=True)[1:]


NOT_BUILT = {"store format", "flash", "report"}
"""Commands that the contract names as agreed and not built."""


def test_the_readme_shows_every_command() -> None:
    assert {c[0] for c in commands(README.read_text())} == set(group.commands)


@page
def test_commands_parse(page: Path) -> None:
    for first, *rest in commands(page.read_text()):
        if " ".join((first, *rest)) in NOT_BUILT or page.name == "store-format.md":
            continue  # the latter begins a layout's text with "poetgen store"
        command = group.commands[first]
        if rest:
            command.make_context(first, rest)


@page
def test_make_targets_exist(page: Path) -> None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = page.read_text()
    for line in (*INLINE.findall(text), *(li for b in FENCE.findall(text) for li in b.splitlines())):
        if (asked := re.match(r"make ([a-z-]+)", line)) is not None:
            assert asked[1] in known, f"{page.name} asks for make {asked[1]}"


def test_the_contract_knows_every_option() -> None:
    text = (ROOT / "docs" / "contract.md").read_text()
    found = {
        name
        for command in group.commands.values()
        for p in command.params
        if isinstance(p, click.Option)
        for name in p.opts
        if name.startswith("--") and name != "--help"
    }
    said = set(re.findall(r"--[a-z][a-z-]+", text.partition("## 9.")[0]))
    assert found - said == set()
    assert said - found - {"--optimizer"} == set()


# Tables


def test_the_map_has_the_floors_that_the_code_has() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    drawn = {
        room: int(line.split()[0])
        for line in text.partition("## 3.")[2].split("```")[1].splitlines()
        if line.strip()
        for room in line.split()[1:]
    }
    assert drawn == FLOORS
    table = text.partition("| room | is |")[2].partition("\n\n")[0]
    first_cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    rooms = {name.rstrip("/") for cell in first_cells for name in INLINE.findall(cell)}
    assert rooms == set(FLOORS)


@pytest.mark.parametrize(
    "value", [Model, TrainingGraph, CostedGraph, Schedule, MemoryPlan, Program, SourceTree, Options]
)
def test_what_flows_between_rooms_is_frozen_and_described(value: type) -> None:
    assert dataclasses.is_dataclass(value)
    assert value.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert value.__doc__ and not value.__doc__.startswith(f"{value.__name__}(")


def test_the_contract_has_the_exit_codes_of_the_errors() -> None:
    text = (ROOT / "docs" / "contract.md").read_text()
    table = text.partition("| exit code | means |")[2].partition("\n\n")[0]
    said = {int(n) for n in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    codes = {
        e.default_exit_code
        for e in vars(errors).values()
        if isinstance(e, type) and issubclass(e, errors.PoetgenError)
    }
    assert said == codes | {0, 130}


def test_the_contract_has_the_results_of_the_c() -> None:
    header = (resources.runtime() / "include" / "poet" / "poet.h").read_text()
    text = (ROOT / "docs" / "contract.md").read_text()
    is_ = dict(re.findall(r"^    (POET_\w+) = (-?\d+)", header, re.MULTILINE))
    said = dict(re.findall(r"`(POET_\w+)` (-?\d+)", text))
    assert said == is_


@pytest.mark.parametrize(("kind", "named"), [(RunResult, "run"), (PlanReport, "plan")])
def test_the_contract_has_the_keys_of_the_json(kind: type, named: str) -> None:
    text = (ROOT / "docs" / "contract.md").read_text()
    said = set(INLINE.findall(text.partition(f"**JSON of {named}**")[2].partition("\n\n")[0]))
    source = inspect.getsource(kind.json)  # type: ignore[attr-defined]
    nested = {"fits"}  # of one baseline
    assert set(re.findall(r'"(\w+)": ', source)) - nested <= said


def test_the_readme_lists_the_shelf() -> None:
    section = README.read_text().partition("## Boards")[2].partition("\n## ")[0]
    assert set(names()) == {n for n in INLINE.findall(section) if re.fullmatch(r"[a-z0-9_]+", n)}


def test_targets_have_the_memories_of_the_board_files() -> None:
    text = (ROOT / "docs" / "targets.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| `qemu_")]
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in lines]
    assert {r[0].strip("`") for r in rows} == {n for n in names() if board(n).emulator}
    for name, machine, _, code, ram, reserved in rows:
        b = board(name.strip("`"))
        assert b.emulator is not None and machine == b.emulator.machine
        for said, memory in ((code, b.code), (ram, b.ram)):
            origin, _, size = said.partition(", ")
            number, unit = size.split()
            assert int(origin, 16) == memory.origin
            assert int(number) * {"KiB": 1024, "MiB": 1024**2}[unit] == memory.size_bytes
        assert reserved == f"{b.reserved_bytes // 1024} KiB"


def test_each_number_of_each_board_has_a_source() -> None:
    for name in names():
        for key, source in board(name).sources:
            assert len(source) > 10, f"{name}: {key} is from {source!r}"


def test_the_readme_promises_no_op_that_is_not_imported() -> None:
    listed = re.search(r"ONNX ops: ([^;]*);", README.read_text())
    assert listed is not None
    assert {o.strip() for o in listed[1].split(",")} <= set(by_onnx())


# Claims

POINTS = [f"2.{n}" for n in (*range(1, 9), "speed", "bad")] + [f"3.{n}" for n in (*range(1, 8), "speed")]


def test_every_point_has_a_claim() -> None:
    assert list(dict.fromkeys(c.point for c in claims.read())) == POINTS


def test_what_a_claim_runs_exists() -> None:
    for claim in claims.read():
        named = re.findall(r"((?:tests|benchmarks|examples|tools)/[\w/.]+)(::(\w+))?", claim.command)
        for path, _, name in named:
            assert (ROOT / path).exists(), f"{claim.point} runs {path}"
            if name:
                assert f"def {name}(" in (ROOT / path).read_text(), f"{claim.point} runs {path}::{name}"


def test_a_claim_fails_with_its_command_and_with_a_skipped_test() -> None:
    assert claims.run(claims.Claim("1", "a", "true", "0")) == (True, "")
    assert not claims.run(claims.Claim("1", "a", "false; true", "0"))[0]
    assert not claims.run(claims.Claim("1", "a", "echo '1 passed, 2 skipped'", "0"))[0]
    facts = """python -c 'print("{\\"size\\": 7}")'"""
    assert claims.run(claims.Claim("1", "a", f'expect "size < 8" {facts}', "0"))[0]
    assert not claims.run(claims.Claim("1", "a", f'expect "size < 7" {facts}', "0"))[0]


def test_points_are_chosen_by_name_and_by_their_first_part() -> None:
    rows = tuple(claims.Claim(p, "c", "true", "f") for p in ("2.1", "2.2", "2.2", "3.1"))
    assert [c.point for c in claims.chosen(rows, ["2.2"])] == ["2.2", "2.2"]
    assert [c.point for c in claims.chosen(rows, ["2"])] == ["2.1", "2.2", "2.2"]
    assert claims.chosen(rows, []) == rows
    with pytest.raises(ValueError, match=r"no point 2\.9; there are 2\.1, 2\.2, 3\.1"):
        claims.chosen(rows, ["2.9"])


@pytest.mark.parametrize("row", ["| 2.1 | c | `x` |", "| 2.1 | c | x | f |", "| 2.1 | c | `x` | |"])
def test_a_row_that_is_not_whole_is_refused(row: str, tmp_path: Path) -> None:
    head = "| point | claim | command | figure |\n|---|---|---|---|\n"
    (tmp_path / "claims.md").write_text(f"{head}{row}\n")
    with pytest.raises(ValueError, match=r"claims\.md, line 3"):
        claims.read(tmp_path / "claims.md")


# Nobody's machine, everybody's licence

FOREIGN = {
    "a path of somebody's machine": re.compile(r"(?<![\w.])/(?:work|home|root|Users|opt|mnt)/\w"),
    "a file outside of the project": re.compile(r"\.\./shar" + "ed"),
    "a package registry": re.compile(r"https?://(?:\w+\.)*(?:pypi|pythonhosted|npmjs|crates)\.\w+"),
}


def test_no_file_names_somebodys_machine() -> None:
    found = []
    for path in tracked():
        text = path.read_bytes().decode("utf-8", errors="ignore")
        if "\0" in text[:1024]:
            continue
        for what, pattern in FOREIGN.items():
            found += [f"{path.relative_to(ROOT)}: {what}: {m[0]}" for m in pattern.finditer(text)]
    assert found == []


def test_what_is_copied_into_projects_is_under_mit_0() -> None:
    assert (ROOT / "runtime_c" / "LICENSE").read_text().startswith("MIT No Attribution")
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()


def test_a_board_outside_of_the_shelf_has_all_that_a_build_needs(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "boards" / "qemu_mps2_an386", tmp_path / "mine")
    file = tmp_path / "mine" / "board.toml"
    file.write_text(file.read_text().replace('name  = "qemu_mps2_an386"', 'name = "mine"'))
    options = Options(toy.write_model(tmp_path / "toy.onnx"), str(tmp_path / "mine"), strategy="keep_all")
    files = source_tree(compile_model(options)).files
    assert {"board/startup.c", "board/sections.ld", "board/link.ld"} <= set(files)
