"""Write small training oracles: ONNX files from PyTorch, and what PyTorch computes for them.

    pip install torch==2.13.0 numpy onnx        # the CPU build is enough
    python make_oracles.py [NAME ...]           # writes beside itself; default: all

NAME.onnx   opset 17, legacy exporter, fixed batch, PyTorch's parameter names ("conv1.weight").
            Frozen batch norm is in inference form, trained batch norm has training_mode=1.
NAME.npz    x, y               STEPS * batch rows; step s uses rows s * batch .. (s + 1) * batch;
                               x is float32 or int64 ids, y int64 classes (ce) or float32
                               targets (mse)
            loss               float64 [STEPS], each before its update
            grad/PARAMETER     gradient of step 0
            after/TENSOR       parameters and batch-norm statistics after all steps
            meta               JSON: loss, optimizer, lr, momentum, eps, batch_norm, batch, steps,
                               seed, torch

Why it is done this way:
- The reference is float64 and starts from the float32 numbers that the file holds, so what it
  differs by from a float32 implementation is that implementation's own rounding. (The exporter
  runs a trained batch norm once: its statistics in the file are not those before the export.)
- Three steps on three batches, so that optimizer state and running statistics count.
- Running variances move by the population variance, as ONNX says; PyTorch's by n / (n - 1).
- A Relu input or a lead of a MaxPool's winner within rounding of zero could go either way in a
  correct implementation and move gradients by percents. Seeds are tried until none is: `margin`.
- Adam has eps 1e-4, so that a gradient which is zero but for rounding does not become a full step.
- Before it is kept, each oracle is run by PyTorch in float32 and must agree within the tolerances
  that poetgen is held to.
"""

import copy
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = 3
ADAM_EPS = 1e-4
MARGIN = 2e-5  # of the tensor's rms; float32 sums of these lengths err by about 1e-6
SEEDS = 200
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
POOLS = (nn.MaxPool1d, nn.MaxPool2d)
KINKED = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.Hardswish)


