"""Streamed convolutions: the resident kernels' bits, and every device call and sector as predicted.

streams_random.c compares under sanitizers; here are the cases (random shapes, strides, pads, dilations,
groups, layouts, tilings, sets of streamed operands) and the predictions of poetgen.streams.
"""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import pytest

from poetgen import resources
from poetgen.graph import Node
from poetgen.op import In, Op, Spec, StreamIn, StreamOut, Struct, f32
from poetgen.ops import conv as conv_op
from poetgen.ops.adam import AdamUpdate
from poetgen.ops.conv import Geometry
from poetgen.ops.fused_update import GradientAdam, GradientMomentum, GradientSgd
from poetgen.ops.gemm import Gemm, GemmDw, GemmDx
from poetgen.ops.sgd import MomentumUpdate, SgdUpdate
from poetgen.streams import conv, conv_dw, variants_of
from poetgen.streams.traffic import Traffic
from poetgen.streams.variant import Prices, StreamVariant

HERE = Path(__file__).parent
RUNTIME = resources.runtime()
WARNINGS = (
    "-std=c11 -Wall -Wextra -Werror -Wshadow -Wconversion -Wdouble-promotion -Wfloat-conversion "
    "-Wundef -Wstrict-prototypes -Wmissing-prototypes -Wcast-align=strict -Wvla "
    "-Wnull-dereference -Wlogical-op -fno-common -ffp-contract=off"
).split()
SANITIZERS = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all".split()
SD = Prices(0.109e-3, 1 / 4.617e6, 0.113e-3, 1 / 4.440e6)
FORWARD, DX, DW = 0, 1, 2
STATES = {2: None, 3: 0, 4: 0, 5: 1, 6: 1, 7: 2}


@dataclass(frozen=True)
class Case:
    """One line for streams_random.c and what it should count."""

    line: str
    expected: Traffic
    sector_bytes: int


def geometry(rng: random.Random, dense: bool) -> tuple[Spec, tuple[int, ...], Spec, Geometry] | conv.Sizes:
    while True:
        groups = rng.choice((1, 1, 1, 1, 2, 3))
        per_in, per_out = rng.choice((1, 1, 2, 3, 4, 8)), rng.choice((1, 1, 2, 3, 4, 6, 8))
        if rng.random() < 0.2:
            groups, per_in = rng.randint(2, 9), 1
        n, h, w = (
            rng.choice((1, 1, 2, 3)),
            max(1, rng.randint(-2, 12)),
            rng.choice((1, 2, 3, 4, 5, 8, 16, 32)),
        )
        if dense:
            return conv.Sizes.dense(n, per_in * rng.randint(1, 90), per_out * rng.randint(1, 40))
        kernel = rng.randint(1, 4), rng.randint(1, 3)
        g = Geometry.of(
            2,
            (rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2))),
            tuple(rng.randint(0, 2) for _ in range(4)),
            (rng.choice((1, 1, 1, 2, 3)), rng.choice((1, 1, 2))),
            groups,
        )
        x = (n, groups * per_in, h, w)
        weights = (groups * per_out, per_in, *kernel)
        try:
            y = g.out_shape(x, weights)
        except ValueError:
            continue
        return Spec(x, layout="rows"), weights, Spec(y, layout="rows"), g


def sizes(rng: random.Random, kind: int, streams: list[bool], dense: bool) -> conv.Sizes:
    """Random; a resident image may be dense."""
    found = geometry(rng, dense)
    if isinstance(found, conv.Sizes):
        return found
    x, weights, y, g = found
    if not streams[0] and rng.random() < 0.5:
        x = Spec(x.shape)
    if not streams[2] and rng.random() < 0.5:
        y = Spec(y.shape)
    made = conv.Sizes(**g.fields(x, weights, y))
    return made if kind == DX else made.without_idle_rows()


def some(rng: random.Random, n: int) -> int:
    return rng.choice((1, n, rng.randint(1, n), rng.randint(1, n)))


def multiple(rng: random.Random, unit: int, n: int) -> int:
    return n if rng.random() < 0.3 else unit * rng.randint(1, conv.over(n, unit))


def random_tile(rng: random.Random, nest: conv.Nest) -> conv.Tile:
    groups = nest.sizes.groups
    images, rows = some(rng, nest.sizes.batch), some(rng, nest.rows)
    order = rng.randint(0, 1)
    if groups > 1:
        some_groups = some(rng, groups)
        outs, reds = some_groups * nest.group_outs, some_groups * nest.group_reds
        return conv.Tile(outs, outs, reds, reds, images, rows, order)
    outs, reds = some(rng, nest.outs), some(rng, nest.reds)
    part, keep = some(rng, outs), rng.randint(0, 2)
    if keep == 1:
        part = outs
    held = multiple(rng, reds, nest.reds)
    return conv.Tile(outs, part, reds, held, images, rows, order, keep == 1, keep == 2)


