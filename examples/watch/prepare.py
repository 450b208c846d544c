"""Cut the watch recordings of seglearn into windows; write one person's two halves for `poetgen run`.

    pip install numpy && pip install --no-deps seglearn==1.2.5      # only its data file is read
    python prepare.py [--person 2] [--out FOLDER]

adapt.npz and test.npz each hold `x` float32 [N, 6, 100] and `y` int64 [N], N a multiple of BATCH.
No window of one file shares a sample with a window of the other.
"""

import argparse
import hashlib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW = 100  # samples at 50 Hz: two seconds
STRIDE = 50
BATCH = 8
PEOPLE = tuple(range(1, 11))  # the dataset numbers its subjects from 1
PERSON = 2  # whose files are committed: see the table in ../README.md
SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"


@dataclass(frozen=True)
class Recording:
    """One person doing one exercise with one arm.

    Recording(person=2, exercise=5, samples=array of shape [1956, 6])
    """

    person: int
    exercise: int
    samples: NDArray[np.float64]


@dataclass(frozen=True)
class Windows:
    """Windows ready for the net: x float32 [N, 6, WINDOW], y int64 [N]."""

    x: NDArray[np.float32]
    y: NDArray[np.int64]

    def rows(self, index: NDArray[np.int64]) -> "Windows":
        """Pick rows, in the order of index."""
        return Windows(self.x[index], self.y[index])


@dataclass(frozen=True)
class Split:
    """What a net sees: nine people to learn from, then the tenth's first halves and second halves."""

    others: Windows
    adapt: Windows
    test: Windows


def recordings() -> tuple[Recording, ...]:
    """Read seglearn's data file, without importing seglearn (which would need scikit-learn)."""
    spec = importlib.util.find_spec("seglearn")
    if spec is None or spec.origin is None:
        raise SystemExit("seglearn is not installed; try: pip install --no-deps seglearn==1.2.5")
    path = Path(spec.origin).parent / "data" / "watch_dataset.npy"
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:  # also the reason why unpickling it is safe
        raise SystemExit(f"{path.name} is not the file of seglearn 1.2.5 (SHA-256 {found})")
    data: dict[str, Any] = np.load(path, allow_pickle=True).item()
    return tuple(
        Recording(int(person), int(exercise), samples)
        for person, exercise, samples in zip(data["subject"], data["y"], data["X"], strict=True)
    )


def split(every: Iterable[Recording], person: int) -> Split:
    """Leave one person out, and halve each of that person's recordings."""
    others = tuple(r for r in every if r.person != person)
    own = tuple(r for r in every if r.person == person)
    if not own or not others:
        raise SystemExit(f"no person {person}; there are {PEOPLE[0]} to {PEOPLE[-1]}")
    seen = np.concatenate([r.samples for r in others])
    mean, std = seen.mean(axis=0), seen.std(axis=0)  # the device knows nothing of its owner yet

    def cut(parts: Iterable[tuple[int, NDArray[np.float64]]]) -> Windows:
        pairs = [
            (((samples[start : start + WINDOW] - mean) / std).T, exercise)
            for exercise, samples in parts
            for start in range(0, len(samples) - WINDOW + 1, STRIDE)
        ]
        x = np.array([window for window, _ in pairs], np.float32)
        return Windows(x, np.array([exercise for _, exercise in pairs], np.int64))

    adapt = cut((r.exercise, r.samples[: len(r.samples) // 2]) for r in own)
    test = cut((r.exercise, r.samples[len(r.samples) // 2 :]) for r in own)
    rng = np.random.default_rng(person)
    return Split(
        others=cut((r.exercise, r.samples) for r in others),
        # Shuffled, because `poetgen run` takes rows in order and a recording is all one exercise.
        adapt=adapt.rows(whole_batches(rng.permutation(len(adapt.y)))),
        # Rows left over are dropped at random, so that no exercise pays for it; order is kept.
        test=test.rows(np.sort(whole_batches(rng.permutation(len(test.y))))),
    )


def whole_batches(index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Drop the last rows that fill no batch (a wrapped row would count twice in the accuracy)."""
    return index[: len(index) // BATCH * BATCH]


def main() -> None:
    """Write adapt.npz and test.npz."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--person", type=int, default=PERSON, help=f"left out (default {PERSON})")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    parts = split(recordings(), options.person)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, part in (("adapt", parts.adapt), ("test", parts.test)):
        path = options.out / f"{name}.npz"
        np.savez_compressed(path, x=part.x, y=part.y)
        print(f"{path.name}: person {options.person}, {len(part.y)} windows, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