class PaddedConv(nn.Conv2d):
    """Conv2d with ONNX's four pads (top, left, bottom, right), which PyTorch cannot express.

    It exports without pads; `mend_pads` writes them into the file's Conv.
    """

    def __init__(self, *args: int, pads: tuple[int, int, int, int], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.pads = pads

    def forward(self, x: Tensor) -> Tensor:
        top, left, bottom, right = self.pads
        if not torch.onnx.is_in_onnx_export():
            x = F.pad(x, (left, right, top, bottom))
        return super().forward(x)


class Conv1dFrozen(nn.Module):
    """The shape of the watch net, with a Dropout that drops nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(3, 8, 5, stride=2, padding=2, bias=False)
        self.bn1, self.relu1, self.pool = nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2)
        self.drop = nn.Dropout(0.0)
        self.conv2 = nn.Conv1d(8, 12, 3, padding=1)
        self.bn2, self.relu2 = nn.BatchNorm1d(12), nn.ReLU()
        self.fc = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.pool(self.relu1(self.bn1(self.conv1(x)))))
        x = self.relu2(self.bn2(self.conv2(x)))
        return self.fc(x.mean(2))


class Conv2dGrouped(nn.Module):
    """Conv in its awkward forms: unequal kernel, strides and pads; dilation with groups."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = PaddedConv(4, 8, (3, 2), stride=(2, 1), pads=(1, 0, 0, 2))
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2)
        self.relu2, self.pool = nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(8, 12, 1, bias=False)
        self.relu3, self.mean = nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(12, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu1(self.conv1(x))
        x = self.pool(self.relu2(self.conv2(x)))
        x = self.relu3(self.conv3(x))
        return self.fc(torch.flatten(self.mean(x), 1))


class Block(nn.Module):
    """Two convolutions and a skip; a 1x1 convolution on the skip where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1, self.relu1 = nn.BatchNorm2d(outputs), nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2, self.relu2 = nn.BatchNorm2d(outputs), nn.ReLU()
        self.skip: nn.Module = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.skip = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        return self.relu2(y + self.skip(x))


class Residual(nn.Module):
    """A ResNet in small: batch norm trains."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn, self.relu = nn.BatchNorm2d(8), nn.ReLU()
        self.block1, self.block2 = Block(8, 8, 1), Block(8, 12, 2)
        self.mean, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block2(self.block1(self.relu(self.bn(self.conv(x)))))
        return self.fc(torch.flatten(self.mean(x), 1))


class Separable(nn.Module):
    """Depthwise-separable convolutions, the second with two outputs a channel; Relu6."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn, self.relu = nn.BatchNorm2d(8), nn.ReLU6()
        self.deep1 = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.bn1, self.relu1 = nn.BatchNorm2d(8), nn.ReLU6()
        self.point1 = nn.Conv2d(8, 12, 1, bias=False)
        self.bn2, self.relu2 = nn.BatchNorm2d(12), nn.ReLU6()
        self.deep2 = nn.Conv2d(12, 24, 3, stride=2, padding=1, groups=12)
        self.relu3, self.pool = nn.ReLU6(), nn.AvgPool2d(3)
        self.fc = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu1(self.bn1(self.deep1(self.relu(self.bn(self.conv(x))))))
        x = self.relu3(self.deep2(self.relu2(self.bn2(self.point1(x)))))
        return self.fc(torch.flatten(self.pool(x), 1))


class Mlp(nn.Module):
    """Regression."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.relu1 = nn.Linear(10, 24), nn.ReLU()
        self.fc2, self.relu2 = nn.Linear(24, 16), nn.ReLU()
        self.fc3 = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc3(self.relu2(self.fc2(self.relu1(self.fc1(x)))))


class Transformer(nn.Module):
    """Tokens and places embedded, one block with two heads of attention, a classifier on the first token."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(20, 12), nn.Embedding(6, 12)
        self.norm0 = nn.LayerNorm(12)
        self.q, self.k, self.v = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 12)
        self.out, self.norm1 = nn.Linear(12, 12), nn.LayerNorm(12)
        self.fc1, self.fc2, self.norm2 = nn.Linear(12, 24), nn.Linear(24, 12), nn.LayerNorm(12)
        self.pool, self.fc = nn.Linear(12, 12), nn.Linear(12, 3)

    def forward(self, ids: Tensor) -> Tensor:
        def heads(z: Tensor) -> Tensor:
            return z.view(z.shape[0], z.shape[1], 2, 6).transpose(1, 2)

        x = self.norm0(self.token(ids) + self.place(torch.arange(ids.shape[1])))
        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        weights = torch.softmax(q @ k.transpose(-1, -2) / 6**0.5, -1)
        x = self.norm1(x + self.out((weights @ v).transpose(1, 2).reshape(x.shape)))
        x = self.norm2(x + self.fc2(F.gelu(self.fc1(x))))
        return self.fc(torch.tanh(self.pool(x[:, 0])))


class Tokens(nn.Module):
    """An embedding under convolutions, one gated and one transposed, whose means and sums are joined."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(16, 8)
        self.conv1, self.swish = nn.Conv1d(8, 12, 3, padding=1), nn.Hardswish()
        self.conv2, self.leaky = nn.ConvTranspose1d(6, 4, 4, stride=2, padding=1), nn.LeakyReLU(0.1)
        self.fc = nn.Linear(10, 4)

    def forward(self, ids: Tensor) -> Tensor:
        a, b = self.conv1(self.token(ids).transpose(1, 2)).chunk(2, 1)
        gated = self.swish(a) * torch.sigmoid(b)
        wide = self.leaky(self.conv2(gated))
        return self.fc(torch.cat([gated.mean(2), wide.sum(2) * 0.25], 1))


@dataclass(frozen=True)
class Oracle:
    """What to train and how.

    Oracle(Mlp, (8, 10), "mse", "sgd", lr=0.05, momentum=0.0, batch_norm="none")
    """

    build: Callable[[], nn.Module]
    input_shape: tuple[int, ...]  # with the batch
    loss: str  # ce, mse
    optimizer: str  # sgd, adam
    lr: float
    momentum: float
    batch_norm: str  # train, frozen, none
    input_scale: float = 1.0
    vocabulary: int = 0  # the input is ids below it

    def loss_of(self, out: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(out, y) if self.loss == "ce" else F.mse_loss(out, y)


ORACLES = {
    "conv1d_frozen": Oracle(Conv1dFrozen, (4, 3, 40), "ce", "sgd", 0.05, 0.9, "frozen"),
    "conv2d_grouped": Oracle(Conv2dGrouped, (2, 4, 13, 11), "ce", "sgd", 0.05, 0.0, "none"),
    "residual_bn": Oracle(Residual, (4, 3, 8, 8), "ce", "sgd", 0.05, 0.9, "train"),
    "separable_adam": Oracle(Separable, (2, 3, 12, 12), "ce", "adam", 1e-3, 0.0, "frozen", 6.0),
    "mlp_mse": Oracle(Mlp, (8, 10), "mse", "sgd", 0.05, 0.0, "none"),
    "transformer": Oracle(Transformer, (2, 6), "ce", "adam", 1e-3, 0.0, "none", vocabulary=20),
    "tokens": Oracle(Tokens, (2, 7), "ce", "sgd", 0.05, 0.0, "none", vocabulary=16),
}


@dataclass(frozen=True)
class Trained:
    """One run of STEPS steps."""

    losses: tuple[float, ...]
    gradients: dict[str, Tensor]  # of step 0
    after: dict[str, Tensor]
    margin: float  # the least over all steps


def lead(pool: nn.Module, x: Tensor) -> Tensor:
    """By how much the winner of each window leads; ties at a Relu's zero are harmless, so left out."""
    pair = (lambda v: v if isinstance(v, tuple) else (v, v)) if x.dim() == 4 else lambda v: (1, v)
    x = x if x.dim() == 4 else x.unsqueeze(2)
    (kh, kw), (sh, sw) = pair(pool.kernel_size), pair(pool.stride)
    ph, pw = pair(pool.padding) if x.shape[2] > 1 else (0, pool.padding)
    x = F.pad(x, (pw, pw, ph, ph), value=-torch.inf)
    windows = x.unfold(2, kh, sh).unfold(3, kw, sw).flatten(4)
    best = windows.topk(2, dim=-1).values
    return (best[..., 0] - best[..., 1])[best[..., 0] > 0]


def nearest(module: nn.Module, x: Tensor) -> float:
    """Return how near, in units of its rms, an input comes to where this layer's gradient jumps."""
    x = x.detach()
    if isinstance(module, POOLS):
        gaps = lead(module, x)
    elif isinstance(module, nn.ReLU6):
        gaps = torch.minimum(x.abs(), (x - 6).abs())
    elif isinstance(module, nn.Hardswish):
        gaps = (x.abs() - 3).abs()
    else:
        gaps = x.abs()
    return float(gaps.min() / x.pow(2).mean().sqrt())


def run(oracle: Oracle, model: nn.Module, x: Tensor, y: Tensor) -> Trained:
    """Train a copy, one step a batch, in the precision of the model."""
    model = copy.deepcopy(model)
    margins: list[float] = []
    kept: dict[nn.Module, Tensor] = {}

    def watch(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        margins.append(nearest(module, args[0]))

    def keep(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        kept[module] = module.running_var.clone()

    def population(module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        axes = [a for a in range(args[0].dim()) if a != 1]
        moved = args[0].detach().var(axes, correction=0)
        # A new tensor: the backward pass still holds the old one.
        module.running_var = torch.lerp(kept[module], moved, module.momentum)

    for module in model.modules():
        if isinstance(module, (*KINKED, *POOLS)):
            module.register_forward_pre_hook(watch)
        if isinstance(module, NORMS) and module.training:
            module.register_forward_pre_hook(keep)
            module.register_forward_hook(population)
    optimizer = (
        torch.optim.SGD(model.parameters(), oracle.lr, oracle.momentum)
        if oracle.optimizer == "sgd"
        else torch.optim.Adam(model.parameters(), oracle.lr, eps=ADAM_EPS)
    )
    losses: list[float] = []
    gradients: dict[str, Tensor] = {}
    for xs, ys in zip(x.chunk(STEPS), y.chunk(STEPS), strict=True):
        optimizer.zero_grad()
        loss = oracle.loss_of(model(xs), ys)
        loss.backward()
        losses.append(loss.item())
        gradients = gradients or {n: p.grad.clone() for n, p in model.named_parameters()}
        optimizer.step()
    after = {n: t for n, t in model.state_dict().items() if not n.endswith("num_batches_tracked")}
    return Trained(tuple(losses), gradients, after, min(margins, default=1.0))


def export(oracle: Oracle, model: nn.Module, x: Tensor) -> onnx.ModelProto:
    path = Path(__file__).parent / "exporting.onnx"
    mode = torch.onnx.TrainingMode
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the legacy exporter is the one that keeps batch norm
        torch.onnx.export(
            copy.deepcopy(model),
            (x,),
            str(path),
            dynamo=False,
            training=mode.TRAINING if oracle.batch_norm == "train" else mode.PRESERVE,
            do_constant_folding=False,
            opset_version=17,
            input_names=["x"],
            output_names=["out"],
        )
    file = onnx.load(path)
    path.unlink()
    mend_pads(file, model)
    onnx.checker.check_model(file, full_check=True)
    return file


def mend_pads(file: onnx.ModelProto, model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, PaddedConv):
            (node,) = (n for n in file.graph.node if f"{name}.weight" in n.input)
            (pads,) = (a for a in node.attribute if a.name == "pads")
            pads.ints[:] = module.pads


def initial(oracle: Oracle, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = oracle.build().train(oracle.batch_norm == "train")
    for module in model.modules():
        if isinstance(module, NORMS):  # as after some training
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.1)
        if isinstance(module, nn.LayerNorm):  # the exporter makes one of equal tensors
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.1)
        if isinstance(module, nn.Dropout):
            module.train()  # so that it stands in the file
    return model


def disagreement(oracle: Oracle, narrow: Trained, wide: Trained) -> float:
    """Return the largest difference, in units of what is allowed: losses 1e-5 relative; gradients
    3e-5 of the largest; parameters 3e-5 of the largest step SGD can take, 5e-3 of Adam's.
    """
    largest = max(float(g.abs().max()) for g in wide.gradients.values())
    adam = oracle.optimizer == "adam"
    step = oracle.lr * STEPS * (5e-3 if adam else 3e-5 * largest)
    worst = max(abs(a - b) / b / 1e-5 for a, b in zip(narrow.losses, wide.losses, strict=True))
    for name, gradient in wide.gradients.items():
        moved = float((narrow.gradients[name] - gradient).abs().max()) / (3e-5 * largest)
        worst = max(worst, moved, float((narrow.after[name] - wide.after[name]).abs().max()) / step)
    return worst


def attempt(oracle: Oracle, seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]] | str:
    """Make an oracle from a seed, or say why not."""
    model = initial(oracle, seed)
    batch, *rest = oracle.input_shape
    x = torch.randn(STEPS * batch, *rest) * oracle.input_scale
    if oracle.vocabulary:
        x = torch.randint(oracle.vocabulary, x.shape)
    file = export(oracle, model, x[:batch])
    stored = {i.name: onnx.numpy_helper.to_array(i) for i in file.graph.initializer}
    state = model.state_dict()
    state |= {n: torch.from_numpy(stored[n].copy()) for n in state.keys() & stored.keys()}
    missing = [n for n, _ in model.named_parameters() if n not in stored]
    if missing:
        raise SystemExit(f"the exporter renamed {missing}")
    model.load_state_dict(state)
    with torch.no_grad():
        shape = copy.deepcopy(model)(x).shape
    y = torch.randint(shape[1], shape[:1]) if oracle.loss == "ce" else torch.randn(shape)
    wide_y = y if oracle.loss == "ce" else y.double()
    wide = run(oracle, copy.deepcopy(model).double(), x if oracle.vocabulary else x.double(), wide_y)
    if wide.margin < MARGIN:
        return f"margin {wide.margin:.1e}"
    off = disagreement(oracle, run(oracle, model, x, y), wide)
    if off > 0.5:
        return f"float32 differs by {off:.2f} of what is allowed"
    meta = {
        "loss": oracle.loss,
        "optimizer": oracle.optimizer,
        "lr": oracle.lr,
        "momentum": oracle.momentum,
        "eps": ADAM_EPS if oracle.optimizer == "adam" else None,
        "batch_norm": oracle.batch_norm,
        "batch": batch,
        "steps": STEPS,
        "seed": seed,
        "torch": torch.__version__,
    }
    arrays = {"x": x.numpy(), "y": y.numpy(), "loss": np.array(wide.losses)}
    arrays |= {f"grad/{n}": g.float().numpy() for n, g in wide.gradients.items()}
    arrays |= {f"after/{n}": t.detach().float().numpy() for n, t in wide.after.items()}
    print(f"seed {seed}, margin {wide.margin:.1e}, float32 at {off:.2f} of what is allowed", end="")
    return file, arrays | {"meta": np.array(json.dumps(meta))}


def write(name: str, folder: Path) -> None:
    print(f"{name}: ", end="")
    for seed in range(SEEDS):
        made = attempt(ORACLES[name], seed)
        if not isinstance(made, str):
            break
    else:
        raise SystemExit(f"none of {SEEDS} seeds will do; the last: {made}")
    file, arrays = made
    onnx.save(file, folder / f"{name}.onnx")
    np.savez_compressed(folder / f"{name}.npz", **arrays)
    sizes = [(folder / f"{name}.{kind}").stat().st_size for kind in ("onnx", "npz")]
    print(f"; losses {arrays['loss'].round(4)}; onnx {sizes[0]} bytes, npz {sizes[1]} bytes")


def main() -> None:
    torch.set_num_threads(1)
    for name in sys.argv[1:] or ORACLES:
        write(name, Path(__file__).parent)


if __name__ == "__main__":
    main()