def random_dw_tile(rng: random.Random, nest: conv_dw.Dw, sector_bytes: int) -> conv_dw.DwTile:
    s = nest.sizes
    images, rows = rng.choice(((1, some(rng, s.out_h)), (some(rng, s.batch), s.out_h)))
    piece = sector_bytes // 4 * rng.choice((1, 1, 2, 3, 8))
    order = rng.randint(0, 1)
    if s.groups > 1:
        groups = some(rng, s.groups)
        outs, ins = groups * nest.group_outs, groups * nest.group_ins
        return conv_dw.DwTile(outs, nest.group_ins, outs, ins, images, rows, order, piece)
    outs, ins = some(rng, s.out_c), some(rng, s.in_c)
    held = multiple(rng, outs, s.out_c), multiple(rng, ins, s.in_c)
    return conv_dw.DwTile(outs, ins, *held, images, rows, order, piece)


def case(rng: random.Random) -> Case | None:
    """Half of the tiles at random, half as they are chosen for a random workspace."""
    kind = rng.choice((0, 0, 0, 1, 1, 1, 2, 3, 3, 4, 5, 6, 7))
    streams = [rng.random() < 0.7 for _ in range(3)]
    sector_bytes = rng.choice((256, 512, 512))
    dense = rng.random() < 0.15
    s = sizes(rng, kind, streams, dense)
    limit = rng.randint(1, 6000)
    chosen = rng.random() < 0.5
    if kind <= DX:
        nest = conv.Nest(s, kind == DX)
        x_w_y = tuple(streams) if kind == FORWARD else tuple(streams[::-1])
        mode = conv.Streamed(*x_w_y)
        if chosen:
            picked = conv.choose(nest, mode, limit, sector_bytes, SD)
            if picked is None:
                return None
            tile, expected = picked
        else:
            tile = random_tile(rng, nest)
            expected = conv.traffic(nest, mode, tile, sector_bytes)
        source, weights, sums = conv.buffers(nest, mode, tile)
        words = source + weights + sums
        numbers = (*astuple(tile), source, source + weights)
        has_bias = int(rng.random() < 0.5) if kind == FORWARD or dense else 0
    else:
        dw = conv_dw.Dw(s, STATES[kind])
        dw_mode = conv_dw.DwStreamed(streams[0], streams[2], streams[1])
        if chosen:
            picked_dw = conv_dw.choose(dw, dw_mode, limit, sector_bytes, SD)
            if picked_dw is None:
                return None
            dw_tile, expected = picked_dw
        else:
            dw_tile = random_dw_tile(rng, dw, sector_bytes)
            expected = conv_dw.traffic(dw, dw_mode, dw_tile, sector_bytes)
        place = conv_dw.places(dw, dw_mode, dw_tile)
        words = place.words
        numbers = (*astuple(dw_tile), place.dy_at, place.dw_at, place.piece_at)
        has_bias = 0
    assert not chosen or words <= limit
    bits = sum(1 << i for i, on in enumerate(streams) if on)
    erase = rng.choice((0, 0, 0, 8))
    head = (kind, sector_bytes, erase, bits, int(rng.random() < 0.25), has_bias, words, rng.getrandbits(31))
    line = " ".join(str(int(n)) for n in (*head, *astuple(s), *numbers))
    return Case(line, expected, sector_bytes)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("streams"), {})


def compile_driver(folder: Path, mutated: dict[str, str]) -> Path:
    """The driver; sources in ``mutated`` as files of their own."""
    output = folder / "streams_random"
    kernels = [RUNTIME / "kernels" / f"{k}.c" for k in ("conv2d", "sgd", "adam", "math")]
    sources = [HERE / "streams_random.c", RUNTIME / "blockdev" / "emulated.c", *kernels]
    for path in sorted((RUNTIME / "streams").glob("stream*.c")):
        if path.stem not in ("stream",) and not path.stem.startswith("stream_conv2d"):
            continue
        if path.stem in mutated:
            (folder / path.name).write_text(mutated[path.stem])
            path = folder / path.name
        sources.append(path)
    command = [
        "gcc",
        *WARNINGS,
        *SANITIZERS,
        f"-I{RUNTIME / 'include'}",
        *map(str, sources),
        "-o",
        str(output),
    ]
    subprocess.run(command, check=True)
    return output


def cases(seed: int, count: int) -> list[Case]:
    rng = random.Random(seed)
    found: list[Case] = []
    while len(found) < count:
        one = case(rng)
        if one is not None:
            found.append(one)
    return found


