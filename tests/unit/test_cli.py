"""The command line: what each command answers, and for each mistake one clear error with its exit code."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from poetgen import build as building
from poetgen import cli, pipeline
from poetgen.cli import exit_code
from tests import toy

BOARD = "qemu_mps2_an386"


class Said:
    """What a command left: its exit code, its answer and what it said beside it."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Poetgen = Callable[..., Said]


@pytest.fixture
def poetgen(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Poetgen:
    monkeypatch.delenv("POETGEN_DEBUG", raising=False)

    def call(*arguments: object) -> Said:
        capfd.readouterr()
        code = exit_code([str(a) for a in arguments])
        return Said(code, *capfd.readouterr())

    return call


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model, data and a project for the host; tests do not change them."""
    folder = tmp_path_factory.mktemp("shelf")
    model = toy.write_model(folder / "toy.onnx")
    toy.write_data(folder / "data.npz")
    assert (
        exit_code(["generate", str(model), "--board", "host", "--lr", "0.1", "-o", str(folder / "net")]) == 0
    )
    assert exit_code(["generate", str(model), "--board", BOARD, "-o", str(folder / "board")]) == 0
    return folder


@pytest.fixture
def net(shelf: Path, tmp_path: Path) -> Path:
    """A project of one's own."""
    shutil.copytree(shelf / "net", tmp_path / "net", ignore=shutil.ignore_patterns("build"))
    return tmp_path / "net"


def refused(said: Said, code: int, *words: str) -> None:
    """One error in words, nothing on stdout, no traceback."""
    assert said.code == code, said.err
    assert said.out == ""
    assert sum(line.startswith("error: ") for line in said.err.splitlines()) == 1
    assert "Traceback" not in said.err
    assert "internal error" not in said.err
    for word in words:
        assert word in said.err


# What commands answer


def test_help_names_every_command_in_the_order_of_a_first_day(poetgen: Poetgen) -> None:
    said = poetgen("--help")
    assert said.code == 0
    names = [line.split()[0] for line in said.out.split("Commands:")[1].splitlines() if line.strip()]
    assert names == ["inspect", "plan", "generate", "build", "run", "verify", "boards"]


@pytest.mark.parametrize("command", ["inspect", "plan", "generate", "build", "run", "verify", "boards"])
def test_every_command_has_help_and_json(poetgen: Poetgen, command: str) -> None:
    said = poetgen(command, "--help")
    assert said.code == 0
    assert "--json" in said.out


def test_inspect_says_what_trains_and_what_a_step_takes(poetgen: Poetgen, shelf: Path) -> None:
    said = poetgen("inspect", shelf / "toy.onnx", "--board", "nrf52840dk")
    assert said.code == 0
    assert "hidden.weight  [5, 6]" in said.out
    assert "A training step of batch 4 takes" in said.out
    facts = poetgen(
        "inspect", shelf / "toy.onnx", "--board", "nrf52840dk", "--freeze", "head.*", "--json"
    ).json
    assert facts["step"]["trained"] == ["hidden.weight", "hidden.bias"]
    assert 0 < facts["step"]["min_ram_bytes"] <= facts["step"]["keep_all_bytes"]
    assert facts["cannot_train"] is None
    assert poetgen("inspect", shelf / "toy.onnx", "--json").json["trainable_elements"] == 53


def test_plan_answers_with_its_proof_its_bounds_and_its_baselines(poetgen: Poetgen, shelf: Path) -> None:
    facts = poetgen("plan", shelf / "toy.onnx", "--board", BOARD, "--json").json
    for key in (
        "status energy_j bound_j gap depth time_s peak_bytes min_ram_bytes keep_all_bytes baselines "
        "solve_cpu_s stopped_by"
    ).split():
        assert key in facts
    assert facts["status"] == "optimal"
    assert facts["gap"] <= 1e-6
    assert facts["peak_bytes"] <= facts["keep_all_bytes"]
    assert {b for b, fact in facts["baselines"].items() if fact["fits"]} >= {"keep_all", "page_all"}


def test_a_plan_is_shown_as_a_timeline_and_can_be_kept(poetgen: Poetgen, shelf: Path, tmp_path: Path) -> None:
    kept = tmp_path / "plan.json"
    said = poetgen("plan", shelf / "toy.onnx", "--board", BOARD, "-o", kept)
    assert said.code == 0
    assert "0  compute   /hidden/Gemm" in said.out
    assert "update    hidden.weight/update" in said.out
    arguments = ("generate", shelf / "toy.onnx", "--board", BOARD, "--plan", kept, "-o", tmp_path / "net")
    assert poetgen(*arguments).code == 0
    assert (tmp_path / "net" / "plan.json").read_text() == kept.read_text()


def test_generate_answers_with_the_ram_table(poetgen: Poetgen, shelf: Path, tmp_path: Path) -> None:
    facts = poetgen("generate", shelf / "toy.onnx", "--board", BOARD, "-o", tmp_path / "net", "--json").json
    assert sum(row["bytes"] for row in facts["ram"]) == facts["peak_bytes"]
    assert facts["params"][0]["name"] == "hidden.weight"


def test_build_answers_with_the_sizes_of_the_program(poetgen: Poetgen, shelf: Path) -> None:
    said = poetgen("build", shelf / "board", "--json")
    assert said.code == 0, said.err
    assert Path(said.json["elf"]).is_file()
    assert said.json["text_bytes"] > 1000
    assert "building" in said.err


def test_run_answers_with_what_the_target_computed(poetgen: Poetgen, shelf: Path, tmp_path: Path) -> None:
    dump = tmp_path / "params.npz"
    data = shelf / "data.npz"
    said = poetgen(
        "run", shelf / "net", "--data", data, "--steps", 9, "--eval", data, "--dump", dump, "--json"
    )
    assert said.code == 0, said.err
    facts = said.json
    assert facts["status"] == "done"
    assert len(facts["losses"]) == 9
    assert facts["losses"][8] < facts["losses"][0]
    assert facts["accuracy"] >= facts["accuracy_before"]
    assert facts["arena_bytes_measured"] == facts["arena_bytes_predicted"]
    for key in "stack_bytes_measured pages_in pages_out page_bytes_in page_bytes_out".split():
        assert key in facts
    digest = hashlib.sha256()
    with np.load(dump) as params:
        assert set(params.files) == set(toy.weights())
        for name in sorted(params.files, key=str.encode):
            digest.update(params[name].astype("<f4").tobytes())
    assert facts["params_sha256"] == digest.hexdigest()


def test_without_steps_a_run_goes_once_through_the_data(poetgen: Poetgen, shelf: Path) -> None:
    said = poetgen("run", shelf / "net", "--data", shelf / "data.npz", "--no-measure")
    assert said.code == 0
    assert "4 steps of 4 samples" in said.err
    assert said.out.splitlines()[0].split() == ["step", "loss"]
    assert said.out.splitlines()[4].split()[0] == "3"


def test_the_exported_model_holds_the_trained_parameters(
    poetgen: Poetgen, shelf: Path, tmp_path: Path
) -> None:
    dump, export = tmp_path / "params.npz", tmp_path / "trained.onnx"
    data = shelf / "data.npz"
    arguments = ("--data", data, "--eval", data, "--dump", dump, "--export", export, "--no-measure", "--json")
    said = poetgen("run", shelf / "net", *arguments)
    assert said.code == 0
    written = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(export).graph.initializer}
    with np.load(dump) as params:
        assert all((written[name] == params[name]).all() for name in params.files)
        assert not (params["head.bias"] == 0).any()
    session = onnxruntime.InferenceSession(export)
    with np.load(data) as samples:
        batches = samples["x"].reshape(-1, toy.BATCH, toy.FEATURES)
        logits = np.concatenate([session.run(None, {"x": x})[0] for x in batches])
        assert said.json["accuracy"] == (logits.argmax(1) == samples["y"]).mean()


