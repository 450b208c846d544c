"""Training data from .npz files, checked and cut into batches. In: FILE.npz, Project. Out: Batches.

In the file each graph input stands under its ONNX name and the labels under ``y``; the leading axis
is the number of samples, a multiple of the batch. Training step s uses rows s * batch .. modulo that.
"""

from __future__ import annotations

import difflib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from poetgen.errors import DataError, UsageError
from poetgen.project import Port, Project

Array = npt.NDArray[Any]
LARGEST_FILE_BYTES = (1 << 31) - 1
"""What a target can seek in: semihosting's file sizes are int32."""
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True, eq=False)
class Batches:
    """Checked data: each input in the graph's order, then the labels, in the target's types.

    ``ports`` says for each array its name and the shape of one batch.
    """

    ports: tuple[Port, ...]
    arrays: tuple[Array, ...]
    batch: int

    @property
    def rows(self) -> int:
        """Number of samples."""
        return len(self.arrays[0]) if self.arrays else self.batch

    @property
    def count(self) -> int:
        """Number of whole batches."""
        return self.rows // self.batch

    @property
    def batch_bytes(self) -> int:
        """Bytes of one batch in the target's file."""
        return sum(a[: self.batch].nbytes for a in self.arrays)

    def rows_of(self, step: int, shuffle: int | None = None) -> Array:
        """Numbers of the rows that training step ``step`` uses."""
        epoch, at = divmod(step, self.count)
        order = epoch_order(self.rows, shuffle, epoch)
        return order[at * self.batch : (at + 1) * self.batch]

    def take(self, rows: Array) -> dict[str, Array]:
        """These rows of each input and of ``y``."""
        return {p.name: a[rows] for p, a in zip(self.ports, self.arrays, strict=True)}

    def write(self, file: Path, steps: int, shuffle: int | None = None) -> int:
        """Write the batches that ``steps`` training steps use, and return how many the file holds.

        Step s uses batch s modulo that number.

        Raises:
            DataError: the file would be larger than a target can seek in.
        """
        count = steps if shuffle is not None else min(steps, self.count)
        if count * self.batch_bytes > LARGEST_FILE_BYTES:
            raise DataError(
                f"{count} batches of {self.batch_bytes} B are more than the {LARGEST_FILE_BYTES} B "
                "that a target reads",
                hint="use fewer --steps" if shuffle is not None else "use fewer samples",
            )
        with file.open("wb") as out:
            for step in range(count):
                rows = self.rows_of(step, shuffle)
                for array in self.arrays:
                    out.write(np.ascontiguousarray(array[rows]).tobytes())
        return count


def epoch_order(rows: int, shuffle: int | None, epoch: int) -> Array:
    """The order of rows in one epoch; without ``shuffle`` as they stand in the file.

    Sorted by the raw 64-bit words of PCG64, whose stream numpy guarantees: the same in every version.
    """
    if shuffle is None:
        return np.arange(rows)
    words = np.random.PCG64(np.random.SeedSequence((shuffle, epoch))).random_raw(rows)
    return np.argsort(words, kind="stable")


def read_batches(file: Path, project: Project, labels: bool = True) -> Batches:
    """Read and check a data file for a project.

    Raises:
        UsageError: there is no such file.
        DataError: an array is missing, or its type, shape, number of rows or a value does not fit.
    """
    ports = project.inputs
    if labels and project.label is not None:
        ports = (*ports, project.label)
    arrays = _load(file, ports)
    checked = tuple(_checked(file, p, arrays[p.name], project) for p in ports)
    _check_rows(file, ports, checked, project.batch)
    return Batches(ports, checked, project.batch)


def random_batches(project: Project, count: int, seed: int = 0) -> Batches:
    """Normal numbers and uniform labels: data to compare two implementations on."""
    rng = np.random.default_rng(seed)
    ports = project.inputs if project.label is None else (*project.inputs, project.label)
    arrays: list[Array] = []
    for port in ports:
        shape = (count * project.batch, *port.shape[1:])
        if port.dtype == "f32":
            arrays.append(rng.standard_normal(shape).astype(np.float32))
        else:
            high = project.classes if port is project.label and project.classes else 2
            arrays.append(rng.integers(0, high, shape).astype(np.int32))
    return Batches(ports, tuple(arrays), project.batch)


