"""Data files: what the target gets, and what is refused, in the user's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poetgen.data import (
    LARGEST_FILE_BYTES,
    Batches,
    epoch_order,
    random_batches,
    read_batches,
    write_npz,
)
from poetgen.errors import DataError, PoetgenError, UsageError
from poetgen.project import Port, Project, Traffic

ROWS, BATCH, CLASSES = 12, 4, 3


def project(label: Port | None = Port("y", (BATCH,), "i32"), classes: int | None = CLASSES) -> Project:
    return Project(
        folder=Path("net"),
        name="net",
        board="host",
        batch=BATCH,
        inputs=(Port("image/in", (BATCH, 2, 3), "f32"), Port("token", (BATCH, 5), "i32")),
        label=label,
        classes=classes,
        output=Port("out", (BATCH, CLASSES), "f32"),
        parameters=(),
        lr=0.1,
        trains=True,
        arena_bytes=0,
        peak_bytes=0,
        sector_bytes=512,
        store=None,
        model=Path("net/net.onnx"),
        traffic=Traffic(),
        gradient_steps=(),
    )


def arrays(**changed: Any) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "image/in": rng.standard_normal((ROWS, 2, 3)).astype(np.float32),
        "token": rng.integers(0, 9, (ROWS, 5)),
        "y": rng.integers(0, CLASSES, ROWS),
        "unused": np.zeros(1),
    } | changed


def saved(tmp_path: Path, **changed: Any) -> Path:
    file = tmp_path / "data.npz"
    write_npz(file, {k: v for k, v in arrays(**changed).items() if v is not None})
    return file


def read(tmp_path: Path, **changed: Any) -> Batches:
    return read_batches(saved(tmp_path, **changed), project())


def refused(tmp_path: Path, **changed: Any) -> str:
    with pytest.raises(DataError) as caught:
        read(tmp_path, **changed)
    assert caught.value.exit_code == 8
    return f"{caught.value.message}\n{caught.value.hint}"


def test_a_target_gets_each_input_in_graph_order_then_the_labels(tmp_path: Path) -> None:
    data = read(tmp_path)
    file = tmp_path / "data.bin"
    assert data.write(file, steps=3) == 3
    given = arrays()
    rows = slice(BATCH, 2 * BATCH)
    second = (
        given["image/in"][rows].astype("<f4").tobytes()
        + given["token"][rows].astype("<i4").tobytes()
        + given["y"][rows].astype("<i4").tobytes()
    )
    assert len(second) == data.batch_bytes
    assert file.read_bytes()[len(second) : 2 * len(second)] == second


def test_training_wraps_around_the_data_and_the_file_holds_no_more_than_is_used(tmp_path: Path) -> None:
    data = read(tmp_path)
    assert data.count == 3
    assert data.write(tmp_path / "few.bin", steps=2) == 2
    assert data.write(tmp_path / "many.bin", steps=100) == 3
    assert data.rows_of(4).tolist() == data.rows_of(1).tolist() == [4, 5, 6, 7]


def test_shuffling_permutes_the_rows_of_each_epoch_anew(tmp_path: Path) -> None:
    data = read(tmp_path)
    epochs = [np.concatenate([data.rows_of(e * 3 + k, shuffle=7) for k in range(3)]) for e in range(3)]
    assert all(sorted(rows) == list(range(ROWS)) for rows in epochs)
    assert len({tuple(rows) for rows in epochs}) == 3
    assert data.write(tmp_path / "data.bin", steps=7, shuffle=7) == 7
    written = np.frombuffer((tmp_path / "data.bin").read_bytes(), np.uint8).reshape(7, -1)
    labels = written[:, -4 * BATCH :].copy().view("<i4")
    assert (labels == [arrays()["y"][data.rows_of(k, shuffle=7)] for k in range(7)]).all()


def test_a_seed_always_gives_the_same_order() -> None:
    assert epoch_order(8, 1, 0).tolist() == [2, 4, 7, 5, 0, 6, 3, 1]
    assert epoch_order(8, None, 5).tolist() == list(range(8))


def test_an_input_called_file_can_be_saved(tmp_path: Path) -> None:
    values = {"file": np.arange(3.0), "a/b.c": np.float32(2)}
    write_npz(tmp_path / "odd.npz", values)
    with np.load(tmp_path / "odd.npz") as loaded:
        assert set(loaded.files) == set(values)
        assert loaded["a/b.c"].shape == ()
    again = tmp_path / "again.npz"
    write_npz(again, values)
    assert again.read_bytes() == (tmp_path / "odd.npz").read_bytes()


def test_regression_labels_are_float32_of_the_outputs_shape(tmp_path: Path) -> None:
    wanted = project(Port("y", (BATCH, CLASSES), "f32"), None)
    labels = np.ones((ROWS, CLASSES), np.float32)
    assert read_batches(saved(tmp_path, y=labels), wanted).arrays[-1].dtype == np.float32
    with pytest.raises(DataError, match="'y' has shape \\[12\\], the model takes float32 \\[N, 3\\]"):
        read_batches(saved(tmp_path), wanted)


def test_random_data_passes_its_own_checks(tmp_path: Path) -> None:
    made = random_batches(project(), 2, seed=1)
    write_npz(tmp_path / "data.npz", made.take(np.arange(made.rows)))
    assert read_batches(tmp_path / "data.npz", project()).count == 2


# What is refused


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no data file"):
        read_batches(tmp_path / "none.npz", project())


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 cut short"])
def test_a_file_that_is_no_npz_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "data.npz"
    file.write_bytes(content)
    with pytest.raises(DataError, match="npz"):
        read_batches(file, project())


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path)
    whole = bytearray(file.read_bytes())
    whole[200] ^= 0xFF
    file.write_bytes(whole)
    with pytest.raises(DataError, match="no readable"):
        read_batches(file, project())


def test_a_single_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", np.zeros(3))
    with pytest.raises(DataError, match="a single array"):
        read_batches(tmp_path / "data.npy", project())


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    file = tmp_path / "data.npz"
    np.savez(file, **arrays(y=np.array([{}] * ROWS, dtype=object)))
    with pytest.raises(DataError):
        read_batches(file, project())


def test_a_missing_array_names_the_nearest(tmp_path: Path) -> None:
    text = refused(tmp_path, **{"image/in": None, "image_in": np.zeros((ROWS, 2, 3), np.float32)})
    assert "no array 'image/in' of float32 [N, 2, 3]" in text
    assert "is it 'image_in'?" in text


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"image/in": np.zeros((ROWS, 3, 2), np.float32)}, ("'image/in'", "[12, 3, 2]", "[N, 2, 3]")),
        ({"image/in": np.zeros((ROWS,), np.float32)}, ("'image/in'", "[12]", "[N, 2, 3]")),
        ({"image/in": np.zeros((ROWS, 2, 3))}, ("'image/in' is float64", "astype(numpy.float32)")),
        ({"image/in": np.zeros((ROWS, 2, 3), np.uint8)}, ("'image/in' is uint8", "float32")),
        ({"token": np.zeros((ROWS, 5), np.float32)}, ("'token' is float32", "whole numbers")),
        ({"token": np.full((ROWS, 5), 2**31)}, ("'token' is 2147483648 at [0, 0]", "int32")),
        ({"y": np.zeros(ROWS, np.float32)}, ("'y' is float32", "whole numbers")),
        ({"y": np.zeros((ROWS, 1), np.int64)}, ("'y' has shape [12, 1]",)),
        ({"y": np.array([0] * 7 + [3] + [0] * 4)}, ("'y' is 3 at [7]", "3 classes: 0 to 2", "from 0")),
        ({"y": np.array([0] * 11 + [-1])}, ("'y' is -1 at [11]", "0 to 2")),
        ({"y": np.array(["a"] * ROWS)}, ("'y' is <U1",)),
        ({"y": np.zeros(ROWS - 1, np.int64)}, ("different numbers of samples", "'y' 11", "'token' 12")),
    ],
)
def test_an_array_that_does_not_fit_is_refused_by_name(
    tmp_path: Path, changed: dict[str, Any], words: tuple[str, ...]
) -> None:
    text = refused(tmp_path, **changed)
    assert all(word in text for word in words), text


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_found(tmp_path: Path, value: float) -> None:
    image = np.zeros((ROWS, 2, 3), np.float32)
    image[5, 1, 2] = value
    text = refused(tmp_path, **{"image/in": image})
    assert f"the first is {np.float32(value)} at [5, 1, 2]" in text


@pytest.mark.parametrize(
    ("rows", "hint"), [(10, "give 8 or 12 samples"), (3, "give 4 samples"), (0, "give 4")]
)
def test_samples_must_fill_whole_batches(tmp_path: Path, rows: int, hint: str) -> None:
    text = refused(tmp_path, **{k: v[:rows] for k, v in arrays().items() if k != "unused"})
    assert f"{rows} samples, which is no multiple of the batch of 4" in text
    assert hint in text


def test_a_file_that_no_target_can_seek_in_is_not_written(tmp_path: Path) -> None:
    data = read(tmp_path)
    with pytest.raises(DataError, match="a target reads"):
        data.write(tmp_path / "data.bin", steps=LARGEST_FILE_BYTES // data.batch_bytes + 1, shuffle=0)
    assert not (tmp_path / "data.bin").exists()


def test_a_dump_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(PoetgenError, match="cannot write") as caught:
        write_npz(tmp_path / "no" / "such" / "folder.npz", {})
    assert caught.value.exit_code == 2