def test_verify_finds_host_and_interpreter_equal(poetgen: Poetgen, shelf: Path) -> None:
    facts = poetgen("verify", shelf / "net", "--steps", 2, "--json").json
    assert facts["status"] == "equal"
    assert facts["training_steps"] == 2
    assert facts["values"] > 100


def test_a_stored_plan_is_judged_alone(poetgen: Poetgen, shelf: Path) -> None:
    facts = poetgen("verify", shelf / "net" / "plan.json", "--json").json
    assert facts["status"] == "legal"
    assert facts["energy_j"] > 0


def test_boards_are_listed_and_each_number_has_its_source(poetgen: Poetgen) -> None:
    names = {b["name"] for b in poetgen("boards", "--json").json}
    assert {"host", "nrf52840dk", BOARD} <= names
    assert all(name in poetgen("boards").out for name in names)
    one = poetgen("boards", "nrf52840dk").out
    rows = one.split("source\n")[1].splitlines()
    assert len(rows) > 15
    assert all(len(row.split("  ")) >= 3 for row in rows), one


# Bad input: one clear error, its exit code, nothing half written


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], ("No such command",)),
        (["plan", "x.onnx"], ("Missing option '--board'",)),
        (["boards", "nrf52"], ("no board is called 'nrf52'", "did you mean nrf52840dk?")),
        (["plan", "x.onnx", "--board", "host", "--ram", "64 KB"], ("'64 KB'", "64KiB")),
        (["plan", "x.onnx", "--board", "host", "--deadline", "2x"], ("'2x'",)),
        (["plan", "x.onnx", "--board", "host", "--strategy", "magic"], ("'magic' is not one of",)),
        (["plan", "x.onnx", "--board", "host", "--lr", "0"], ("--lr",)),
        (["run", "net"], ("Missing option '--data'",)),
        (["run", "none", "--data", "x.npz"], ("none is not a project", "no such folder")),
        (["build", "."], ("is not a project", "poetgen generate")),
    ],
)
def test_a_wrong_command_is_a_usage_error(
    poetgen: Poetgen,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    said = poetgen(*arguments)
    assert said.code == 2
    assert said.out == ""
    assert "Traceback" not in said.err
    assert all(word in said.err for word in words), said.err


def test_options_that_do_not_go_together_are_usage_errors(poetgen: Poetgen, shelf: Path) -> None:
    said = poetgen("run", shelf / "net", "--data", shelf / "data.npz", "--dump-gradients")
    assert said.code == 2
    assert "--dump PARAMS.npz" in said.err
    refused(poetgen("run", shelf / "net", "--data", shelf / "none.npz"), 2, "there is no data file")
    refused(poetgen("run", shelf / "net", "--on", "qemu", "--data", shelf / "data.npz"), 2, "no emulator")
    glob = ("generate", shelf / "toy.onnx", "--board", "host", "-o", "x", "--train", "heed.*")
    refused(poetgen(*glob), 2, "'heed.*' matches none", "head.weight")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda file: file.write_bytes(b"not a model"), ("bad.onnx",)),
        (lambda file: file.write_bytes(toy.write_model(file).read_bytes()[:150]), ("bad.onnx",)),
        (lambda file: toy.write_model(file, activation="Acos"), ("/act", "Acos")),
        (lambda file: toy.write_model(file, **{"head.bias": np.full(3, np.nan, np.float32)}), ("head.bias",)),
        (lambda file: None, ("bad.onnx",)),
    ],
    ids=["not ONNX", "truncated", "unsupported op", "NaN weight", "missing"],
)
@pytest.mark.parametrize("command", ["inspect", "plan", "generate"])
def test_a_model_that_cannot_be_read_is_refused_by_name(
    poetgen: Poetgen, tmp_path: Path, command: str, content: Callable[[Path], object], words: tuple[str, ...]
) -> None:
    model = tmp_path / "bad.onnx"
    content(model)
    out = ("-o", tmp_path / "net") if command == "generate" else ()
    refused(poetgen(command, model, "--board", "host", *out), 3, *words)
    assert not (tmp_path / "net").exists()


