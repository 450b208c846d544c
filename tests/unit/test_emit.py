"""From a program to text: comments, columns, wrapped calls, numbers; a folder replaced as a whole."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from poetgen import pipeline
from poetgen.emit import MARKER, WIDTH, SourceTree, c_float, columns, comment
from poetgen.errors import FitError, UsageError
from poetgen.naming import CNames, c_identifier
from poetgen.pipeline import Options
from poetgen.program import c_number, short_names
from tests.parity.nets import DATA, Oracle

# Text


def test_comments_are_wrapped_at_110_columns() -> None:
    text = comment("  A sentence\n that goes on. " * 12)
    lines = text.split("\n")
    assert lines[0].startswith("/* A sentence that") and lines[-1].endswith(" */")
    assert len(lines) > 2 and max(len(line) for line in lines) <= WIDTH
    assert all(line.startswith(" * ") for line in lines[1:])
    assert comment("short") == "/* short */"


def test_comments_beside_code_stand_in_one_column() -> None:
    assert columns("int a; /* one */\nint longer; /* two */\nint none;") == (
        "int a;      /* one */\nint longer; /* two */\nint none;"
    )


def test_a_comment_with_no_room_beside_its_code_goes_above_it() -> None:
    name = "x" * 60
    above = columns(f"    int a; /* {name} */\n    int {name}; /* {name} */").split("\n")
    assert (
        above[0].startswith("    int a; ") and above[0].endswith(f"/* {name} */") and len(above[0]) <= WIDTH
    )
    assert above[1:] == [f"    /* {name} */", f"    int {name};"]
    near = columns(f"int a; /* {name} */\nint {'y' * 50}; /* short */").split("\n")
    assert len(near[0]) == WIDTH and near[1] == f"int {'y' * 50}; /* short */"


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 0.1, 1e-45, 3.4028235e38, 1e-5, 16777217.0, 0.30000001])
def test_numbers_in_c_read_back_as_the_same_float(value: float) -> None:
    wanted = np.float32(value)
    for text in (c_float(wanted), c_number(value).partition(" /*")[0]):
        assert text.endswith("f")
        digits = text[:-1]
        read = float.fromhex(digits) if digits.lstrip("-").startswith("0x") else float(digits)
        assert np.float32(read).tobytes() == wanted.tobytes(), text


# Names


@pytest.mark.parametrize(
    ("name", "c"),
    [
        ("/layer1/conv.weight", "layer1_conv_weight"),
        ("3x3", "n3x3"),
        ("", "unnamed"),
        ("class", "class_"),
        ("poet_relu_f32", "my_poet_relu_f32"),
        ("größe", "gr_e"),
    ],
)
def test_a_name_becomes_an_identifier(name: str, c: str) -> None:
    assert c_identifier(name) == c


def test_long_names_stay_apart() -> None:
    names = [f"{'a' * 60}{k}{'b' * 60}" for k in range(50)]
    found = {c_identifier(n) for n in names}
    assert len(found) == 50 and max(map(len, found)) <= 48


def test_names_that_collide_get_numbers_and_keep_them() -> None:
    names = CNames(frozenset({"m"}))
    assert [names("a.b"), names("a/b"), names("m"), names("a.b")] == ["a_b", "a_b_2", "m_2", "a_b"]


def test_an_exporters_path_is_what_the_user_wrote() -> None:
    short = short_names(Oracle(DATA / "residual_bn.onnx").graph())
    assert short("/block1/conv1/Conv_output_0") == "/block1/conv1/y"
    assert short("/block1/conv1/Conv/dw") == "/block1/conv1/dw"
    assert short("/conv/Conv") == "/conv"
    assert short("block1.conv1.weight/momentum") == "block1.conv1.weight/momentum"
    assert short("x") == "x"


AWKWARD = ("step", "seed", "pager", "int32_t", "memcpy", "init", "loss", "class", "i", "out", "a.b", "a/b")


def awkward(folder: Path, name: str) -> Path:
    """A chain of layers whose weights and outputs have names that C or the generated code also uses."""
    nodes, weights, x = [], [], "in"
    for k, text in enumerate(AWKWARD):
        weights.append(numpy_helper.from_array(np.full((3, 3), 0.1 * k, np.float32), text))
        made = f"{text}*/" if k < len(AWKWARD) - 1 else "y"
        nodes.append(helper.make_node("Gemm", [x, text], [made], f"node /* {text}"))
        x = made
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("in", "y")]
    graph = helper.make_graph(nodes, name, ports[:1], ports[1:], weights)
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize("strategy", ["keep_all", "page_all"])
@pytest.mark.parametrize("name", ["test", "poet_pager", "file", "main"])
def test_any_names_compile(name: str, strategy: str, tmp_path: Path) -> None:
    options = Options(
        awkward(tmp_path, name), "host", strategy=strategy, train=("*",), freeze=("init", "step")
    )
    folder = tmp_path / "project"
    program = pipeline.generate(options, folder).program
    sources = [*folder.glob("*.c")]
    assert len(sources) == 5 and program.name not in ("test", "main", "file", "poet_pager")
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Wshadow",
        "-Werror",
        "-I",
        folder,
        "-I",
        folder / "runtime/include",
    ]
    for source in sources:
        command = ["gcc", *flags, "-fsyntax-only", source]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    cmake = (folder / "CMakeLists.txt").read_text()
    assert f"add_executable({program.name} " in cmake


# Folders


def test_a_tree_replaces_the_folder_that_it_wrote(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    SourceTree({MARKER: "{}", "old.c": "old\n", "deep/er.bin": b"\0"}).write(folder)
    SourceTree({MARKER: "{}", "new.c": "new\n"}).write(folder)
    assert sorted(p.name for p in folder.iterdir()) == sorted([MARKER, "new.c"])
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.tex").write_text("years of work")
    with pytest.raises(UsageError, match="was not written by poetgen"):
        SourceTree({MARKER: "{}"}).write(folder)
    assert [p.name for p in folder.iterdir()] == ["chapter.tex"]
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError, match="was not written by poetgen"):
        SourceTree({MARKER: "{}"}).write(file)


def test_a_tree_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    SourceTree({MARKER: "{}", "old.c": "old\n"}).write(folder)
    with pytest.raises(UsageError, match="cannot write"):
        SourceTree({MARKER: "{}", "a": "", "a/b": ""}).write(folder)
    assert (folder / "old.c").read_text() == "old\n"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_constants_that_do_not_fit_the_code_flash_are_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    weight = np.zeros((200, 200), np.float32)
    layers = [helper.make_node("Gemm", [f"h{k}" if k else "x", f"w{k}"], [f"h{k + 1}"]) for k in range(10)]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 200]) for n in ("x", "h10")]
    weights = [numpy_helper.from_array(weight + k, f"w{k}") for k in range(10)]
    graph = helper.make_graph(layers, "wide", ports[:1], ports[1:], weights)
    path = tmp_path / "wide.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    options = Options(path, "qemu_netduinoplus2", freeze=tuple(f"w{k}" for k in range(9)), train=("w9",))
    with pytest.raises(FitError, match=r"needs \d+ B of code flash"):
        pipeline.generate(options, tmp_path / "out")
    assert not (tmp_path / "out").exists()
