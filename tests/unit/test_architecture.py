"""Who may import whom: the table of docs/design.md, held by reading every import."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "poetgen"

FLOORS = {
    "errors": 0,
    "naming": 0,
    "strides": 0,
    "resources": 1,
    "project": 1,
    "op": 1,
    "boards": 2,
    "graph": 2,
    "arithmetic": 2,
    "ops": 3,
    "onnx_import": 4,
    "fuse": 4,
    "streams": 4,
    "new_classes": 4,
    "autodiff": 5,
    "layout": 5,
    "cost": 5,
    "schedule": 6,
    "memory": 7,
    "program": 8,
    "interpreter": 9,
    "report": 9,
    "inspect": 9,
    "data": 9,
    "emit": 10,
    "pipeline": 11,
    "build": 11,
    "run": 12,
    "verify": 13,
    "cli": 14,
}
DOORS = {
    "onnx": "onnx_import",
    "pulp": "schedule/milp",
    "highspy": "schedule/milp",
    "jinja2": "emit",
    "click": "cli",
}
SHARED_OPS = {"channel_sum", "add", "move", "unary", "conv"}
"""Modules of ops that families share."""


def modules() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py"))


def room(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0]


def imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.append(node.module)
            names += [f"{node.module}.{a.name}" for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            raise AssertionError(f"{path} has a relative import")
    return names


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    if path == ROOT / "__init__.py":
        return  # the public face re-exports
    mine = room(path)
    assert mine in FLOORS, f"{mine} is a room without a floor: add it to the table"
    for name in imports(path):
        parts = name.split(".")
        if parts[0] != "poetgen" or len(parts) < 2 or parts[1].startswith("__"):
            continue
        other = parts[1]
        assert other in FLOORS, f"{path.name} imports {name}, which is no room"
        if other == mine:
            if mine == "ops" and len(parts) > 2 and parts[2] not in SHARED_OPS:
                assert path.stem in ("__init__", parts[2]), f"op family {path.stem} imports {parts[2]}"
            continue
        assert FLOORS[other] < FLOORS[mine], f"{mine} imports {other}, which is not below it"


@pytest.mark.parametrize("package", DOORS)
def test_a_dependency_has_one_door(package: str) -> None:
    for path in modules():
        for name in imports(path):
            if name.split(".")[0] == package:
                where = path.relative_to(ROOT).with_suffix("").as_posix()
                assert where == DOORS[package] or where.startswith(DOORS[package]), (
                    f"{where} imports {package}"
                )


def test_only_build_starts_processes() -> None:
    for path in modules():
        if any(n.split(".")[0] == "subprocess" for n in imports(path)):
            assert room(path) in ("build", "schedule"), path  # schedule: solvers that can be killed
