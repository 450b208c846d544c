"""Each row of the RAM table is in the ELF, byte for byte, and flags that fuse are refused on the core."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from poetgen.boards import board
from poetgen.build import build, run_target, write_job
from poetgen.errors import BuildError
from poetgen.op import C_TYPE
from poetgen.program import Program
from poetgen.project import Project
from tests.parity.builds import batches, generated, options, within

M4F = board("qemu_mps2_an386")


def project_of(homes: str, folder: Path) -> tuple[Program, Project]:
    """State in RAM, in the store, or in both."""
    wanted = options("watch", folder, M4F.name)
    if homes == "mixed":
        return generated(within(wanted, "half_way"), folder / "watch")
    strategy = {"ram": "keep_all", "store": "page_all"}[homes]
    return generated(replace(wanted, strategy=strategy), folder / "watch")


def symbols(elf: Path) -> dict[str, int]:
    """Sizes of the objects of a program."""
    listed = subprocess.run(["arm-none-eabi-nm", "-S", elf], capture_output=True, text=True, check=True)
    return {
        name: int(size, 16) for size, name in re.findall(r"^\w+ (\w+) [bBdD] (\w+)$", listed.stdout, re.M)
    }


def sizeof(project: Project, expressions: list[str], folder: Path) -> list[int]:
    """What the board's compiler says of sizes: the array sizes of an object file."""
    source = folder / "sizes.c"
    lines = [f"extern char size_{k}[]; char size_{k}[{e}];" for k, e in enumerate(expressions)]
    text = [f'#include "{project.name}.h"', f"static struct {project.name} m;", *lines]
    source.write_text("\n".join([*text, "char use(void); char use(void) { return *(char *)&m; }", ""]))
    include = [f"-I{project.folder}", f"-I{project.folder / 'runtime' / 'include'}"]
    command = [M4F.compiler, "-std=c11", *M4F.flags, *include, "-c", source, "-o", folder / "sizes.o"]
    subprocess.run(command, check=True)
    found = symbols(folder / "sizes.o")
    return [found[f"size_{k}"] for k in range(len(expressions))]


@pytest.mark.qemu
@pytest.mark.parametrize("homes", ["ram", "mixed", "store"])
def test_each_row_of_the_ram_table_is_in_the_elf(homes: str, tmp_path: Path) -> None:
    program, project = project_of(homes, tmp_path)
    table = {row.what: row.nbytes for row in program.ram}
    found = symbols(build(project, M4F).elf)

    assert found["watch_arena"] == table.pop("arena") == project.arena_bytes
    assert found["model"] == program.struct_bytes
    buffers = [found[f"input_{c}"] for c in program.input_names.values()] + [found["label"]]
    assert sum(-(-b // 8) * 8 for b in buffers) == table.pop("input and label of one batch")

    kinds = {"param": "parameters in RAM", "state": "optimizer state in RAM"}
    members = [m for m in program.members if m.kind in kinds]
    sizes = sizeof(
        project, [*(f"sizeof m.{m.c}" for m in members), "sizeof m.pager", "sizeof m.bounce"], tmp_path
    )
    assert sizes[: len(members)] == [m.spec.size * 4 for m in members]
    assert all(C_TYPE[m.spec.dtype] == "float" for m in members)
    in_ram = dict.fromkeys(kinds.values(), 0)
    for member, size in zip(members, sizes, strict=False):
        in_ram[kinds[member.kind]] += -(-size // 8) * 8
    for what, nbytes in in_ram.items():
        assert table.pop(what, 0) == nbytes
    assert sum(sizes[-2:]) == table.pop("pager: state and bounce sector")
    rest = table.pop("rest of struct")
    assert rest == found["model"] - sum(in_ram.values()) - sum(sizes[-2:])
    assert 0 < rest <= 24, "arena, seed, step, commits and what aligns"
    assert table == {}, "rows that nobody found"
    assert program.peak_bytes == found["watch_arena"] + found["model"] + sum(-(-b // 8) * 8 for b in buffers)


@pytest.mark.qemu
def test_a_build_that_fuses_on_the_m4f_is_refused_when_it_starts(tmp_path: Path) -> None:
    _, project = project_of("ram", tmp_path)
    built = build(project, M4F, extra_flags="-ffp-contract=fast", name="fused")
    work = tmp_path / "work"
    work.mkdir()
    assert project.store is not None
    (work / "store.bin").write_bytes(project.store.read_bytes())
    count = batches(project).write(work / "data.bin", 1)
    write_job(work, steps=1, batches=count, lr=0.01)
    with pytest.raises(BuildError, match="POET_EARITH"):
        run_target(built, work, 60.0)
    right = build(project, M4F)
    assert run_target(right, work, 60.0).status == 0