def test_a_budget_below_the_least_is_refused_and_leaves_the_old_project(
    poetgen: Poetgen, shelf: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "net"
    arguments = ("generate", shelf / "toy.onnx", "--board", BOARD, "-o", folder)
    assert poetgen(*arguments).code == 0
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    refused(poetgen(*arguments, "--ram", 500), 4, "no schedule fits", "toy", "try --ram")
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    assert os.listdir(tmp_path) == ["net"]
    refused(poetgen(*arguments, "--ram", "1 GiB"), 4, "more than qemu_mps2_an386 has")


def test_the_least_ram_is_told_where_no_plan_fits(poetgen: Poetgen, shelf: Path) -> None:
    """Of whole tensors; streaming may go below."""
    plan = ("plan", shelf / "toy.onnx", "--board", BOARD, "--stream", "off", "--json")
    said = poetgen(*plan, "--ram", 500)
    assert said.code == 4
    least = said.json["min_ram_bytes"]
    assert said.json["status"] == "infeasible"
    assert poetgen(*plan, "--ram", least).code == 0
    assert poetgen(*plan, "--ram", least - 8).code == 4


def test_an_impossible_deadline_is_refused(poetgen: Poetgen, shelf: Path) -> None:
    plan = ("plan", shelf / "toy.onnx", "--board", BOARD)
    refused(poetgen(*plan, "--deadline", "1ns"), 4, "deadline")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"x": np.zeros((16, 7), np.float32)}, ("'x' has shape [16, 7]", "[N, 6]")),
        ({"x": np.zeros((16, 6))}, ("'x' is float64", "float32")),
        ({"y": np.full(16, 3)}, ("'y' is 3", "3 classes: 0 to 2")),
        ({"y": np.zeros(15, np.int64)}, ("different numbers of samples",)),
        ({"x": np.full((16, 6), np.nan, np.float32)}, ("not finite",)),
    ],
)
def test_data_that_does_not_fit_is_refused(
    poetgen: Poetgen, shelf: Path, tmp_path: Path, changed: dict[str, Any], words: tuple[str, ...]
) -> None:
    data = toy.write_data(tmp_path / "bad.npz", **changed)
    refused(poetgen("run", shelf / "net", "--data", data, "--json"), 8, "bad.npz", *words)
    good = shelf / "data.npz"
    refused(poetgen("run", shelf / "net", "--data", good, "--eval", data), 8, "bad.npz", *words)


