"""The C that comes out: free of warnings, of the C library, of names that clash; in the user's hands."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from poetgen import resources
from poetgen.boards import board
from poetgen.data import random_batches
from poetgen.interpreter import Machine
from poetgen.pipeline import Options
from poetgen.program import Program
from poetgen.project import Project
from tests.onnx_nets import OnnxNet
from tests.parity.builds import generated, options
from tests.parity.sessions import EARITH, EINVAL, ENOMEM

M4F = board("qemu_mps2_an386")
WARNINGS = (
    "-std=c11 -Wall -Wextra -Werror -Wshadow -Wconversion -Wdouble-promotion -Wfloat-conversion "
    "-Wundef -Wstrict-prototypes -Wmissing-prototypes -Wcast-align=strict -Wcast-qual -Wvla "
    "-Wnull-dereference -Wlogical-op -fno-common -ffp-contract=off"
).split()
PLANS = (("watch", "keep_all"), ("watch", "page_all"), ("shared", "page_all"), ("branches", "keep_all"))
NO_PARAMETERS = ("plain", "keep_all")
Made = Callable[..., tuple[Program, Project]]


def plain(folder: Path) -> Path:
    """A network that has nothing to train."""
    net = OnnxNet((2, 3, 8, 8))
    return net.write(net.op("MaxPool", net.op("Relu", "x"), kernel_shape=[2, 2]), folder, "plain")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A project for the M4F, generated once for all tests of this file."""

    @cache
    def make(net: str, strategy: str = "keep_all", on: str = M4F.name) -> tuple[Program, Project]:
        folder = tmp_path_factory.mktemp(f"{net}-{strategy}")
        if net == "plain":
            return generated(Options(plain(folder), on), folder / "project")
        return generated(replace(options(net, folder, on), strategy=strategy), folder / "project")

    return make


def sources(project: Project) -> list[Path]:
    """The model's own and the runtime that it brings: what its library is made of."""
    folder = project.folder
    return sorted(
        [
            *folder.glob(f"{project.name}*.c"),
            *folder.glob("runtime/kernels/*.c"),
            *folder.glob("runtime/streams/*.c"),
            *folder.glob("runtime/pager/*.c"),
        ]
    )


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    words = [str(c) for c in command]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=300)


def include(project: Project) -> list[str]:
    return [f"-I{project.folder}", f"-I{project.folder / 'runtime' / 'include'}"]


def library(project: Project, folder: Path, flags: Sequence[str] = (), compiler: str = "gcc") -> Path:
    """A static library of the model, built by hand."""
    objects = folder / f"{project.name}-objects"
    objects.mkdir()
    base = ["-std=c11", "-O2", "-ffp-contract=off", "-ffunction-sections", *flags, *include(project)]
    done = run(compiler, *base, "-c", *sources(project), cwd=objects)
    assert done.returncode == 0, done.stderr
    archive = folder / f"lib{project.name}.a"
    done = run(compiler.replace("gcc", "ar"), "rcs", archive, *sorted(objects.glob("*.o")))
    assert done.returncode == 0, done.stderr
    return archive


# Hygiene


@pytest.mark.parametrize(("net", "strategy"), (*PLANS, NO_PARAMETERS))
def test_every_file_compiles_without_a_warning_here_and_for_the_board(
    net: str, strategy: str, made: Made, tmp_path: Path
) -> None:
    _, project = made(net, strategy)
    folder = project.folder
    shared = [*sources(project), folder / "main.c"]
    shared += [*folder.glob("trace/*.c"), *folder.glob("runtime/blockdev/*.c")]
    assert bool(list(folder.glob("trace/*.c"))) == (net != "plain")
    for compiler, flags, more in (
        ("gcc", (), [folder / "runtime/platform/posix.c"]),
        (M4F.compiler, M4F.flags, [folder / "runtime/platform/semihost.c", folder / "board/startup.c"]),
    ):
        for source in (*shared, *more):
            wanted = ["-O2", *WARNINGS, *flags, *include(project), "-c", source, "-o", tmp_path / "o.o"]
            done = run(compiler, *wanted)
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("net", "strategy"), [("watch", "keep_all"), ("mlp_mse", "page_all")])
def test_two_static_analysers_find_nothing(net: str, strategy: str, made: Made, tmp_path: Path) -> None:
    _, project = made(net, strategy)
    own = [*project.folder.glob("*.c"), *project.folder.glob("runtime/pager/*.c")]
    for source in own:
        wanted = ["-std=c11", "-O1", "-fanalyzer", "-Werror", *include(project), "-c", source]
        done = run("gcc", *wanted, "-o", tmp_path / "o.o")
        assert done.returncode == 0, done.stderr
    # One set of #ifdefs: cppcheck's time grows with their number and with the square of a function.
    quick = ["--max-configs=1", "--suppress=toomanyconfigs"]
    wanted = ["--quiet", "--error-exitcode=1", "--enable=warning,portability", "--std=c11", *quick]
    done = run("cppcheck", *wanted, *include(project), *own)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("net", "strategy"), PLANS)
