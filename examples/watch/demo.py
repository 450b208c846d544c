"""Fine-tune a watch's exercise recogniser to a person it has never seen, on an emulated STM32F405.

Run by `make demo`. Everything it prints is computed here and now: the plan by the solver, the losses
and accuracies by the target under QEMU, the bytes of the page store by the host's kernel.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from poetgen import pipeline
from poetgen.build import where_to_run
from poetgen.data import read_batches
from poetgen.errors import PoetgenError
from poetgen.pipeline import Options
from poetgen.project import Project, open_project
from poetgen.report import kib, si
from poetgen.run import Job, RunResult, accuracy, run

HERE = Path(__file__).parent
BOARD = "qemu_netduinoplus2"
BUDGETS_KIB = (80, 84, 88, 92, 96, 104, 112)
"""RAM budgets of the table; the board has 112 KiB beside what is reserved for its stack."""
WIDTH = 60


def say(text: str = "") -> None:
    """Print a line at once."""
    print(text, flush=True)


def title(text: str) -> None:
    """Print a heading."""
    say(f"\n{text}\n{'-' * len(text)}")


def on_board(project: Project, on: str, steps: int) -> tuple[RunResult, float]:
    """Train on the person's first halves, evaluate on the second; seconds of wall time beside it."""
    started = time.monotonic()
    job = Job(
        data=read_batches(HERE / "adapt.npz", project),
        steps=steps,
        eval_data=read_batches(HERE / "test.npz", project),
    )
    return run(project, where_to_run(project, on), job), time.monotonic() - started


