"""The command line. stdout is for the answer, stderr for progress; `--json` where a machine reads.

Exit codes: 0 done, 2 usage, 3 model not supported, 4 no schedule (or code flash) fits, 5 tool missing,
6 parity lost, 7 no plan in time, 8 bad data, 9 build failed, 10 the target crashed, 130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence

import click

from poetgen import __version__
from poetgen.cli.making import generate, inspect, plan
from poetgen.cli.running import build, run, verify
from poetgen.cli.shelf import boards
from poetgen.cli.show import complain
from poetgen.errors import PoetgenError

INTERRUPTED = 130
INTERNAL = 1


class _InOrder(click.Group):
    """Lists commands in the order of a first day, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="poetgen")
def group() -> None:
    """Turn an ONNX model into a C project that trains it on a microcontroller.

    A first day: inspect MODEL, generate MODEL --board B --ram 64KiB -o DIR, run DIR --data FILE.npz.
    """


for command in (inspect, plan, generate, build, run, verify, boards):
    group.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # an emulator must not outlive us
    sys.exit(exit_code(sys.argv[1:] if arguments is None else arguments))


def exit_code(arguments: Sequence[str]) -> int:
    """Run a command; every error becomes words on stderr and a code."""
    debug = os.environ.get("POETGEN_DEBUG") == "1"
    try:
        code = group.main(list(arguments), prog_name="poetgen", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        return INTERRUPTED
    except PoetgenError as error:
        if debug:
            traceback.print_exc()
        complain(error.message, error.hint)
        return error.exit_code
    except BrokenPipeError:  # the reader of our answer has left: `poetgen boards | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if debug:
            raise
        complain(str(error), "is the disk full, or a folder read-only?")
        return INTERNAL
    except Exception as error:
        if debug:
            raise
        complain(
            f"internal error, {type(error).__name__}: {error}",
            "this is our mistake, please report it; POETGEN_DEBUG=1 shows where it happened",
        )
        return INTERNAL


__all__ = ["exit_code", "group", "main"]
