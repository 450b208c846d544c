"""What can go wrong, each with the exit code of the command line and a hint on what to try.

Raise the child that fits; the command line prints the message, then the hint, and leaves with
`exit_code`.
"""

from __future__ import annotations

from typing import ClassVar


class PoetgenError(Exception):
    """An error written for the person at the bench: what, where, why; `hint` says what to try.

    >>> error = FitError("tinycnn needs 13.8 KiB, the budget is 12.0 KiB", hint="try --ram 14KiB")
    >>> error.exit_code, error.message, error.hint
    (4, 'tinycnn needs 13.8 KiB, the budget is 12.0 KiB', 'try --ram 14KiB')
    """

    default_exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", exit_code: int | None = None) -> None:
        """Keep `message` and `hint`; `exit_code` replaces the class's own."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = self.default_exit_code if exit_code is None else exit_code


class UsageError(PoetgenError):
    """The command asks for something that does not exist or does not go together."""

    default_exit_code = 2


class ModelError(PoetgenError):
    """The model cannot be read or trained."""

    default_exit_code = 3


class FitError(PoetgenError):
    """No schedule fits the RAM, the deadline or the code flash."""

    default_exit_code = 4


class ToolError(PoetgenError):
    """A compiler, an emulator or another program is missing."""

    default_exit_code = 5


class ParityError(PoetgenError):
    """The C code and the interpreter differ."""

    default_exit_code = 6


class NoPlanError(PoetgenError):
    """The solver found no plan in its time."""

    default_exit_code = 7


class DataError(PoetgenError):
    """The training data does not fit the model."""

    default_exit_code = 8


class BuildError(PoetgenError):
    """The compiler or the linker refused the project."""

    default_exit_code = 9


class TargetError(PoetgenError):
    """The target crashed, timed out, or its store failed."""

    default_exit_code = 10
