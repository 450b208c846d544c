"""Axes as loops: strides of broadcast and reduced operands, merged where one loop does for two."""

from __future__ import annotations

Ints = tuple[int, ...]
LOOPS = 4
"""Nested loops that the C kernels have."""


def row_major(shape: Ints) -> Ints:
    """Strides in elements: ``row_major((2, 3, 4)) == (12, 4, 1)``."""
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def broadcast_to(shape: Ints, target: Ints, strides: Ints | None = None) -> Ints:
    """Strides with which ``shape`` is read as ``target``; 0 where it repeats.

    ``strides`` are the shape's own, row-major if None. Raises ValueError where it does not broadcast.
    """
    strides = row_major(shape) if strides is None else strides
    padded = (1,) * (len(target) - len(shape)) + shape
    if len(shape) > len(target) or any(n not in (1, t) for n, t in zip(padded, target, strict=True)):
        raise ValueError(f"{list(shape)} does not broadcast to {list(target)}")
    own = (0,) * (len(target) - len(shape)) + strides
    return tuple(0 if n == 1 else s for n, s in zip(padded, own, strict=True))


def collapse(sizes: Ints, *strides: Ints) -> tuple[Ints, ...]:
    """The fewest loops that walk the same way, padded in front to LOOPS with loops of one.

    Returns sizes, then each operand's strides. Raises ValueError where LOOPS are not enough.
    """
    out: list[tuple[int, Ints]] = []
    for n, *steps in zip(sizes, *strides, strict=True):
        if n == 1:
            continue
        if out and all(before == step * n for before, step in zip(out[-1][1], steps, strict=True)):
            out[-1] = (out[-1][0] * n, tuple(steps))
        else:
            out.append((n, tuple(steps)))
    if len(out) > LOOPS:
        raise ValueError(
            f"its axes {list(sizes)} alternate too often: {len(out)} loops, {LOOPS} are supported"
        )
    out = [(1, (0,) * len(strides))] * (LOOPS - len(out)) + out
    return (tuple(n for n, _ in out), *(tuple(s[k] for _, s in out) for k in range(len(strides))))