def test_samples_that_do_not_fill_a_batch_are_refused(poetgen: Poetgen, shelf: Path, tmp_path: Path) -> None:
    data = toy.write_data(tmp_path / "odd.npz", rows=18)
    refused(poetgen("run", shelf / "net", "--data", data), 8, "18 samples", "batch of 4", "16 or 20")


@pytest.mark.parametrize(
    "tool", ["cmake", "ninja", "arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm"]
)
def test_a_missing_tool_says_what_to_install(
    poetgen: Poetgen, shelf: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    which = shutil.which
    monkeypatch.setattr(building.shutil, "which", lambda name: None if name == tool else which(name))
    said = poetgen("run", shelf / "board", "--on", "qemu", "--data", shelf / "data.npz")
    refused(said, 5, f"{tool} is not installed", "apt install")


def test_c_that_does_not_compile_shows_the_compilers_first_errors(poetgen: Poetgen, net: Path) -> None:
    main = net / "main.c"
    main.write_text("int broken(void) { return nonsense; }\n" + main.read_text())
    refused(poetgen("build", net), 9, "gcc cannot build", "main.c:1", "nonsense")


def test_flags_that_change_the_arithmetic_are_refused(poetgen: Poetgen, net: Path) -> None:
    said = poetgen("build", net, "--flags", "-ffast-math")
    refused(said, 9, "same bits on every core")
    assert said.err.count("same bits on every core") == 1  # not once a file


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("__builtin_trap();", ("host crashed after 0 steps", "SIG")),
        ("poet_platform_exit(3);", ("exit code 3",)),
        ("return POET_ECHECK;", ("POET_ECHECK", "check word")),
        ("for (volatile int forever = 1; forever;) {}", ("was stopped after 1 s", "--timeout")),
    ],
    ids=["crash", "exit", "store", "timeout"],
)
def test_a_target_that_fails_says_how(
    poetgen: Poetgen, shelf: Path, net: Path, line: str, words: tuple[str, ...]
) -> None:
    main = net / "main.c"
    main.write_text(
        main.read_text().replace("static int run(void)\n{", f"static int run(void)\n{{\n    {line}", 1)
    )
    refused(poetgen("run", net, "--data", shelf / "data.npz", "--timeout", "1s"), 10, *words)


def test_a_loss_that_is_not_finite_is_null_and_ends_the_run(poetgen: Poetgen, shelf: Path) -> None:
    said = poetgen(
        "run", shelf / "net", "--data", shelf / "data.npz", "--steps", 50, "--lr", "1e30", "--json"
    )
    assert said.code == 10
    assert said.json["status"] == "nonfinite"
    assert said.json["losses"][-1] is None
    assert said.json["params_sha256"] is None
    assert "smaller --lr" in said.err


