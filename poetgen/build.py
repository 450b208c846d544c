"""Build a project and run the program, here or under QEMU. In: a written folder. Out: Built, Outcome.

This is the only room, beside the solvers', that starts processes. A program is a generated main.c: it
reads job.bin, data.bin, eval.bin and store.bin in its working directory, and writes loss.bin,
params.bin, result.bin and, when asked, arena.bin and trace.bin.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import numpy as np

from poetgen.boards import Board, board
from poetgen.errors import BuildError, DataError, FitError, TargetError, ToolError, UsageError
from poetgen.project import Project

Progress = Callable[[int, float], None]
"""Called with the number of training steps done and the last one's loss."""

# Programs that are not ours

_INSTALL = {
    "cmake": "apt install cmake",
    "ninja": "apt install ninja-build",
    "gcc": "apt install gcc",
    "size": "apt install binutils",
    "arm-none-eabi-gcc": "apt install gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "arm-none-eabi-size": "apt install binutils-arm-none-eabi",
    "qemu-system-arm": "apt install qemu-system-arm",
}


def find(program: str, what_for: str) -> str:
    """The path of a program.

    Raises:
        ToolError: it is not installed.
    """
    path = shutil.which(program)
    if path is None:
        install = _INSTALL.get(Path(program).name)
        raise ToolError(
            f"{program} is not installed; {what_for} needs it",
            hint=f"on Debian and Ubuntu: {install}" if install else "install it, or add it to PATH",
        )
    return path


def beside(compiler: str, tool: str) -> str:
    """The tool of a compiler's own set: ``arm-none-eabi-gcc``, ``size`` -> ``arm-none-eabi-size``."""
    folder, _, name = compiler.rpartition("/")
    prefix = name.removesuffix("gcc") if name.endswith("-gcc") else ""
    return f"{folder}/{prefix}{tool}" if folder else f"{prefix}{tool}"


