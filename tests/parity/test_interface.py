"""Save, load, parameters in and out: what holds after a power cut, an error, in a new process.

`shared` has dropout and Adam, so a resumed run also needs the seed, the step and the optimizer's state;
`vgg` is so large that weights are streamed, so that the target never holds them as a whole.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from poetgen import pipeline, resources
from poetgen.boards import board
from poetgen.op import Array
from poetgen.program import Program
from poetgen.project import Project
from tests.parity.builds import generated, options, within
from tests.parity.sessions import CUTS, ERANGE, ESTATE, START, TWIN, Do, Target, defines, target

SEED = (Do.SEED, 77)
HOMES = ("ram", "mixed", "store")
ALL = (*HOMES, "streamed")
M4F = "qemu_mps2_an386"
Make = Callable[..., Target]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """A project whose state has its home where asked, for the M4F, built for it or for this computer."""

    @cache
    def project_of(homes: str) -> tuple[Program, Project]:
        folder = tmp_path_factory.mktemp(homes)
        wanted = options("vgg" if homes == "streamed" else "shared", folder, M4F)
        if homes == "mixed":
            wanted = within(wanted, "half_way")
        elif homes == "streamed":
            wanted = replace(wanted, ram_bytes=pipeline.least_ram(wanted)[0] * 4 // 5 // 8 * 8, stream="on")
        else:
            wanted = replace(wanted, strategy={"ram": "keep_all", "store": "page_all"}[homes])
        program, project = generated(wanted, folder / "project")
        assert (bool(program.members), bool(program.stored)) == (homes != "store", homes != "ram")
        streamed = [p.tensor for p in program.store.pages.values() if p.streamed and p.region == "slot"]
        assert bool(streamed) == (homes == "streamed")
        return program, project

    @cache
    def built(homes: str, on: str) -> Target:
        program, project = project_of(homes)
        with pytest.MonkeyPatch.context() as patch:
            if on == "host":
                patch.setenv("CFLAGS", "-fsanitize=address,undefined -fno-sanitize-recover=all")
                patch.setenv("LDFLAGS", "-fsanitize=address,undefined")
            return target(program, project, board(on), project.folder.parent)

    return lambda homes, on="host": built(homes, on)


def straight(model: Target, steps: int) -> Array:
    """Parameters after so many steps in one process."""
    model.fresh_store()
    assert model.must(START, SEED, (Do.TRAIN, steps), Do.GET) == steps
    return model.params


@pytest.mark.parametrize("on", ["host", pytest.param(M4F, marks=pytest.mark.qemu)])
@pytest.mark.parametrize("homes", ALL)
def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(homes: str, on: str, made: Make) -> None:
    model = made(homes, on)
    wanted = straight(model, 10)
    model.fresh_store()
    assert model.must(START, SEED, (Do.TRAIN, 5), Do.SAVE) == 5
    assert model.must(START, Do.LOAD, (Do.TRAIN, 2), Do.SAVE, (Do.TRAIN, 1), Do.SAVE) == 8
    assert model.must(START, Do.LOAD, (Do.TRAIN, 2), Do.GET) == 10
    assert np.array_equal(model.params, wanted)


@pytest.mark.parametrize("homes", ALL)
def test_the_host_and_the_emulated_core_resume_each_others_stores(homes: str, made: Make) -> None:
    host, core = made(homes), made(homes, M4F)
    wanted = straight(host, 6)
    host.fresh_store()
    host.must(START, SEED, (Do.TRAIN, 3), Do.SAVE)
    (core.folder / "store.bin").write_bytes(host.store)
    assert core.must(START, Do.LOAD, (Do.TRAIN, 2), Do.SAVE) == 5
    (host.folder / "store.bin").write_bytes(core.store)
    assert host.must(START, Do.LOAD, (Do.TRAIN, 1), Do.GET) == 6
    assert np.array_equal(host.params, wanted)


@pytest.mark.parametrize("homes", ALL)
def test_nothing_is_loaded_where_nothing_was_saved(homes: str, made: Make) -> None:
    model = made(homes)
    fresh = straight(model, 0)
    before = model.store
    model.fresh_store()
    assert model.play(START, SEED, Do.LOAD, Do.GET)[2] == (ESTATE, 0)
    assert np.array_equal(model.params, fresh)
    model.must(START, SEED, (Do.TRAIN, 0), Do.GET)
    assert model.store == before == model.project.store.read_bytes()  # type: ignore[union-attr]


def test_a_plan_that_never_pages_trains_without_a_store_and_says_that_it_cannot_save(made: Make) -> None:
    model = made("ram")
    wanted = straight(model, 4)
    answers = model.play((Do.INIT, 0), SEED, (Do.TRAIN, 4), Do.SAVE, Do.LOAD, Do.GET)
    assert [rc for rc, _ in answers] == [0, 0, 0, ESTATE, ESTATE, 0]
    assert np.array_equal(model.params, wanted)


@pytest.mark.parametrize("homes", ["mixed", "store", "streamed"])
def test_a_plan_that_pages_refuses_to_start_without_a_store(homes: str, made: Make) -> None:
    assert made(homes).play((Do.INIT, 0))[0][0] == -1


def test_state_in_the_store_alone_needs_no_save(made: Make) -> None:
    model = made("store")
    wanted = straight(model, 6)
    model.fresh_store()
    model.must(START, SEED, (Do.TRAIN, 4))
    assert model.must(START, Do.LOAD, (Do.TRAIN, 2), Do.GET) == 6
    assert np.array_equal(model.params, wanted)


def test_two_halves_of_different_steps_are_not_taken_for_a_state(made: Make) -> None:
    model = made("mixed")
    model.fresh_store()
    model.must(START, SEED, (Do.TRAIN, 2), Do.SAVE, (Do.TRAIN, 1))
    assert model.play(START, Do.LOAD)[1] == (ESTATE, 3)


@pytest.mark.parametrize("homes", ["ram", "mixed", "streamed"])
def test_with_both_parts_committed_each_step_is_saved(homes: str, made: Make) -> None:
    model = made(homes)
    wanted = straight(model, 6)
    model.fresh_store()
    model.must(START, SEED, Do.COMMIT_BOTH, (Do.TRAIN, 3))
    assert model.must(START, Do.LOAD, (Do.TRAIN, 3), Do.GET) == 6
    assert np.array_equal(model.params, wanted)


def test_saving_each_step_or_never_trains_the_same_bits(made: Make) -> None:
    wanted = straight(made("ram"), 6)
    for homes in ("mixed", "store"):
        assert np.array_equal(straight(made(homes), 6), wanted)
    model = made("mixed")
    model.fresh_store()
    model.must(START, SEED, Do.COMMIT_BOTH, (Do.TRAIN, 6), Do.GET)
    assert np.array_equal(model.params, wanted)


def test_loading_goes_back_to_the_save(made: Make) -> None:
    model = made("ram")
    wanted = straight(model, 5)
    model.fresh_store()
    model.must(START, SEED, (Do.TRAIN, 3), Do.SAVE, (Do.TRAIN, 4))
    assert model.must(START, Do.LOAD) == 3
    assert model.must(START, SEED, (Do.TRAIN, 6), Do.LOAD, (Do.TRAIN, 2), Do.GET) == 5
    assert np.array_equal(model.params, wanted)


@pytest.mark.parametrize("homes", ALL)
def test_parameters_that_are_set_are_those_that_are_got_and_are_saved(homes: str, made: Make) -> None:
    model = made(homes)
    trained = straight(model, 5)
    wanted = straight(model, 7)
    (model.folder / "new.bin").write_bytes(trained.tobytes())
    model.fresh_store()
    # five steps with other parameters, then those that training would have left
    model.must(START, (Do.SEED, 3), (Do.TRAIN, 5), SEED, (Do.SET, TWIN), Do.GET)
    assert np.array_equal(model.params, trained)
    assert model.must(START, Do.LOAD, Do.GET) == 5
    assert np.array_equal(model.params, trained)
    assert model.must(START, Do.LOAD, (Do.TRAIN, 2), Do.GET) == 7
    assert np.array_equal(model.params, wanted)


@pytest.mark.parametrize("homes", ALL)
def test_a_source_that_fails_leaves_the_old_parameters(homes: str, made: Make) -> None:
    model = made(homes)
    old = straight(model, 2)
    new = np.arange(old.size, dtype="<f4") / 8
    (model.folder / "new.bin").write_bytes(new.tobytes())
    for nbytes in (0, 4, old.nbytes // 3, old.nbytes - 1):
        model.fresh_store()
        answers = model.play(START, SEED, (Do.TRAIN, 2), (Do.SET, nbytes), Do.GET)
        assert [rc for rc, _ in answers] == [0, 0, 0, ERANGE, 0]
        assert np.array_equal(model.params, old), nbytes
    straight(model, 2)
    model.must(START, (Do.SET, TWIN), Do.GET)
    assert np.array_equal(model.params.view("<f4"), new)


def test_without_a_store_a_source_that_fails_leaves_what_it_gave_before(made: Make) -> None:
    model = made("ram")
    old = straight(model, 2)
    new = np.arange(old.size, dtype="<f4").view("<u4")
    (model.folder / "new.bin").write_bytes(new.tobytes())
    first = model.program.persistent[0].spec.size
    answers = model.play((Do.INIT, 0), SEED, (Do.TRAIN, 2), (Do.SET, 4 * first + 4), Do.GET)
    assert [rc for rc, _ in answers] == [0, 0, 0, ERANGE, 0]
    assert np.array_equal(model.params, np.concatenate([new[:first], old[first:]]))
    model.must((Do.INIT, 0), (Do.SET, TWIN), Do.GET)
    assert np.array_equal(model.params, new)


@pytest.mark.parametrize("homes", HOMES)
def test_inference_between_training_steps_changes_nothing(homes: str, made: Make) -> None:
    model = made(homes)
    wanted = straight(model, 4)
    model.fresh_store()
    model.must(START, SEED, (Do.TRAIN, 2), (Do.INFER, 7), (Do.TRAIN, 2), (Do.INFER, 0), Do.GET)
    assert np.array_equal(model.params, wanted)
    output = np.fromfile(model.folder / "out.bin", "<u4")
    other = made("ram")
    straight(other, 4)
    other.fresh_store()
    other.must(START, SEED, (Do.TRAIN, 4), (Do.INFER, 0))
    assert np.array_equal(output, np.fromfile(other.folder / "out.bin", "<u4"))


@pytest.mark.parametrize("erase_sectors", [0, 1])
@pytest.mark.parametrize("homes", ALL)
def test_a_call_that_is_cut_short_leaves_all_of_the_old_state_or_all_of_the_new(
    homes: str, erase_sectors: int, made: Make, tmp_path: Path
) -> None:
    """Each device call fails in turn; power goes at each sector. On a card, and on flash that is erased."""
    model = made(homes)
    folder = model.project.folder
    (tmp_path / "cuts.c").write_text(
        defines(model.project) + f"#define ERASE_SECTORS {erase_sectors}u\n" + CUTS.read_text()
    )
    runtime = resources.runtime()
    sources = sorted(
        {
            *folder.glob(f"{model.project.name}*.c"),
            *(folder / "runtime" / "kernels").glob("*.c"),
            *(folder / "runtime" / "streams").glob("*.c"),
            *(folder / "runtime" / "pager").glob("*.c"),
        }
    )
    program = tmp_path / "cuts"
    made_of = [
        tmp_path / "cuts.c",
        *sources,
        runtime / "blockdev" / "emulated.c",
        runtime / "platform" / "posix.c",
    ]
    include = [f"-I{folder}", f"-I{folder / 'runtime' / 'include'}", f"-I{runtime.parent}"]
    flags = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"]
    subprocess.run(["gcc", *flags, *include, *made_of, "-o", program], check=True)
    model.fresh_store()
    done = subprocess.run([program], cwd=model.folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