def run(program: Path, drawn: list[Case]) -> tuple[int, list[str], str]:
    text = "\n".join(c.line for c in drawn) + "\n"
    done = subprocess.run([program], input=text, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout.splitlines(), done.stderr


def check(program: Path, drawn: list[Case]) -> None:
    code, lines, errors = run(program, drawn)
    assert code == 0, (
        f"{errors}\ncase {len(lines)}: {drawn[len(lines)].line if len(lines) < len(drawn) else ''}"
    )
    assert len(lines) == len(drawn)
    for c, line in zip(drawn, lines, strict=True):
        reads, progs, sectors_in, sectors_out = map(int, line.split())
        counted = Traffic(reads, sectors_in * c.sector_bytes, progs, sectors_out * c.sector_bytes)
        assert counted == c.expected, c.line


def test_every_tiling_gives_the_resident_bits_and_the_predicted_traffic(program: Path) -> None:
    check(program, cases(1, 1500))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 18))
def test_many_tilings_give_the_resident_bits_and_the_predicted_traffic(seed: int, program: Path) -> None:
    check(program, cases(seed, 4000))


@pytest.mark.parametrize(
    ("header", "struct", "names"),
    [
        ("kernels/conv2d", "poet_conv2d", [f.name for f in fields(conv.Sizes)]),
        (
            "streams/stream_conv2d",
            "poet_stream_conv2d",
            [*(f.name for f in fields(conv.Tile)), "weights_at", "sums_at"],
        ),
        (
            "streams/stream_conv2d_dw",
            "poet_stream_conv2d_dw",
            [*(f.name for f in fields(conv_dw.DwTile)), "dy_at", "dw_at", "piece_at"],
        ),
    ],
)
def test_a_struct_has_the_same_members_in_python_and_in_c(header: str, struct: str, names: list[str]) -> None:
    text = (RUNTIME / "include" / "poet" / f"{header}.h").read_text()
    body = text[text.index(f"struct {struct} {{") :]
    declared = re.findall(r"int32_t ([\w, ]+);", body[: body.index("};")])
    assert [name.strip() for line in declared for name in line.split(",")] == names


# Variants of nodes


def node(op: Op, *inputs: Spec) -> Node:
    names = tuple(f"input {i}" for i in range(len(inputs)))
    outputs = op.infer(*inputs)
    return Node("n", op, names, tuple(f"output {i}" for i in range(len(outputs))), inputs, outputs)


def nodes() -> dict[str, tuple[int, Node]]:
    """Each op that has a streamed variant, with the kind that streams_random.c calls it."""
    g = Geometry.of(2, (2, 2), (1, 1, 1, 1))
    depthwise = Geometry.of(2, pads=(1, 1, 1, 1), groups=16)
    x, w, y = Spec((2, 16, 12, 8), layout="rows"), f32(24, 16, 3, 3), Spec((2, 24, 6, 4), layout="rows")
    dw, lr = conv_op.ConvDw(g, w.shape), f32()
    dense = GemmDw(True, False)
    return {
        "conv": (0, node(conv_op.Conv(g), x, w)),
        "conv with bias": (0, node(conv_op.Conv(g), x, w, f32(24))),
        "depthwise conv": (0, node(conv_op.Conv(depthwise), x, f32(16, 1, 3, 3))),
        "sequence": (0, node(conv_op.Conv(Geometry.of(1, pads=(2, 2))), f32(2, 6, 100), f32(16, 6, 5))),
        "conv dx": (1, node(conv_op.ConvDx(g, x.shape), w, y)),
        "conv dw": (2, node(dw, x, y)),
        "conv dw, sgd": (3, node(GradientSgd(dw, SgdUpdate()), w, lr, x, y)),
        "conv dw, sgd with decay": (4, node(GradientSgd(dw, SgdUpdate(0.75)), w, lr, x, y)),
        "conv dw, momentum": (5, node(GradientMomentum(dw, MomentumUpdate(0.75)), w, w, lr, x, y)),
        "conv dw, adam": (7, node(GradientAdam(dw, AdamUpdate()), w, w, w, lr, f32(2), x, y)),
        "dense": (0, node(Gemm(False, True), f32(3, 300), f32(40, 300), f32(40))),
        "dense, weights transposed": (1, node(Gemm(), f32(3, 300), f32(300, 40), f32(40))),
        "dense dx": (1, node(GemmDx(), f32(3, 40), f32(40, 300))),
        "dense dx, weights transposed": (0, node(GemmDx(False, True), f32(3, 40), f32(300, 40))),
        "dense dw": (2, node(dense, f32(3, 40), f32(3, 300))),
        "dense dw, sgd": (
            3,
            node(GradientSgd(dense, SgdUpdate()), f32(40, 300), lr, f32(3, 40), f32(3, 300)),
        ),
    }