def call(command: Sequence[str | Path], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a short program that asks for nothing; stdout and stderr come back as one text."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


# Build

_ERROR_LINES = 6
_ERROR = re.compile(r"\berror:|CMake Error|undefined reference|overflowed")
_OVERFLOW = re.compile(r"region [`'](\w+)' overflowed by (\d+) bytes")


@dataclass(frozen=True)
class Sizes:
    """What `size` says of a program: ``Sizes(text=24680, data=0, bss=70000)``, in bytes."""

    text: int
    data: int
    bss: int


@dataclass(frozen=True)
class Built:
    """A program, and the board it runs on (``host`` for this computer)."""

    elf: Path
    board: Board
    sizes: Sizes


def where_to_run(project: Project, on: str | None = None) -> Board:
    """The board that a project runs on: ``qemu`` its own, ``host`` this computer.

    Without ``on``: its own where an emulator is known, else this computer.

    Raises:
        UsageError: no emulator knows the board.
    """
    own = board(project.board)
    if on == "host" or (on is None and own.emulator is None):
        return own if own.is_host else board("host")
    if own.emulator is None:
        raise UsageError(
            f"{project.folder} is for the board {own.name}, which no emulator runs",
            hint="run it with --on host, or generate it for a board whose name starts with qemu_",
        )
    return own


def build(
    project: Project,
    target: Board,
    *,
    extra_flags: str = "",
    optimize: str = "",
    trace: bool = False,
    name: str = "",
) -> Built:
    """Compile a project for its board, or for the host, in its folder's ``build/``.

    Args:
        project: what to build.
        target: its own board, or the host.
        extra_flags: for compiler and linker, such as ``-fsanitize=address``.
        optimize: ``-O2``, ``-Os``, ...; the project's own by default.
        trace: the program that writes what each step computes to trace.bin.
        name: of a variant, so that its objects lie beside those of the others.

    Raises:
        ToolError: cmake, ninja or the compiler is missing.
        FitError: the program is too large for the board's memories.
        BuildError: the compiler or the linker refused; its first errors.
    """
    cmake = find("cmake", "building a project")
    find("ninja", "building a project")
    find(target.compiler, f"building for {target.name}")
    size = find(beside(target.compiler, "size"), "measuring a program")
    root = project.folder.resolve()
    folder = root / "build" / "-".join(filter(None, (target.name, "trace" if trace else "", name)))
    configure: list[str | Path] = [
        *(cmake, "-S", root, "-B", folder, "-G", "Ninja"),
        f"-DEXTRA_FLAGS={extra_flags}",
        f"-DTRACE_DIR={'trace/' if trace else ''}",
        f"-DHOST={'ON' if target.is_host else 'OFF'}",
        *([f"-DOPTIMIZE={optimize}"] if optimize else ["-U", "OPTIMIZE"]),
    ]
    made = call(configure)
    if made.returncode and folder.exists():  # left by another cmake, or in another place
        shutil.rmtree(folder)
        made = call(configure)
    if made.returncode:
        raise BuildError(f"cmake refused {project.folder}\n{_first_errors(made.stdout)}")
    made = call([cmake, "--build", folder])
    if made.returncode:
        _explain(made.stdout, project, target, extra_flags)
    elf = folder / (project.name if target.is_host else f"{project.name}.elf")
    return Built(elf, target, _sizes(size, elf))


def _sizes(size: str, elf: Path) -> Sizes:
    said = call([size, elf])
    try:
        text, data, bss = (int(word) for word in said.stdout.splitlines()[1].split()[:3])
    except (IndexError, ValueError) as error:
        raise BuildError(f"{size} does not understand {elf}\n{_first_errors(said.stdout)}") from error
    return Sizes(text, data, bss)


def _explain(output: str, project: Project, target: Board, extra_flags: str) -> NoReturn:
    over = {region: int(count) for region, count in _OVERFLOW.findall(output)}
    flash = next((r for r in over if "RAM" not in r.upper()), None)
    if flash is not None:
        raise FitError(
            f"{project.name} is {over[flash]} B too large for the code flash of {target.name} "
            f"({target.code_bytes} B)",
            hint="build with -Os, freeze fewer parameters, or use a larger board",
        )
    if over or "data and stack do not fit the RAM" in output:
        by = f"{next(iter(over.values()))} B " if over else ""
        raise FitError(
            f"data and stack of {project.name} are {by}too large for the RAM of {target.name} "
            f"({target.ram_bytes} B)",
            hint="generate with a smaller --ram, or give less stack in board/link.ld",
        )
    raise BuildError(
        f"{target.compiler} cannot build {project.folder}\n{_first_errors(output)}",
        hint="try without --flags"
        if extra_flags
        else "a folder that was not changed and does not build is our mistake: please report it",
    )


def _first_errors(output: str) -> str:
    """The first lines that name an error; the last lines where none does."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    found = [line for line in lines if _ERROR.search(line)]
    errors = list({line.partition("error: ")[2] or line: line for line in reversed(found)}.values())[::-1]
    chosen = errors[:_ERROR_LINES] or lines[-_ERROR_LINES:]
    return "\n".join(f"  {line}" for line in chosen)


# Run

MAGIC = 0x424F4A50
WANT_ARENA, WANT_TRACE = 1, 2

# struct job and struct result of templates/main.c.j2, little-endian, no padding.
_JOB = struct.Struct("<7If")  # magic, steps, batches, eval_batches, flags, pattern, seed, lr
_RESULT = struct.Struct("<Ii4I" + 2 * "fII" + "4I")

_POLL_S = 0.05
_EXIT_FAULT = 70  # startup.c's exit code after it has printed a fault
_CONSOLE = "console.txt"

# enum poet_result of runtime_c/include/poet/poet.h
NONFINITE = -4
_RANGE, _ARITH = -3, -5
_CODES = {
    -1: "POET_EINVAL: an argument is wrong",
    -2: "POET_ENOMEM: the arena is smaller than the plan needs",
    _RANGE: "POET_ERANGE: a label or an index is outside of its range",
    NONFINITE: "POET_ENONFINITE: the loss is not finite",
    _ARITH: "POET_EARITH: flags of the compiler change float arithmetic (contraction, flush to zero)",
    -10: "POET_EIO: a device or a file failed",
    -11: "POET_ENOSPC: the device is smaller than the store",
    -12: "POET_EFORMAT: the device holds no store of poetgen's",
    -13: "POET_EVERSION: the store is of another format version",
    -14: "POET_EMODEL: the store belongs to another model or another plan",
    -15: "POET_ECHECK: a page's check word does not match its bytes",
    -16: "POET_ESTATE: the store is not open, or holds no saved state",
}

# CFSR of the Armv7-M and Armv8-M architectures: bit -> name and meaning.
_CFSR = {
    0: "IACCVIOL, instruction fetch from a forbidden address",
    1: "DACCVIOL, access to a forbidden address",
    3: "MUNSTKERR, the stack is outside of the RAM",
    4: "MSTKERR, the stack is outside of the RAM",
    8: "IBUSERR, instruction fetch from where there is no memory",
    9: "PRECISERR, access to where there is no memory",
    10: "IMPRECISERR, write to where there is no memory",
    11: "UNSTKERR, the stack is outside of the RAM",
    12: "STKERR, the stack is outside of the RAM",
    16: "UNDEFINSTR, an instruction that this core does not have",
    17: "INVSTATE, a jump to an address that is no code",
    18: "INVPC, a damaged return address",
    19: "NOCP, a float instruction while there is no FPU or it is off",
    20: "STKOF, the stack overflowed",
    24: "UNALIGNED, an unaligned access",
    25: "DIVBYZERO, an integer division by zero",
}


@dataclass(frozen=True)
class Metrics:
    """What evaluation summed up: ``Metrics(loss_sum=12.5, count=40, correct=31)``."""

    loss_sum: float
    count: int
    correct: int


@dataclass(frozen=True)
class Outcome:
    """What the target says in result.bin. ``status`` is a poet_result, 0 or NONFINITE here."""

    status: int
    steps: int
    stack_bytes: int
    struct_bytes: int
    arena_bytes: int
    before: Metrics
    after: Metrics
    device_reads: int
    device_writes: int
    sectors_read: int
    sectors_written: int
    host_read_bytes: int | None = None
    """What the whole process, QEMU or program, read from files as the host's kernel counted it."""
    host_written_bytes: int | None = None


def write_job(
    folder: Path,
    *,
    steps: int,
    batches: int,
    lr: float,
    eval_batches: int = 0,
    flags: int = 0,
    pattern: int = 0,
    seed: int = 0,
) -> None:
    """Write job.bin."""
    job = _JOB.pack(MAGIC, steps, batches, eval_batches, flags, pattern, seed, lr)
    (folder / "job.bin").write_bytes(job)


def run_target(
    built: Built, folder: Path, timeout_s: float, progress: Progress | None = None, loss_bytes: int = 4
) -> Outcome:
    """Run a program in a folder that holds its files.

    ``loss_bytes`` are what it writes to loss.bin in each step.

    Raises:
        ToolError: QEMU is missing.
        TargetError: it crashed, took too long, or its store failed.
        DataError: a label is out of range.
        BuildError: the program was built with flags that change its arithmetic.
    """
    command: tuple[str, ...] = (str(built.elf),)
    if built.board.emulator is not None:
        find(built.board.emulator.program, f"running {built.board.name}")
        command = built.board.emulator.command(built.elf)
    started = time.monotonic()
    process: subprocess.Popen[bytes] | None = None
    with (folder / _CONSOLE).open("wb") as console:
        try:
            with _signals_wait():
                process = subprocess.Popen(
                    command, cwd=folder, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT
                )
            while not _ended(process):
                if time.monotonic() - started > timeout_s:
                    done = _steps_done(folder, loss_bytes)
                    raise TargetError(
                        f"{built.board.name} was stopped after {timeout_s:g} s with {done} steps done",
                        hint="give it longer by --timeout, or ask for fewer --steps",
                    )
                if progress is not None:
                    _report(folder, loss_bytes, progress)
                time.sleep(_POLL_S)
            moved = _moved_bytes(process.pid)
        finally:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode != 0:
        raise _crash(built, folder, process.returncode, loss_bytes)
    if progress is not None:
        _report(folder, loss_bytes, progress)
    read, written = moved
    return replace(_outcome(built, folder), host_read_bytes=read, host_written_bytes=written)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Hold back an interrupt until the process that is being started is known, so that it can be ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.signal(n, lambda number, _: came.append(number)) for n in numbers]
    try:
        yield
    finally:
        for n, handler in zip(numbers, handlers, strict=True):
            signal.signal(n, handler)
    for number in came:
        signal.raise_signal(number)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Has it ended? It is not reaped yet, so that the kernel's counts of it can be read."""
    flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
    return os.waitid(os.P_PID, process.pid, flags) is not None


