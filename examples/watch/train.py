"""Train the small net on nine people and export it; with --all, measure all ten left-out people.

    pip install torch==2.13.0 numpy onnx && pip install --no-deps seglearn==1.2.5
    python train.py            # watch.onnx for the person of prepare.py, and that person's row
    python train.py --all      # the table of ../README.md: ten nets, each fine-tuned twice

Fine-tuning here is what the generated C does: batch norm uses its stored statistics, its scale and
shift train; step s takes rows s * BATCH .. of adapt.npz, modulo its length.
"""

import argparse
import copy
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from prepare import BATCH, PEOPLE, PERSON, WINDOW, Split, Windows, recordings, split
from torch import Tensor, nn

CLASSES = 7
EPOCHS, TRAIN_BATCH, TRAIN_LR, DECAY = 20, 64, 2e-3, 1e-4
STEPS, LR, MOMENTUM = 300, 0.001, 0.9  # fine-tuning


class Net(nn.Module):
    """Three convolutions over time. They shrink early: at batch 8 each activation is RAM.

    x [8, 6, 100] -> conv1 [8, 16, 50] -> pool [8, 16, 25] -> conv2 [8, 32, 25] -> pool [8, 32, 12]
    -> conv3 [8, 32, 12] -> mean over time [8, 32] -> fc [8, 7]
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(6, 16, 5, stride=2, padding=2, bias=False)
        self.bn1 = nn.BatchNorm1d(16)
        self.conv2 = nn.Conv1d(16, 32, 5, padding=2, bias=False)
        self.bn2 = nn.BatchNorm1d(32)
        self.conv3 = nn.Conv1d(32, 32, 5, padding=2, bias=False)
        self.bn3 = nn.BatchNorm1d(32)
        self.pool = nn.MaxPool1d(2)
        self.mean = nn.AdaptiveAvgPool1d(1)
        self.fc = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Give logits [batch, CLASSES] for x [batch, 6, WINDOW]."""
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        x = self.pool(F.relu(self.bn2(self.conv2(x))))
        x = F.relu(self.bn3(self.conv3(x)))
        return self.fc(torch.flatten(self.mean(x), 1))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Row:
    """One line of the table; accuracies are of the second halves.

    Row(person=2, windows=256, before=0.730, after=0.965, last_layer=0.742)
    """

    person: int
    windows: int
    before: float
    after: float
    last_layer: float


def tensors(part: Windows) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(part.x), torch.from_numpy(part.y)


def accuracy(net: Net, part: Windows) -> float:
    net.eval()
    x, y = tensors(part)
    with torch.no_grad():
        return float((net(x).argmax(1) == y).double().mean())


def train(others: Windows, seed: int) -> Net:
    """Train on nine people, with batch statistics."""
    torch.manual_seed(seed)
    net = Net().train()
    x, y = tensors(others)
    optimizer = torch.optim.Adam(net.parameters(), TRAIN_LR, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        order = torch.randperm(len(y))
        for rows in order[: len(y) // TRAIN_BATCH * TRAIN_BATCH].split(TRAIN_BATCH):
            optimizer.zero_grad()
            F.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
        schedule.step()
    return net.eval()


def fine_tune(net: Net, adapt: Windows, last_layer_only: bool = False) -> Net:
    """Fine-tune a copy on the new person, as the board will."""
    tuned = copy.deepcopy(net).eval()  # eval: statistics stay, scale and shift still train
    x, y = tensors(adapt)
    trained: Iterable[nn.Parameter] = (tuned.fc if last_layer_only else tuned).parameters()
    optimizer = torch.optim.SGD(trained, LR, MOMENTUM)
    for step in range(STEPS):
        first = step * BATCH % len(y)
        optimizer.zero_grad()
        F.cross_entropy(tuned(x[first : first + BATCH]), y[first : first + BATCH]).backward()
        optimizer.step()
    return tuned


def measure(person: int, net: Net, parts: Split) -> Row:
    return Row(
        person,
        len(parts.test.y),
        accuracy(net, parts.test),
        accuracy(fine_tune(net, parts.adapt), parts.test),
        accuracy(fine_tune(net, parts.adapt, last_layer_only=True), parts.test),
    )


def export(net: Net, path: Path) -> None:
    """Write ONNX that keeps batch norm (inference form) and every parameter name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the legacy exporter is the one that can do this
        torch.onnx.export(
            net.eval(),
            (torch.zeros(BATCH, 6, WINDOW),),
            str(path),
            dynamo=False,
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
            opset_version=17,
            input_names=["x"],
            output_names=["out"],
        )


def table(rows: Iterable[Row]) -> str:
    rows = tuple(rows)
    lines = [
        "| left out | test windows | before | after 300 steps, all | after 300 steps, last layer |",
        "|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r.person} | {r.windows} | {r.before:.3f} | {r.after:.3f} | {r.last_layer:.3f} |" for r in rows
    ]
    if len(rows) > 1:
        before, after, last = np.mean([(r.before, r.after, r.last_layer) for r in rows], axis=0)
        windows = sum(r.windows for r in rows)
        lines.append(f"| mean | {windows} | {before:.3f} | {after:.3f} | {last:.3f} |")
    return "\n".join(lines)


def main() -> None:
    """Export one person's net, or measure all ten."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--all", action="store_true", help="measure ten people, export nothing")
    parser.add_argument("--person", type=int, default=PERSON, help=f"left out (default {PERSON})")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "watch.onnx")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a sum must not depend on how many cores share it
    torch.use_deterministic_algorithms(True)
    every = recordings()
    rows = []
    for person in PEOPLE if options.all else (options.person,):
        parts = split(every, person)
        net = train(parts.others, seed=person)
        rows.append(measure(person, net, parts))
        if not options.all:
            export(net, options.out)
    print(table(rows))


if __name__ == "__main__":
    main()