def test_what_is_written_is_fit_to_be_read(net: str, strategy: str, made: Made) -> None:
    program, project = made(net, strategy)
    own = [f for pattern in ("*.c", "*.h", "trace/*.c") for f in project.folder.glob(pattern)]
    assert len(own) >= 8
    for file in own:
        text = file.read_text()
        lines = text.split("\n")
        assert text.endswith("\n") and not text.endswith("\n\n"), file
        assert "\n\n\n" not in text, file
        assert not [line for line in lines if len(line) > 110], file
        assert not [line for line in lines if line != line.rstrip() or "\t" in line], file
        assert not re.search(r"\{\n\n|\n\n\s*\}", text), f"{file}: a blank line at a brace"
    step = (project.folder / f"{project.name}_train_step.c").read_text()
    numbers = [int(n) for n in re.findall(r"POET_STEP\( *(\d+), \w+\)", step)]
    assert program.train is not None
    assert numbers == list(range(len(program.train.steps)))


@pytest.mark.parametrize(("net", "strategy"), PLANS)
def test_a_model_needs_only_memcpy_memset_and_memmove(
    net: str, strategy: str, made: Made, tmp_path: Path
) -> None:
    program, project = made(net, strategy)
    archive = library(project, tmp_path, M4F.flags, M4F.compiler)
    symbols = run("arm-none-eabi-nm", archive).stdout
    known = set(re.findall(r"^[0-9a-f]+ [A-Z] (\w+)$", symbols, re.M))
    needed = set(re.findall(r"^ +U (\w+)$", symbols, re.M)) - known
    assert needed <= {"memcpy", "memset", "memmove"}
    foreign = {s for s in known if not s.startswith((f"{program.name}_", "poet_"))}
    assert foreign == set(), "names of the model that could clash"
    interface = ("init", "train_step", "infer", "evaluate", "save", "load", "get_params", "set_params")
    assert {f"{program.name}_{f}" for f in interface} <= known


# In the user's hands

CALLER = """
#include "NAME.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned char arena[UPPER_ARENA_BYTES + 16];
static struct NAME model;

int main(void)
{
    unsigned char *const at = arena + (8 - (uintptr_t)arena % 8) % 8;
    (void)printf("%d", NAME_init(NULL, at, UPPER_ARENA_BYTES, NULL));
    (void)printf(" %d", NAME_init(&model, at + 4, UPPER_ARENA_BYTES, NULL));
    (void)printf(" %d", NAME_init(&model, at, UPPER_ARENA_BYTES - 1, NULL));
    (void)printf(" %d", NAME_init(&model, at, UPPER_ARENA_BYTES, NULL));
    (void)printf(" %d", model.arena == at);
    memset(&model, 0, sizeof model);
    (void)printf(" %d", NAME_init(&model, NULL, 0, NULL));
    (void)printf(" %d\\n", model.arena != NULL && model.arena != at);
    return 0;
}
"""


def compiled(project: Project, folder: Path, text: str, *flags: str, name: str = "caller.c") -> Path:
    """A program of the user's and the model's library."""
    caller = folder / name
    caller.write_text(text.replace("NAME", project.name).replace("UPPER", project.name.upper()))
    program = folder / "program"
    compiler = "g++" if name.endswith("pp") else "gcc"
    wanted = ["-Wall", "-Wextra", "-Werror", "-O1", *flags, *include(project), caller]
    done = run(compiler, *wanted, library(project, folder, flags if compiler == "gcc" else ()), "-o", program)
    assert done.returncode == 0, done.stderr
    return program


def test_the_callers_arena_is_checked_and_used(made: Made, tmp_path: Path) -> None:
    _, project = made("branches")
    program = compiled(project, tmp_path, CALLER, "-std=c11")
    assert run(program).stdout == f"{EINVAL} {EINVAL} {ENOMEM} 0 1 0 1\n"


def test_without_a_static_arena_the_caller_must_bring_one(made: Made, tmp_path: Path) -> None:
    program, project = made("branches")
    built = compiled(project, tmp_path, CALLER, "-std=c11", f"-D{project.name.upper()}_NO_STATIC_ARENA")
    assert run(built).stdout == f"{EINVAL} {EINVAL} {ENOMEM} 0 1 {EINVAL} 0\n"
    symbols = run("nm", "-S", "--size-sort", tmp_path / f"lib{project.name}.a").stdout
    assert f"{project.name}_arena" not in symbols
    assert program.arena_bytes > 1000