def _moved_bytes(pid: int) -> tuple[int | None, int | None]:
    """Bytes that a process read and wrote, by the kernel's count; None where it does not tell."""
    try:
        text = Path(f"/proc/{pid}/io").read_text()
    except OSError:
        return None, None
    counts = {key: int(value) for key, value in (line.split(": ") for line in text.splitlines())}
    return counts.get("rchar"), counts.get("wchar")


def _steps_done(folder: Path, loss_bytes: int) -> int:
    file = folder / "loss.bin"
    return file.stat().st_size // loss_bytes if file.exists() else 0


def _report(folder: Path, loss_bytes: int, progress: Progress) -> None:
    done = _steps_done(folder, loss_bytes)
    if done:
        with (folder / "loss.bin").open("rb") as file:
            file.seek((done - 1) * loss_bytes)
            progress(done, float(np.frombuffer(file.read(4), "<f4")[0]))


def _outcome(built: Built, folder: Path) -> Outcome:
    file = folder / "result.bin"
    raw = file.read_bytes() if file.exists() else b""
    if len(raw) != _RESULT.size or _RESULT.unpack(raw)[0] != MAGIC:
        raise TargetError(
            f"{built.board.name} ended without a result{_said(folder)}",
            hint="was main.c changed? `poetgen run` needs the one that was generated",
        )
    (_, status, steps, stack, struct_bytes, arena, *rest) = _RESULT.unpack(raw)
    outcome = Outcome(
        status, steps, stack, struct_bytes, arena, Metrics(*rest[:3]), Metrics(*rest[3:6]), *rest[6:]
    )
    if status in (0, NONFINITE):
        return outcome
    code = _CODES.get(status, f"error {status}")
    message = f"{built.board.name} stopped in step {steps}: {code}"
    if status == _RANGE:
        raise DataError(message)
    if status == _ARITH:
        raise BuildError(message, hint="build without -ffast-math, -mfma, -Ofast and the like")
    raise TargetError(message)


