"""One digest: the interpreter, this computer and every core, at every budget, to the last bit.

The emulated cores run soft float (M0, M3), the FPU's single precision (M4F, M7, M33) and the M55 without
vectors. The interpreter of the keep-all plan is the yardstick.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from poetgen.boards import board
from poetgen.cost import aligned
from poetgen.run import Job, RunResult, run
from poetgen.verify import verify
from tests.parity.builds import (
    BUDGETS,
    STEPS,
    batches,
    first_difference,
    generated,
    options,
    same,
    touched_bytes,
    truth,
    within,
)

M0, M3, M4F = "qemu_microbit", "qemu_mps2_an385", "qemu_mps2_an386"
M7, M33, M55 = "qemu_mps2_an500", "qemu_mps2_an505", "qemu_mps3_an547"
QUICK = ("watch", "vgg")
MORE = ("conv2d_grouped", "residual_bn", "separable_adam", "mlp_mse", "shared", "tokens", "transformer")


def check(net: str, on: str, budget: str, folder: Path, *, measure: bool) -> RunResult:
    """Train on a board; its bits are the yardstick's."""
    wanted = within(options(net, folder, on), budget)
    program, project = generated(wanted, folder / net)
    result = run(project, board(on), Job(batches(project), STEPS, measure=measure))
    trained = dict(result.parameters)
    assert same(trained, truth(net)), first_difference(trained, truth(net))
    assert program.peak_bytes <= (wanted.ram_bytes or 0)
    if measure:
        assert result.arena_bytes_measured == touched_bytes(program)
        assert aligned(touched_bytes(program)) == project.arena_bytes
    sectors = project.sector_bytes
    assert result.outcome.sectors_written * sectors == STEPS * project.traffic.bytes_out
    assert result.outcome.sectors_read * sectors == STEPS * project.traffic.bytes_in
    if budget == "min_ram":
        assert project.traffic.bytes_in > 0
    return result


@pytest.mark.qemu
@pytest.mark.parametrize("on", ["host", M3, M4F])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("net", QUICK)
def test_bits_are_the_same_on_every_core_at_every_budget(
    net: str, budget: str, on: str, tmp_path: Path
) -> None:
    check(net, on, budget, tmp_path, measure=on == "host" or (on == M4F and budget == "min_ram"))


@pytest.mark.qemu
@pytest.mark.parametrize(("net", "on"), [("watch", M7), ("watch", M33), ("watch", M55), ("mlp_mse", M0)])
def test_bits_are_the_same_on_every_kind_of_core(net: str, on: str, tmp_path: Path) -> None:
    check(net, on, "half_way", tmp_path, measure=False)


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(
    ("net", "on"),
    [
        *((net, on) for net in MORE for on in ("host", M3, M4F)),
        *((net, on) for net in (*QUICK, *MORE) for on in (M7, M33, M55)),
        *((net, M0) for net in ("mlp_mse", "conv1d_frozen", "tokens")),
    ],
)
def test_bits_are_the_same_on_more_cores_and_networks(net: str, on: str, budget: str, tmp_path: Path) -> None:
    check(net, on, budget, tmp_path, measure=budget == "min_ram")


SWAPPED = """\
    for (int32_t c = 0; c < channels; c++) {
        for (int32_t i = 0; i < size; i++) {
            for (int32_t n = 0; n < batch; n++) {
                db[c] += dy[(n * channels + c) * size + i];
            }
        }
    }
}
"""


@pytest.mark.qemu
def test_swapping_two_loops_of_one_kernel_on_one_core_changes_the_digest(tmp_path: Path) -> None:
    """Else equal digests would say nothing. The sum is the same, position by position over the samples."""
    wanted = within(options("vgg", tmp_path, M4F), "keep_all")
    program, project = generated(wanted, tmp_path / "vgg")
    source = next(project.folder.rglob("channel_sum.c"))
    before, loops = source.read_text().split("    for (int32_t n = 0; n < batch; n++) {\n")
    assert "db[c] = sum;" in loops
    source.write_text(before + SWAPPED)
    job = Job(batches(project), STEPS, measure=False)
    swapped = run(project, board(M4F), job)
    assert not same(dict(swapped.parameters), truth("vgg"))
    assert swapped.losses[0] == run(project, board("host"), job).losses[0]  # the forward pass has no such sum
    found = verify(program, project, board(M4F), job)
    assert "channel_sum" in found.differences[0].node
