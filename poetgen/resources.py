"""Where templates, runtime_c and boards lie: beside the package in a checkout, else inside it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from poetgen.errors import ToolError

_FOLDERS = ("templates", "runtime_c", "boards")


def root() -> Path:
    """Return the folder that holds templates/, runtime_c/ and boards/.

    A wheel carries them in poetgen/_data; pip unpacks wheels, so they are files on disk there too.
    """
    package = Path(str(files("poetgen")))
    for candidate in (package / "_data", package.parent):
        if all((candidate / folder).is_dir() for folder in _FOLDERS):
            return candidate
    raise ToolError(
        f"poetgen has lost its folders {', '.join(_FOLDERS)} (looked beside and in {package})",
        hint="install it again: pip install . from a checkout",
    )


def templates() -> Path:
    """Return the folder of the Jinja templates."""
    return root() / "templates"


def runtime() -> Path:
    """Return the folder of the C runtime."""
    return root() / "runtime_c"


def boards() -> Path:
    """Return the folder with one folder a board."""
    return root() / "boards"
