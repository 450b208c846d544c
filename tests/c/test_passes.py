"""Passes and pooling over the store: the reference's bits for any piece, every call and sector as predicted.

streamed.py draws nodes, sets of tensors in the store and pieces, and makes the variants' own C calls.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import streamed
from streamed import Device, check, draw, random_node, run

from poetgen import boards
from poetgen.graph import Node
from poetgen.op import Spec, f32
from poetgen.ops.batchnorm import BatchNormTrain
from poetgen.ops.batchnorm_relu import AddRelu, BatchNormAddReluDx
from poetgen.ops.pool import MaxPool, Window
from poetgen.ops.relu import Relu
from poetgen.ops.sgd import SgdUpdate
from poetgen.streams import Prices, StreamVariant, passes, pool
from tests.ops.kernels import same_bits

HERE = Path(__file__).parent
RUNTIME = streamed.ROOT / "runtime_c"
WARNINGS = (
    "-std=c11 -Wall -Wextra -Werror -Wshadow -Wconversion -Wdouble-promotion -Wfloat-conversion "
    "-Wundef -Wstrict-prototypes -Wmissing-prototypes -Wcast-align=strict -Wcast-qual -Wvla "
    "-Wnull-dereference -Wlogical-op -Wstack-usage=512 -fno-common -ffp-contract=off"
).split()
SD = streamed.SD
SLOW_CORE = Prices(0.109e-3, 1 / 4.617e6, 0.113e-3, 1 / 4.440e6, 1 / 1e6)
FREE = Prices(0.0, 1 / 4.617e6, 0.0, 1 / 4.440e6)


def sanitized(seed: int, cases: int, *instead: str) -> subprocess.CompletedProcess[str]:
    """Run cases with every operand alone on a heap that the address sanitizer watches."""
    libraries = (
        subprocess.run(["gcc", f"-print-file-name={lib}.so"], check=True, capture_output=True, text=True)
        for lib in ("libasan", "libubsan")
    )
    environment = {"LD_PRELOAD": " ".join(done.stdout.strip() for done in libraries)}
    return subprocess.run(
        [sys.executable, HERE / "streamed.py", str(seed), str(cases), *instead],
        env={**os.environ, **environment, "ASAN_OPTIONS": "detect_leaks=0"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def counted(seed: int, cases: int) -> dict[str, int]:
    """How many cases of each op had the reference's bits and the predicted traffic."""
    done = sanitized(seed, cases)
    assert done.returncode == 0, done.stderr[-6000:]
    return {name: int(n) for name, n in (line.split() for line in done.stdout.splitlines())}


def test_any_set_of_tensors_in_the_store_and_any_piece_give_the_same_bits() -> None:
    seen = counted(1, 2000)
    assert set(seen) == {cls.__name__ for cls in (*passes.KNOWN, *pool.KNOWN)}
    assert min(seen.values()) >= 15


@pytest.mark.slow
def test_many_more_cases_give_the_same_bits() -> None:
    assert sum(counted(2, 12000).values()) == 12000


# Mutants: each must be found by the same cases.

