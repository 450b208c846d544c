"""Images in rows layout [n][y][c][x]: kernels give the reference's bits, which knows no layout."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from poetgen.op import Array, Example, Op, Spec, f32
from poetgen.ops import all_ops
from poetgen.ops.add import Add, Mul, SumTo
from poetgen.ops.mean import Mean, MeanDx
from tests.ops.kernels import in_place_choices, run, same_bits, specs_of

ELSEWHERE = {"Conv", "ConvDx", "ConvDw", "ConvDwOn", "SumTo"}
"""Not all that has four axes there is an image; SumTo is below."""

Specs = tuple[tuple[Spec, ...], tuple[Spec, ...]]


def in_rows(specs: tuple[Spec, ...]) -> tuple[Spec, ...]:
    return tuple(replace(s, layout="rows") if len(s.shape) == 4 else s for s in specs)


def rows_of(op: Op, arrays: tuple[Array, ...]) -> Specs:
    """Every image in rows layout."""
    in_specs, out_specs = specs_of(op, arrays)
    return in_rows(in_specs), in_rows(out_specs)


def images_of(cls: type[Op]) -> list[Example]:
    """Its examples with images; where there is none, its first one made of them."""
    examples = cls.examples()
    found = [
        e for e in examples if any(len(s.shape) == 4 for s in itertools.chain(*rows_of(e.op, e.arrays())))
    ]
    if found:
        return found
    first, *rest = examples[0].arrays()
    image, vector = f32(2, 3, 4, 5), f32(3)
    return [Example(examples[0].op, (image, *(image if a.shape == first.shape else vector for a in rest)))]


TAKE_ROWS = [cls for cls in all_ops() if cls.rows and cls.__name__ not in ELSEWHERE]
EXAMPLES = [
    pytest.param(e, id=f"{cls.__name__}-{k}") for cls in TAKE_ROWS for k, e in enumerate(images_of(cls))
]


def check(op: Op, arrays: tuple[Array, ...], specs: Specs, place: int | None = None) -> None:
    for k, (a, b) in enumerate(zip(run(op, arrays, place, specs=specs), op.reference(*arrays), strict=True)):
        assert same_bits(a, b), f"result {k}, in place of {place}:\n{a}\nnot\n{b}"


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_kernel_gives_the_bits_of_the_reference_in_rows(example: Example) -> None:
    arrays = example.arrays()
    for place in in_place_choices(example.op, example):
        check(example.op, arrays, rows_of(example.op, arrays), place)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_output_of_an_operands_shape_has_its_layout(example: Example) -> None:
    in_specs, _ = rows_of(example.op, example.arrays())
    image = next((s for s in in_specs if len(s.shape) == 4), None)
    if image is not None and all(s.shape == image.shape for s in in_specs if len(s.shape) == 4):
        of_its_shape = [s for s in example.op.infer(*in_specs) if s.shape == image.shape]
        assert all(s.layout == "rows" for s in of_its_shape)


@pytest.mark.parametrize("op", [Add(), Mul()])
@pytest.mark.parametrize("layouts", list(itertools.product(("dense", "rows"), repeat=3)))
@pytest.mark.parametrize("b", [(2, 3, 4, 5), (2, 3, 1, 1), (1, 1, 4, 5), (1, 3, 4, 1)])
def test_operands_of_a_sum_may_mix_layouts(op: Op, layouts: tuple[str, str, str], b: tuple[int, ...]) -> None:
    shapes = ((2, 3, 4, 5), b, (2, 3, 4, 5))
    a_spec, b_spec, y_spec = (Spec(s, layout=k) for s, k in zip(shapes, layouts, strict=True))  # type: ignore[arg-type]
    arrays = Example(op, (a_spec, b_spec)).arrays()
    check(op, arrays, ((a_spec, b_spec), (y_spec,)))


@pytest.mark.parametrize("axes", [a for n in range(5) for a in itertools.combinations(range(4), n)])
def test_sums_over_any_axes_keep_their_order(axes: tuple[int, ...]) -> None:
    x = f32(2, 3, 4, 5)
    kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    for op, (x_spec, y_spec) in itertools.product((Mean(axes), SumTo(kept)), layouts(x.shape, kept)):
        check(op, Example(op, (x,)).arrays(), ((x_spec,), (y_spec,)))
    for x_spec, y_spec in layouts(x.shape, kept):
        check(MeanDx(axes, x.shape), Example(Mean(()), (f32(*kept),)).arrays(), ((y_spec,), (x_spec,)))


def layouts(*shapes: tuple[int, ...]) -> list[tuple[Spec, ...]]:
    return [
        tuple(Spec(s, layout=k) for s, k in zip(shapes, kinds, strict=True))  # type: ignore[arg-type]
        for kinds in itertools.product(("dense", "rows"), repeat=len(shapes))
    ]


def test_strides_of_rows_are_those_of_a_permuted_array() -> None:
    spec = Spec((2, 3, 4, 5), layout="rows")
    array = np.zeros((2, 4, 3, 5), np.float32).transpose(0, 2, 1, 3)
    assert tuple(4 * s for s in spec.strides) == array.strides