TRAINS = """
#include "NAME.h"
#include "runtime_c/blockdev/ram.h"
#include <stdio.h>
#include <stdlib.h>

static struct NAME NAME_model;
static struct poet_blockdev NAME_device;
static double NAME_store[BYTES_OF_NAME / 8 + 1]; /* aligned */
static float NAME_x[FLOATS_OF_NAME];
static NAME_label_t NAME_y[LABELS_OF_NAME];

static void NAME_read(const char *name, void *to, size_t size)
{
    FILE *file = fopen(name, "rb");
    if (file == NULL || fread(to, 1, size, file) != size) exit(1);
    (void)fclose(file);
}

static int NAME_start(void)
{
    NAME_read("NAME.store", NAME_store, BYTES_OF_NAME);
    NAME_read("NAME.x", NAME_x, sizeof NAME_x);
    NAME_read("NAME.y", NAME_y, sizeof NAME_y);
    poet_ram_dev_init(&NAME_device, NAME_store, BYTES_OF_NAME / 512, 512);
    return NAME_init(&NAME_model, NULL, 0, &NAME_device);
}

static int NAME_train(void)
{
    struct NAME_inputs in;
    float loss;
    in.x = NAME_x;
    return NAME_train_step(&NAME_model, &in, NAME_y, LR_OF_NAME, &loss);
}

static int NAME_write(void *context, const void *bytes, size_t size)
{
    return fwrite(bytes, 1, size, (FILE *)context) == size ? POET_OK : POET_EIO;
}

static int NAME_finish(void)
{
    FILE *const file = fopen("NAME.params", "wb");
    if (file == NULL) return POET_EIO;
    POET_TRY(NAME_get_params(&NAME_model, NAME_write, file));
    return fclose(file);
}
"""


def trainer(program: Program, project: Project, folder: Path) -> tuple[str, bytes]:
    """Functions that train a model on one batch, its files, and the parameters after two steps."""
    assert project.store is not None and project.label is not None
    image = project.store.read_bytes()
    (folder / f"{project.name}.store").write_bytes(image)
    feed = random_batches(project, 1, 4).take(np.arange(project.batch))
    label = feed.pop("y")
    (folder / f"{project.name}.x").write_bytes(feed["x"].tobytes())
    (folder / f"{project.name}.y").write_bytes(label.tobytes())
    machine = Machine.start(program)
    for _ in range(2):
        machine.train_step(feed, label, project.lr)
    values = machine.parameters()
    wanted = b"".join(values[t.name].tobytes() for t in program.persistent)
    text = (
        TRAINS.replace("BYTES_OF_NAME", str(len(image)))
        .replace("FLOATS_OF_NAME", str(feed["x"].size))
        .replace("LABELS_OF_NAME", str(label.size))
        .replace("LR_OF_NAME", f"{project.lr}f")
        .replace("NAME", project.name)
    )
    return text, wanted


RAM_DEVICE = resources.runtime() / "blockdev" / "ram.c"
AROUND = f"-I{resources.runtime().parent}"


def test_two_models_train_in_one_program_as_two_static_libraries(made: Made, tmp_path: Path) -> None:
    first, second = made("watch", "page_all"), made("branches")
    parts = [trainer(*m, tmp_path) for m in (first, second)]
    names = [project.name for _, project in (first, second)]
    body = "".join(f"    POET_TRY({n}_start());\n" for n in names)
    body += "".join(f"    POET_TRY({n}_train());\n" for n in [*names, *names])
    body += "".join(f"    POET_TRY({n}_finish());\n" for n in names)
    text = "".join(t for t, _ in parts) + f"int main(void)\n{{\n{body}    return 0;\n}}\n"
    (tmp_path / "both.c").write_text(text)
    libraries = [library(project, tmp_path) for _, project in (first, second)]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", AROUND, *include(first[1]), *include(second[1])]
    for order in (libraries, libraries[::-1]):
        done = run("gcc", *flags, tmp_path / "both.c", RAM_DEVICE, *order, "-o", tmp_path / "both")
        assert done.returncode == 0, done.stderr
        for n in names:
            (tmp_path / f"{n}.params").unlink(missing_ok=True)
        assert run(tmp_path / "both", cwd=tmp_path).returncode == 0
        for n, (_, wanted) in zip(names, parts, strict=True):
            assert (tmp_path / f"{n}.params").read_bytes() == wanted, n