def test_a_folder_that_poetgen_did_not_write_is_left_alone(
    poetgen: Poetgen, shelf: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    arguments = ("generate", shelf / "toy.onnx", "--board", "host", "-o", tmp_path / "mine")
    refused(poetgen(*arguments), 2, "was not written by poetgen")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("content", ["", "{}", '{"name": "toy"}', "[]", "null"])
def test_a_damaged_project_is_refused(poetgen: Poetgen, net: Path, content: str) -> None:
    (net / "poetgen.json").write_text(content)
    refused(poetgen("build", net), 2, "poetgen.json cannot be read")


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"format": 1, "actions": 3}'])
def test_a_damaged_plan_is_refused(poetgen: Poetgen, shelf: Path, tmp_path: Path, content: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(content)
    arguments = ("generate", shelf / "toy.onnx", "--board", "host", "--plan", file, "-o", tmp_path / "net")
    refused(poetgen(*arguments), 8, "no stored plan")
    assert not (tmp_path / "net").exists()


def test_a_plan_that_breaks_a_rule_is_refused_by_the_judge(poetgen: Poetgen, net: Path) -> None:
    plan = json.loads((net / "plan.json").read_text())
    plan["actions"] = plan["actions"][1:]
    (net / "plan.json").write_text(json.dumps(plan))
    refused(poetgen("verify", net / "plan.json"), 8, "not legal", "rule")


def test_c_that_computes_something_else_is_found_at_its_first_value(poetgen: Poetgen, net: Path) -> None:
    kernel = net / "runtime" / "kernels" / "relu.c"
    text = kernel.read_text()
    assert "y[0] = a < 0.0f" in text
    kernel.write_text(text.replace("y[0] = a < 0.0f", "y[0] = a < 0.5f"))
    said = poetgen("verify", net, "--steps", 1)
    refused(
        said,
        6,
        "training step 0",
        "step 1 of the schedule",
        "/act",
        "layer /act",
        "a[",
        "C has",
        "values differ",
    )
    answer = json.loads(poetgen("verify", net, "--steps", 1, "--json").out)
    assert answer["status"] == "different"
    assert answer["first_difference"]["node"] == "/act"


def test_an_interrupt_leaves_with_130(poetgen: Poetgen, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "read_model", interrupt)
    said = poetgen("inspect", shelf / "toy.onnx")
    assert said.code == 130
    assert "interrupted" in said.err


def test_a_mistake_of_ours_is_no_traceback_unless_asked_for(
    poetgen: Poetgen, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(pipeline, "read_model", break_down)
    said = poetgen("inspect", shelf / "toy.onnx")
    assert said.code == 1
    assert "internal error, ZeroDivisionError: oops" in said.err
    assert "please report it" in said.err
    assert "Traceback" not in said.err
    monkeypatch.setenv("POETGEN_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        poetgen("inspect", shelf / "toy.onnx")


def test_a_disk_that_is_full_is_told_in_words(
    poetgen: Poetgen, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_up(*_: object) -> None:
        raise OSError(28, "No space left on device", "somewhere/data.bin")

    monkeypatch.setattr(pipeline, "read_model", fill_up)
    refused(poetgen("inspect", shelf / "toy.onnx"), 1, "No space left on device", "somewhere/data.bin")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_leaves_no_program_behind(
    shelf: Path, tmp_path: Path, number: signal.Signals
) -> None:
    shutil.copytree(shelf / "net", tmp_path / "net", ignore=shutil.ignore_patterns("build"))
    main = tmp_path / "net" / "main.c"
    forever = 'for (volatile int up = poet_file_open("up", POET_FILE_WRITE); up;) {}'
    entry = "static int run(void)\n{"
    main.write_text(main.read_text().replace(entry, f"{entry}\n    {forever}", 1))
    command = ["run", str(tmp_path / "net"), "--data", str(shelf / "data.npz")]
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"from poetgen.cli import main; main({command})"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    running = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        until = time.monotonic() + 60
        while not list(tmp_path.glob("poetgen-*/up")):
            assert running.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        running.send_signal(number)
        assert running.wait(20) == 130
    finally:
        running.kill()
    assert running.stderr is not None
    assert "error: interrupted" in running.stderr.read()
    assert list(tmp_path.glob("poetgen-*")) == []
    assert (
        str(tmp_path / "net" / "build")
        not in subprocess.run(["ps", "axww"], capture_output=True, text=True).stdout
    )


def test_main_leaves_with_the_commands_code(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(["boards", "none"])
    assert left.value.code == 2
