"""What sample projects take on their boards, measured: text, data, bss, stack and the arena. For `make test`.

Run: python tools/sizes.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from poetgen import pipeline
from poetgen.build import where_to_run
from poetgen.data import random_batches
from poetgen.errors import PoetgenError
from poetgen.pipeline import Options
from poetgen.project import open_project
from poetgen.run import Job, run

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = (
    ("examples/watch/watch.onnx", "qemu_netduinoplus2", 88, "cross_entropy"),
    ("tests/data/conv2d_grouped.onnx", "qemu_mps2_an386", 64, "cross_entropy"),
    ("tests/data/mlp_mse.onnx", "qemu_microbit", 8, "mse"),
)
"""Model, board, RAM in KiB, loss."""


def main() -> int:
    """Print the table."""
    print(f"{'model':16} {'board':20} {'text':>7} {'data':>5} {'bss':>7} {'stack':>6} {'arena':>6}")
    with tempfile.TemporaryDirectory(prefix="poetgen-sizes-") as scratch:
        for model, board, kib, loss in SAMPLES:
            options = Options(ROOT / model, board, ram_bytes=kib * 1024, loss=loss)
            folder = Path(scratch) / Path(model).stem
            pipeline.generate(options, folder)
            project = open_project(folder)
            job = Job(random_batches(project, 1), 1, measure=False)
            result = run(project, where_to_run(project, "qemu"), job)
            sizes = result.built.sizes
            print(
                f"{project.name:16} {board:20} {sizes.text:>7} {sizes.data:>5} {sizes.bss:>7}"
                f" {result.outcome.stack_bytes:>6} {project.arena_bytes:>6}"
            )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PoetgenError as error:
        print(f"error: {error.message}\n  {error.hint}".rstrip(), file=sys.stderr)
        sys.exit(error.exit_code)