def as_case(kind: int, variant: StreamVariant) -> Case:
    """A variant's call as streams_random.c takes it."""
    (call,) = variant.calls
    struct = next(a for a in call.args if isinstance(a, Struct) and a.ctype != "struct poet_adam")
    operands = [a for a in call.args if isinstance(a, StreamIn | StreamOut)]
    x_w_y = {0: (0, 1, 2), 1: (2, 0, 1), 2: (0, 2, 1)}.get(kind, (0, 2, 1))
    bits = 0
    for i, k in enumerate(x_w_y):
        a = operands[k]
        streamed = variant.streamed_inputs if isinstance(a, StreamIn) else variant.streamed_outputs
        bits |= (a.index in streamed) << i
    has_bias = kind < DW and In(2) in call.args
    head = (kind, 512, 0, bits, 0, has_bias, variant.workspace_bytes // 4, 1)
    line = " ".join(str(int(n)) for n in (*head, *(v for _, v in struct.fields)))
    moved = Traffic(variant.reads, variant.bytes_in, variant.writes, variant.bytes_out)
    return Case(line, moved, 512)


@pytest.mark.parametrize("name", nodes())
@pytest.mark.parametrize("room", [1 << 20, 40_000, 20_000, 7_000])
def test_a_variant_fits_its_room_and_does_what_it_says(name: str, room: int, program: Path) -> None:
    kind, made = nodes()[name]
    found = variants_of(made, 512, room, SD)
    drawn = []
    for v in found:
        resident = conv.resident_bytes(made, v.streamed_inputs, v.streamed_outputs)
        assert resident + v.workspace_bytes <= room
        drawn.append(as_case(kind, v))
    assert found or room < 10_000
    if room == 1 << 20:
        assert len({(v.streamed_inputs, v.streamed_outputs) for v in found}) == 7
    check(program, drawn)


@pytest.mark.parametrize("name", nodes())
def test_the_least_room_of_a_node_is_offered_in_any_room(name: str, program: Path) -> None:
    kind, made = nodes()[name]

    def needed(v: StreamVariant) -> int:
        return conv.resident_bytes(made, v.streamed_inputs, v.streamed_outputs) + v.workspace_bytes

    leanest = min(variants_of(made, 512, 1 << 20, SD), key=needed)
    assert needed(leanest) in {needed(v) for v in variants_of(made, 512, needed(leanest), SD)}
    assert not variants_of(made, 512, needed(leanest) - 4, SD)
    check(program, [as_case(kind, leanest)])


def test_a_dense_image_is_not_streamed() -> None:
    g = Geometry.of(2)
    found = variants_of(node(conv_op.Conv(g), f32(1, 3, 8, 8), f32(4, 3, 1, 1)), 512, 1 << 20, SD)
    assert {(v.streamed_inputs, v.streamed_outputs) for v in found} == {((1,), ())}


# Mutants: what the random cases must see.

MUTANTS = {
    "chunks restart their sums": ("stream_conv2d", "if (by_part) {\n", "if (1) {\n"),
    "the rows' first is not part of what a buffer holds": (
        "stream",
        "if (up == 0 && end == new_end)",
        "if (end == new_end)",
    ),
    "rows do not move up": ("stream", "if (up > 0) memmove(", "if (up < 0) memmove("),
    "weights of another chunk pass for these": ("stream_conv2d", " && t->has_red == red", ""),
    "images descend": (
        "stream_conv2d_dw",
        "for (int32_t image = 0; image < c->batch; image += t->s->images) {",
        "for (int32_t image = c->batch - c->batch % t->s->images; image >= 0; image -= t->s->images) {\n"
        "    if (image == c->batch) continue;",
    ),
    "x lies below pieces and is thought to be there": (
        "stream_conv2d_dw",
        "t->x_buffer.has.images = 0;",
        "(void)0;",
    ),
    "a bias of -0 stays": (
        "stream_conv2d",
        "t->b != NULL ? 0.0f + t->b[",
        "t->b != NULL ? t->b[",
    ),
    "a ragged end overwrites what is beside it": (
        "stream",
        "POET_TRY(dev->read(dev, sector, pager->bounce, 1));\n"
        "            memcpy(pager->bounce + byte, p, part);",
        "memcpy(pager->bounce + byte, p, part);",
    ),
    "an error of the device is lost": (
        "stream",
        "POET_TRY(dev->read(dev, sector, p, sectors));",
        "(void)dev->read(dev, sector, p, sectors);",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, tmp_path: Path) -> None:
    family, old, new = MUTANTS[name]
    text = (RUNTIME / "streams" / f"{family}.c").read_text()
    assert text.count(old) == 1
    mutant = compile_driver(tmp_path, {family: text.replace(old, new)})
    with pytest.raises(AssertionError):
        check(mutant, cases(1, 1500))