def loss_curve(result: RunResult) -> None:
    """Mean losses of a dozen stretches of the run, as bars."""
    losses = result.losses
    part = max(1, len(losses) // 12)
    means = [(k, float(losses[k : k + part].mean())) for k in range(0, len(losses) - part + 1, part)]
    top = max(mean for _, mean in means)
    for k, mean in means:
        say(f"  steps {k:>3}..{k + part - 1:<3}  {mean:8.5f}  {'#' * round(WIDTH * mean / top)}")


def store_bytes(project: Project, steps: int) -> tuple[float, float]:
    """Bytes a step reads from and writes to the store, by the host's count of QEMU's own file traffic.

    Two runs that differ in nothing but their steps; what a step reads of data.bin and writes to loss.bin
    is taken off.
    """
    counts = []
    for n in (1, 1 + steps):
        data = read_batches(HERE / "adapt.npz", project)
        result = run(project, where_to_run(project, "qemu"), Job(data=data, steps=n, measure=False))
        outcome = result.outcome
        if outcome.host_read_bytes is None or outcome.host_written_bytes is None:
            return float("nan"), float("nan")
        counts.append((outcome.host_read_bytes, outcome.host_written_bytes))
    read, written = ((b - a) / steps for a, b in zip(*counts, strict=True))
    return read - data.batch_bytes, written - 4


def plans(options: Options) -> None:
    """The plan at this budget beside the baselines, and what is optimal at other budgets."""
    report = pipeline.plan_report(options)
    say(report.text())
    say()
    say(f"  {'strategy':14} {'fits':5} {'RAM':>10} {'energy':>9} {'time':>8}")
    for name, fits, ram, energy, duration in report.baseline_rows():
        say(f"  {name:14} {fits:5} {ram:>10} {energy:>9} {duration:>8}")
    say("\n  What is optimal at other budgets:")
    say(f"  {'--ram':>8} {'energy':>9} {'time':>8} {'pages':>6} {'recomputes':>11}  status")
    for budget in BUDGETS_KIB:
        found = pipeline.plan_report(replace(options, ram_bytes=budget * 1024))
        v = found.verdict
        say(
            f"  {budget:>4} KiB {si(v.energy_j, 'J'):>9} {si(v.time_s, 's'):>8} "
            f"{v.pages_in + v.pages_out:>6} {v.recomputes:>11}  {found.schedule.solved.status}"
        )


def main() -> int:
    """The whole story."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="training steps under QEMU [300]")
    parser.add_argument("--ram", type=int, default=88, help="RAM budget in KiB [88]")
    parser.add_argument("-o", dest="out", type=Path, help="keep the generated project here")
    arguments = parser.parse_args()
    started = time.monotonic()
    options = Options(
        model=HERE / "watch.onnx", board=BOARD, ram_bytes=arguments.ram * 1024, lr=0.001, momentum=0.9
    )
    say("A network that tells seven shoulder exercises apart was trained on nine people. It meets a tenth.")
    say(
        f"Board: an STM32F405 with 128 KB of RAM (QEMU {BOARD}); RAM allowed to poetgen: {arguments.ram} KiB."
    )

    title("The plan")
    plans(options)

    with tempfile.TemporaryDirectory(prefix="poetgen-demo-") as scratch:
        folder = Path(scratch) / "watch"
        compiled = pipeline.generate(options, folder)
        project = open_project(folder)

        title(f"Training {arguments.steps} steps of batch 8 on the board, under QEMU")
        result, seconds = on_board(project, "qemu", arguments.steps)
        outcome = result.outcome
        loss_curve(result)
        say(f"\n  {seconds:.0f} s of wall time, the compiler's and three measuring runs included")

        title("Accuracy on the new person's second halves, computed by the target")
        head = pipeline.generate(replace(options, train=("fc.*",)), Path(scratch) / "head")
        last, _ = on_board(open_project(Path(scratch) / "head"), "qemu", arguments.steps)
        say(f"  as it comes:               {accuracy(outcome.before):.4f}")
        head_ram = f"({head.program.peak_bytes} B of RAM)"
        say(f"  last layer only trained:   {accuracy(last.outcome.after):.4f}   {head_ram}")
        say(f"  all layers trained:        {accuracy(outcome.after):.4f}")

        title("RAM, in bytes")
        program = compiled.program
        say(f"  {'':34} {'predicted':>10} {'measured':>10}")
        say(f"  {'arena':34} {program.arena_bytes:>10} {result.arena_bytes_measured:>10}")
        say(
            f"  {'struct: parameters, state, pager':34} {program.struct_bytes:>10} {outcome.struct_bytes:>10}"
        )
        buffers = program.peak_bytes - program.arena_bytes - program.struct_bytes
        say(f"  {'input and label of one batch':34} {buffers:>10} {'':>10}")
        say(f"  {'in all':34} {program.peak_bytes:>10} {'':>10}  of {arguments.ram * 1024} allowed")
        reserved = program.costed.board.reserved_bytes
        say(f"  {'stack':34} {f'<= {reserved}':>10} {outcome.stack_bytes:>10}")
        sizes = result.built.sizes
        say(f"  {'image: text':34} {'':>10} {sizes.text:>10}  data {sizes.data}, bss {sizes.bss}")

        title("The page store, bytes a step")
        predicted = project.traffic
        size, steps = project.sector_bytes, outcome.steps
        read, written = store_bytes(project, 20)
        say(f"  {'':6} {'predicted':>10} {'target':>10} {'host':>10}")
        target = outcome.sectors_read * size / steps, outcome.sectors_written * size / steps
        say(f"  {'read':6} {predicted.bytes_in:>10} {target[0]:>10.0f} {read:>10.0f}")
        say(f"  {'write':6} {predicted.bytes_out:>10} {target[1]:>10.0f} {written:>10.0f}")

        title("The same bits on the host")
        host, _ = on_board(project, "host", arguments.steps)
        say(f"  board  {result.params_sha256}")
        say(f"  host   {host.params_sha256}")
        same = result.params_sha256 == host.params_sha256
        say("  equal" if same else "  DIFFERENT")

        if arguments.out is not None:
            compiled_tree = pipeline.source_tree(compiled)
            compiled_tree.write(arguments.out)
            say(f"\nThe project is in {arguments.out}.")
        shutil.rmtree(folder)
    counted = (outcome.sectors_read * size, outcome.sectors_written * size)
    honest = counted == (predicted.bytes_in * steps, predicted.bytes_out * steps)
    better = accuracy(outcome.after) > accuracy(outcome.before)
    fits = program.arena_bytes == result.arena_bytes_measured
    say(f"\nDone in {time.monotonic() - started:.0f} s. Peak RAM {kib(program.peak_bytes)}.")
    return 0 if same and better and honest and fits else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PoetgenError as error:
        print(f"error: {error.message}\n  {error.hint}".rstrip(), file=sys.stderr)
        sys.exit(error.exit_code)