def _load(file: Path, ports: tuple[Port, ...]) -> Mapping[str, Array]:
    if not file.is_file():
        raise UsageError(f"there is no data file {file}")
    try:
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise DataError(
                f"{file} is a single array, not an .npz",
                hint=f"numpy.savez(FILE, **{{{', '.join(repr(p.name) for p in ports)}: ...}})",
            )
        with loaded:
            return {p.name: _member(file, loaded, p, ports) for p in ports}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zipfile.error) as error:
        raise DataError(f"{file} is no readable .npz: {error}", hint="write it by numpy.savez") from error


def _member(file: Path, loaded: Any, port: Port, ports: tuple[Port, ...]) -> Array:
    if port.name in loaded.files:
        return np.asarray(loaded[port.name])
    spare = [n for n in loaded.files if n not in {p.name for p in ports}]
    near = difflib.get_close_matches(port.name, spare, n=1, cutoff=0.0)
    has = ", ".join(loaded.files[:8]) or "nothing"
    raise DataError(
        f"{file} has no array {port.name!r} of {_wanted(port)}; it has {has}",
        hint=f"is it {near[0]!r}? Save it as {port.name!r}" if near else "",
    )


def _wanted(port: Port) -> str:
    kind = "float32" if port.dtype == "f32" else "whole numbers"
    return f"{kind} [N{''.join(f', {n}' for n in port.shape[1:])}]"


def _checked(file: Path, port: Port, array: Array, project: Project) -> Array:
    where = f"{file}: {port.name!r}"
    if array.shape[1:] != port.shape[1:] or array.ndim != len(port.shape):
        raise DataError(
            f"{where} has shape {list(array.shape)}, the model takes {_wanted(port)}",
            hint="the first axis is the number of samples",
        )
    if port.dtype == "f32":
        if array.dtype != np.float32:
            raise DataError(
                f"{where} is {array.dtype}, the model takes float32",
                hint=f"save it as {port.name}.astype(numpy.float32)",
            )
        return _finite(where, array)
    return _integers(where, port, array, project)


def _finite(where: str, array: Array) -> Array:
    bad = ~np.isfinite(array)
    if bad.any():
        at = [int(i) for i in np.argwhere(bad)[0]]
        raise DataError(
            f"{where} has {int(bad.sum())} values that are not finite; the first is "
            f"{array[tuple(at)]} at {at}",
            hint="remove these samples",
        )
    return array.astype("<f4", copy=False)


def _integers(where: str, port: Port, array: Array, project: Project) -> Array:
    if array.dtype.kind not in "iu":
        raise DataError(
            f"{where} is {array.dtype}, the model takes whole numbers",
            hint=f"save it as {port.name}.astype(numpy.int32)",
        )
    low, high = int(_INT32.min), int(_INT32.max)
    what = "int32 holds"
    if port is project.label and project.classes is not None:
        low, high = 0, project.classes - 1
        what = f"{project.name} has {project.classes} classes:"
    bad = (array < low) | (array > high)
    if bad.any():
        at = [int(i) for i in np.argwhere(bad)[0]]
        raise DataError(
            f"{where} is {array[tuple(at)]} at {at}; {what} {low} to {high}",
            hint="classes count from 0" if port is project.label else "",
        )
    return array.astype("<i4", copy=False)


def _check_rows(file: Path, ports: tuple[Port, ...], arrays: tuple[Array, ...], batch: int) -> None:
    rows = {p.name: len(a) for p, a in zip(ports, arrays, strict=True)}
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{name!r} {n}" for name, n in rows.items())
        raise DataError(f"{file}: the arrays have different numbers of samples: {counts}")
    n = next(iter(rows.values()), batch)
    if n == 0 or n % batch:
        less, more = n // batch * batch, (n // batch + 1) * batch
        raise DataError(
            f"{file} has {n} samples, which is no multiple of the batch of {batch}",
            hint=f"give {f'{less} or ' if less else ''}{more} samples, or generate with another --batch",
        )


def write_npz(file: Path, arrays: Mapping[str, Array]) -> None:
    """Write an .npz whose names may be anything (numpy.savez takes no array called ``file``).

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, np.asarray(array, order="C"), allow_pickle=False)
                archive.writestr(zipfile.ZipInfo(f"{name}.npy"), buffer.getvalue())  # no time stamp
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from error