@pytest.mark.parametrize("standard", ["c++11", "c++17", "c++20"])
def test_a_cpp_program_includes_links_and_trains(standard: str, made: Made, tmp_path: Path) -> None:
    program, project = made("shared", "page_all")
    text, wanted = trainer(program, project, tmp_path)
    name = project.name
    body = f"{name}_start() || {name}_train() || {name}_train() || {name}_finish()"
    (tmp_path / "sketch.cpp").write_text(f"{text}int main()\n{{\n    return {body};\n}}\n")
    flags = [f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic", AROUND, *include(project)]
    device = run("gcc", "-std=c11", *include(project), "-c", RAM_DEVICE, "-o", tmp_path / "ram.o")
    assert device.returncode == 0, device.stderr
    archive = library(project, tmp_path)
    done = run("g++", *flags, tmp_path / "sketch.cpp", tmp_path / "ram.o", archive, "-o", tmp_path / "sketch")
    assert done.returncode == 0, done.stderr
    assert run(tmp_path / "sketch", cwd=tmp_path).returncode == 0
    assert (tmp_path / f"{name}.params").read_bytes() == wanted
    cross = run(
        *("arm-none-eabi-g++", f"-std={standard}", *M4F.flags, "-Wall", "-Wextra", "-Werror", AROUND),
        *(*include(project), "-fsyntax-only", tmp_path / "sketch.cpp"),
    )
    assert cross.returncode == 0, cross.stderr


def test_a_hook_runs_between_all_steps_of_the_schedule(made: Made, tmp_path: Path) -> None:
    program, project = made("branches")
    assert program.train is not None
    hook = tmp_path / "hook.h"
    hook.write_text("extern int yields;\n#define POET_YIELD() (yields++)\n")
    text, _ = trainer(program, project, tmp_path)
    name = project.name
    text += "#undef POET_YIELD\nint yields;\n"
    text += f"int main(void)\n{{\n    if ({name}_start() || {name}_train()) return 1;\n"
    text += '    (void)printf("%d\\n", yields);\n    (void)' + f"{name}_finish;\n    return 0;\n}}\n"
    archive = library(project, tmp_path, ["-include", str(hook)])
    (tmp_path / "main.c").write_text(text)
    flags = ["-std=c11", "-O1", AROUND, *include(project)]
    done = run("gcc", *flags, tmp_path / "main.c", RAM_DEVICE, archive, "-o", tmp_path / "program")
    assert done.returncode == 0, done.stderr
    assert run(tmp_path / "program", cwd=tmp_path).stdout == f"{len(program.train.steps)}\n"


@pytest.mark.parametrize("plan", [("branches", "keep_all"), ("watch", "page_all"), ("mlp_mse", "page_all")])
def test_the_example_in_the_readme_compiles(plan: tuple[str, str], made: Made, tmp_path: Path) -> None:
    _, project = made(*plan)
    (example,) = re.findall(r"```c\n(.*?)```", (project.folder / "README.md").read_text(), re.DOTALL)
    (tmp_path / "example.c").write_text(f"{example}\nint (*use)() = (int (*)())adapt;\n")
    done = run(
        *("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", *include(project)),
        *("-fsyntax-only", tmp_path / "example.c"),
    )
    assert done.returncode == 0, done.stderr


# Wrong flags


def verdict(project: Project, folder: Path, *flags: str) -> int:
    """What NAME_init says of a build with these flags."""
    folder.mkdir()
    text = CALLER.split("int main")[0] + (
        'int main(void)\n{\n    (void)arena;\n    (void)printf("%d\\n", NAME_init(&model, NULL, 0, NULL));\n'
        "    return 0;\n}\n"
    )
    return int(run(compiled(project, folder, text, "-std=c11", *flags)).stdout)


def refused(project: Project, *flags: str) -> str:
    """The compiler's message where poet.h stops it."""
    done = run(
        "gcc", "-std=c11", *flags, *include(project), "-fsyntax-only", project.folder / f"{project.name}.c"
    )
    return done.stderr if done.returncode else ""


def test_flags_that_change_the_arithmetic_are_refused(made: Made, tmp_path: Path) -> None:
    _, project = made("branches")
    assert verdict(project, tmp_path / "right") == 0
    assert "-ffast-math" in refused(project, "-ffast-math")
    assert "-ffast-math" in refused(project, "-Ofast")
    assert verdict(project, tmp_path / "fma", "-O2", "-mfma", "-ffp-contract=fast") == EARITH
    assert verdict(project, tmp_path / "recip", "-O2", "-freciprocal-math") == EARITH
    careless = ("-O2", "-ffast-math", "-mfma", "-ffp-contract=fast", "-DPOET_ALLOW_FAST_MATH")
    assert verdict(project, tmp_path / "allowed", *careless) == 0


def test_x87_arithmetic_is_refused(made: Made) -> None:
    _, project = made("branches")
    if run("gcc", "-m32", "-fsyntax-only", "-xc", "/dev/null").returncode:
        pytest.skip("this gcc has no -m32")
    message = refused(project, "-m32", "-mfpmath=387", "-ffreestanding")
    assert "floats must be evaluated as float" in message