def _crash(built: Built, folder: Path, code: int, loss_bytes: int) -> TargetError:
    said = _said(folder)
    where = f"{built.board.name} crashed after {_steps_done(folder, loss_bytes)} steps"
    console = _console(folder)
    if code == _EXIT_FAULT and "fault: exception" in console:
        return TargetError(f"{where}: {_fault(built, console)}")
    if code < 0:
        return TargetError(f"{where}: {signal.Signals(-code).name}{said}")
    return TargetError(f"{where}: exit code {code}{said}")


def _fault(built: Built, console: str) -> str:
    """A fault in words: what startup.c printed, the CFSR's bits, and the line of the program counter."""
    line = next(line for line in console.splitlines() if "fault: exception" in line)
    parts = [line.strip()]
    if cfsr := re.search(r"CFSR 0x([0-9a-f]{8})", line):
        bits = int(cfsr[1], 16)
        parts += [f"  {meaning}" for bit, meaning in _CFSR.items() if bits >> bit & 1]
    if pc := re.search(r"\bpc 0x([0-9a-f]{8})", line):
        tool = beside(built.board.compiler, "addr2line")
        try:
            found = call([tool, "-f", "-s", "-e", built.elf, f"0x{pc[1]}"]).stdout.split("\n")
        except OSError:  # not installed: the address must do
            found = []
        if len(found) > 1 and not found[0].startswith("?"):
            parts.append(f"  in {found[0]}, {found[1]}")
    return "\n".join(parts)


def _console(folder: Path) -> str:
    file = folder / _CONSOLE
    return file.read_text(errors="replace") if file.exists() else ""


def _said(folder: Path) -> str:
    lines = [line.rstrip() for line in _console(folder).splitlines() if line.strip()]
    return "".join(f"\n  {line}" for line in lines[:8])


# What a traced program computed

# As poet_trace() of templates/main.c.j2 writes it: step of the schedule, is it a gradient, bytes that follow.
_HEAD = struct.Struct("<3I")


@dataclass(frozen=True)
class Record:
    """The bytes of one output: ``Record(step=7, is_gradient=True, data=b"...")``."""

    step: int
    is_gradient: bool
    data: bytes


def read_trace(file: Path) -> Iterator[Record]:
    """The records of a trace file, one after the other.

    Raises:
        TargetError: the file is cut short.
    """
    if not file.exists():
        return
    with file.open("rb") as trace:
        while head := trace.read(_HEAD.size):
            if len(head) == _HEAD.size:
                step, is_gradient, count = _HEAD.unpack(head)
                data = trace.read(count)
                if len(data) == count:
                    yield Record(step, bool(is_gradient), data)
                    continue
            raise TargetError("the target's trace is cut short: was the disk full?")
