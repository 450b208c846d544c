"""Options and fixtures of all tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[Path, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the texts that golden tests compare with"
    )


@pytest.fixture
def updates_golden(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("--update-golden"))


@pytest.fixture
def golden(updates_golden: bool) -> Golden:
    """``golden(file, text)``: the text is the file's; with --update-golden it becomes so."""

    def compare(file: Path, text: str) -> None:
        if updates_golden:
            file.write_text(text, encoding="utf-8", newline="\n")
        assert file.exists(), f"{file.name} is not there yet: pytest --update-golden"
        assert text == file.read_text(encoding="utf-8"), "if it is meant so: pytest --update-golden"

    return compare