MUTANTS = {
    "a sum that starts anew with each run": (
        "stream_batchnorm",
        "poet_batchnorm_relu_dx_f32(&of, POET_CONTINUE, poet_piece",
        "poet_batchnorm_relu_dx_f32(&of, POET_START_ZERO, poet_piece",
    ),
    "a result over an operand where another one is in the arena": (
        "pass",
        "if (in_store || p->residents == 0) {",
        "if (1) {",
    ),
    "the first channel for every run": (
        "stream_batchnorm",
        "poet_batchnorm_dx_f32(&of, d, g + k.chan,",
        "poet_batchnorm_dx_f32(&of, d, g,",
    ),
    "the mean of each piece's own count": (
        "stream_batchnorm",
        "s->batch * s->size, poet_piece",
        "k.batch * k.size, poet_piece",
    ),
    "the new value over the old one": (
        "pass",
        "p->lane[k].to = next.sector;",
        "p->lane[k].to = old.sector; (void)next;",
    ),
    "a sum in the place of what is read afterwards": (
        "stream_relu",
        "to = poet_pass_result(&p, dx), mask = poet_pass_operand(&p, y);",
        "mask = poet_pass_operand(&p, y), to = poet_pass_result(&p, dx);",
    ),
    "no erase": ("pass", "if (lane->is_written) POET_TRY(", "if (0) POET_TRY("),
    "an error that is dropped": (
        "stream_mean",
        "POET_TRY(poet_pass_write(&p));",
        "(void)poet_pass_write(&p);",
    ),
    "a buffer that is read again": (
        "pass",
        "is_buffer || p->count == p->size",
        "is_buffer",
    ),
    "a band that takes the image's padding": (
        "stream_pool",
        "band->pad_h += x->row - y->row * t->s->stride_h;",
        "",
    ),
    "padding that counts from the band on": ("stream_pool", "band.before_h += first;", ""),
    "rows that a dilated window reaches left out": (
        "stream_pool",
        "(s->kernel_h - 1) * s->dilation_h + 1",
        "s->kernel_h",
    ),
    "the index of the first window for every band": (
        "stream_pool",
        "poet_maxpool_dx_f32(&band, from, index + index_at(&t), to)",
        "poet_maxpool_dx_f32(&band, from, index, to)",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_nest_is_seen(name: str, tmp_path: Path) -> None:
    family, old, new = MUTANTS[name]
    text = (RUNTIME / "streams" / f"{family}.c").read_text()
    assert text.count(old) == 1, (name, text.count(old))
    (tmp_path / f"{family}.c").write_text(text.replace(old, new))
    done = sanitized(1, 2000, str(tmp_path / f"{family}.c"))
    assert done.returncode != 0
    assert re.search("^AssertionError|ERROR: AddressSanitizer|runtime error", done.stderr, re.MULTILINE)


# What is chosen


def test_the_piece_is_the_fastest_that_fits() -> None:
    """Against every piece there is; within 2 %, and in no more room than it was given."""
    rng = random.Random(3)
    for _ in range(300):
        node, _arrays = random_node(rng)
        over = passes.describe(node)
        if over is None:
            continue
        sector_bytes = rng.choice((256, 512))
        mode = rng.choice(tuple(over.modes(node)))
        limit = rng.randint(0, 4 * over.size * 4)
        prices = rng.choice((SD, FREE, SLOW_CORE))
        piece = passes.choose(over, mode, limit, sector_bytes, prices)
        sector = sector_bytes // 4
        fitting = [
            p
            for p in range(sector, over.size + sector, sector)
            if over.buffers(mode) * min(p, over.size) * 4 <= limit
        ]
        assert (piece is None) == (not fitting)
        if piece is not None:
            assert piece in fitting
            times = {p: over.time_s(mode, p, sector_bytes, prices) for p in fitting}
            assert times[piece] <= min(times.values()) * 1.02


def test_variants_fit_into_the_room_with_what_is_resident() -> None:
    """Output 0 in the place of an operand, where it may be."""
    rng = random.Random(4)
    for _ in range(200):
        node, _arrays = random_node(rng)
        room = rng.randint(0, 40000)
        for v in passes.variants(node, 512, room, SD):
            resident = sum(s.nbytes for i, s in enumerate(node.in_specs) if i not in v.streamed_inputs)
            places = [k for k in range(len(node.out_specs)) if k not in v.streamed_outputs]
            if streamed.in_place_choices(node, v) != [None]:
                places.remove(0)
            resident += sum(node.out_specs[k].nbytes for k in places)
            assert v.workspace_bytes + resident <= room


def block(op: object, large: int, shape: tuple[int, ...], outputs: int) -> Node:
    x, c = Spec(shape, layout="rows"), f32(shape[1])
    vectors = 3 if isinstance(op, BatchNormAddReluDx) else 0
    specs = (*[x] * large, *[c] * vectors)
    outs = (x, c, c, x)[:outputs] if vectors else (x,)
    names = tuple(f"in{i}" for i in range(len(specs)))
    return Node("node", op, names, tuple(f"out{k}" for k in range(len(outs))), specs, outs)  # type: ignore[arg-type]


def test_five_tensors_of_a_residual_block_pass_through_three_sectors() -> None:
    node = block(BatchNormAddReluDx(), 3, (1, 64, 32, 32), 4)
    vectors = 5 * 256
    found = passes.variants(node, 512, vectors + 3 * 512, SD)
    assert {(v.streamed_inputs, v.streamed_outputs, v.workspace_bytes) for v in found} == {
        ((0, 1, 2), (0, 3), 1536)
    }
    assert passes.variants(node, 512, vectors + 3 * 512 - 1, SD) == ()


@pytest.mark.parametrize("room", [8192, 1 << 17])
def test_the_least_workspace_is_offered_in_any_room(room: int) -> None:
    node = block(BatchNormAddReluDx(), 3, (1, 64, 32, 32), 4)
    assert min(v.workspace_bytes for v in passes.variants(node, 512, room, SD)) == 1536
    nest = pool.describe(pooling())
    assert nest is not None
    least = 4 * sum(pool.buffers(nest, pool.Streamed(True, True), pool.Tile(1, 1)))
    index = pooling().out_specs[1].nbytes
    assert min(v.workspace_bytes for v in pool.variants(pooling(), 512, index + room, SD)) == least


def modes_of(found: tuple[StreamVariant, ...]) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    return {(v.streamed_inputs, v.streamed_outputs) for v in found}


def test_every_set_of_large_tensors_is_a_way() -> None:
    found = passes.variants(block(AddRelu(), 2, (1, 8, 16, 16), 1), 512, 1 << 20, SD)
    sets = itertools.chain(*(itertools.combinations((0, 1, "y"), n) for n in (1, 2, 3)))
    assert modes_of(found) == {(tuple(i for i in s if i != "y"), (0,) if "y" in s else ()) for s in sets}


def test_a_tensor_that_is_added_to_itself_is_in_one_place() -> None:
    x = Spec((1, 8, 16, 16))
    node = Node("node", AddRelu(), ("x", "x"), ("y",), (x, x), (x,))
    assert modes_of(passes.variants(node, 512, 1 << 20, SD)) == {((0, 1), ()), ((0, 1), (0,)), ((), (0,))}


def test_what_is_read_straight_into_the_arena_takes_no_workspace() -> None:
    found = passes.variants(block(Relu(), 1, (1, 8, 16, 16), 1), 512, 8192, SD)
    (v,) = (v for v in found if v.streamed_inputs == (0,) and not v.streamed_outputs)
    assert (v.workspace_bytes, v.reads, v.bytes_in) == (0, 1, 8192)


def test_statistics_of_a_batch_read_three_times_what_no_buffer_holds() -> None:
    x, c = Spec((2, 8, 16, 16), layout="rows"), f32(8)
    node = Node("node", BatchNormTrain(), ("x", "g", "b"), ("y", "m", "v"), (x, c, c), (x, c, c))
    vectors = 4 * c.nbytes
    small = [v for v in passes.variants(node, 512, 4096 + vectors, SD) if v.streamed_outputs]
    large = [v for v in passes.variants(node, 512, x.nbytes + vectors, SD) if v.streamed_inputs]
    assert {v.bytes_in for v in small if v.streamed_inputs} == {3 * x.nbytes}
    assert min(v.bytes_in for v in large) == x.nbytes


def test_tensors_below_a_sector_are_not_streamed() -> None:
    assert passes.variants(block(Relu(), 1, (1, 8, 4, 4), 1), 512, 1 << 20, SD) == ()


def test_pooling_takes_the_fastest_tile_of_its_kind_that_fits() -> None:
    """Against every number of rows of every number of channels that it tries."""
    rng = random.Random(8)
    for _ in range(40):
        node, _arrays = streamed.random_pool(rng)
        nest, choices = pool.describe(node), pool.modes(node)
        if not choices:
            continue
        assert nest is not None
        mode, limit = rng.choice(choices), rng.randint(0, 4 * max(s.nbytes for s in node.in_specs))
        found = pool.choose(nest, mode, limit, 512, SD)
        tiles = [pool.Tile(c, r) for c in range(1, nest.channels + 1) for r in range(1, nest.made.rows + 1)]
        fitting = [t for t in tiles if 4 * sum(pool.buffers(nest, mode, t)) <= limit]
        assert (found is None) == (not fitting)
        if found is not None:
            times = [pool.traffic(nest, mode, t, 512).time_s(SD) for t in fitting]
            assert found[0] in fitting and found[1].time_s(SD) <= 1.5 * min(times)


def pooling() -> Node:
    op, x = MaxPool(Window.of((3, 3), (2, 2), (1, 1, 1, 1))), Spec((1, 64, 32, 32), layout="rows")
    return Node("node", op, ("x",), ("y", "index"), (x,), op.infer(x))


def test_rows_that_two_bands_need_are_read_once() -> None:
    node = pooling()
    (x,), (y, index) = node.in_specs, node.out_specs
    found = [v for v in pool.variants(node, 512, index.nbytes + 65536, SD) if v.workspace_bytes > 8192]
    assert len(found) > 1
    assert {(v.bytes_in, v.bytes_out) for v in found} == {(x.nbytes, y.nbytes)}


def test_the_old_parameter_is_still_there_after_an_update() -> None:
    rng = random.Random(5)
    w = f32(700)
    arrays = (draw(rng, w.shape, False), draw(rng, w.shape, False), draw(rng, (), False))
    node = Node("node", SgdUpdate(), ("w", "dw", "lr"), (), (w, w, f32()), ())
    for v in passes.variants(node, 512, 8192, SD):
        done = run(node, v, arrays, Device())  # asserts that only the new place changes
        assert same_bits(done.made[0], node.op.reference(*arrays)[0])


def test_each_call_of_the_device_may_fail() -> None:
    rng = random.Random(6)
    node = block(AddRelu(), 2, (1, 8, 9, 9), 1)
    arrays = tuple(draw(rng, s.shape, False) for s in node.in_specs)
    over = passes.describe(node)
    assert over is not None
    mode = max(over.modes(node), key=lambda m: len(m.inputs) + len(m.results))
    v = passes.variant(over, mode, 256, 512)
    done = run(node, v, arrays, Device())
    check(node, v, arrays, Device(), rng)
    results = [run(node, v, arrays, Device(fail_at=k)).result for k in range(1, done.calls + 2)]
    assert results == [streamed.EIO] * done.calls + [0]


# What it is made of


@pytest.mark.parametrize("board_name", ["host", "qemu_microbit", "qemu_mps2_an386"])
@pytest.mark.parametrize("family", [f for f in streamed.STREAMS if f != "stream"])
def test_nests_compile_without_warnings_in_little_stack_and_keep_no_state(
    family: str, board_name: str, tmp_path: Path
) -> None:
    board = boards.board(board_name)
    out = tmp_path / "nest.o"
    warnings = [w for w in WARNINGS if not (board.is_host and w.startswith("-Wstack"))]
    flags = [board.compiler, *board.flags, *warnings, "-O2", f"-I{RUNTIME / 'include'}"]
    subprocess.run([*flags, "-c", RUNTIME / "streams" / f"{family}.c", "-o", out], check=True)
    nm = board.compiler.replace("gcc", "nm")
    symbols = subprocess.run([nm, out], capture_output=True, text=True, check=True).stdout
    assert not re.findall(r" [dDbBC] ", symbols), "a nest keeps state"
