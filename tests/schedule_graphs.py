"""Training-like graphs made of ops that only have shapes, for the tests of the planners."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from poetgen.boards import Board, Memory, Store
from poetgen.cost import Budget, Cost, CostedGraph, Variant, page_cost
from poetgen.graph import Hazard, Kind, Model, Node, Phase, Tensor, TrainingGraph
from poetgen.op import Op, Spec

SD_CARD = Store(
    driver="file",
    sector_bytes=512,
    erase_sectors=1,
    size_bytes=64 << 20,
    latency_in_s=109e-6,
    rate_in_bytes_per_s=4616510.0,
    power_in_w=0.33,
    latency_out_s=113e-6,
    rate_out_bytes_per_s=4440000.0,
    power_out_w=0.33,
)
CLOCK_HZ, POWER_W = 64e6, 0.010982


def board(store: Store | None = SD_CARD) -> Board:
    """The paper's M4F, with or without its card."""
    return Board(
        name="m4",
        about="Cortex-M4F for tests",
        core="cortex-m4",
        flags=(),
        clock_hz=CLOCK_HZ,
        power_w=POWER_W,
        nominal=True,
        cycles=MappingProxyType({"conv": 3.1, "elementwise": 12.0}),
        code=Memory(0, 1 << 20),
        ram=Memory(0x20000000, 1 << 18, 1 << 14),
        store=store,
        emulator=None,
        files=False,
        compiler="gcc",
        folder=Path(),
        sources=(),
    )


@dataclass(frozen=True)
class Pure(Op):
    """A function of its operands."""


@dataclass(frozen=True)
class Over(Op):
    """Elementwise: the result may take the first operand's bytes."""

    in_place: ClassVar[tuple[int, ...]] = (0,)


@dataclass(frozen=True)
class Sum(Op):
    """Either operand's bytes may take the sum."""

    in_place: ClassVar[tuple[int, ...]] = (0, 1)


@dataclass(frozen=True)
class Accumulate(Op):
    """Continues a running sum: y = operand 1 + f(operand 0)."""

    continues: ClassVar[int | None] = 1


@dataclass(frozen=True)
class Impure(Op):
    """Gives something else each time it runs."""

    recomputable: ClassVar[bool] = False


@dataclass(frozen=True)
class Update(Op):
    """Changes its first operand."""

    mutates: ClassVar[tuple[int, ...]] = (0,)
    recomputable: ClassVar[bool] = False


@dataclass(frozen=True)
class UpdateBoth(Op):
    """Changes a parameter and the state behind it."""

    mutates: ClassVar[tuple[int, ...]] = (0, 2)
    recomputable: ClassVar[bool] = False


@dataclass
class Net:
    """A training graph while it is written down, with what each node costs."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    workspace: dict[str, int] = field(default_factory=dict)
    variants: dict[str, tuple[Variant, ...]] = field(default_factory=dict)

    def tensor(self, name: str, nbytes: int, kind: Kind = "act") -> str:
        self.tensors[name] = Tensor(name, Spec((nbytes,), "u8"), kind)
        return name

    def node(
        self,
        name: str,
        op: Op,
        inputs: Sequence[str],
        outputs: Sequence[tuple[str, int] | tuple[str, int, Kind]] = (),
        *,
        phase: Phase = "forward",
        seconds: float = 1e-3,
        workspace: int = 0,
    ) -> None:
        for o in outputs:
            self.tensor(*o)
        names = tuple(o[0] for o in outputs)
        specs = self.tensors
        self.nodes.append(
            Node(
                name,
                op,
                tuple(inputs),
                names,
                tuple(specs[i].spec for i in inputs),
                tuple(specs[o].spec for o in names),
                phase,
                name.partition("/")[0],
            )
        )
        self.seconds[name] = seconds
        self.workspace[name] = workspace

    def training(self) -> TrainingGraph:
        nodes = tuple(self.nodes)
        hazards = tuple(
            Hazard(r.name, u.name)
            for k, u in enumerate(nodes)
            for t in u.mutates
            for r in nodes[:k]
            if t in r.inputs
        )
        model = Model("net", (), {}, (), (), {}, "0" * 64)
        return TrainingGraph(model, nodes, dict(self.tensors), "loss", "y", {}, hazards, {}, 1)

    def costed(
        self,
        ram_bytes: int | None = None,
        time_s: float | None = None,
        on: Board | None = None,
        static_bytes: int = 0,
    ) -> CostedGraph:
        graph, on = self.training(), on or board()
        pages = {
            t.name: page_cost(t.spec.nbytes, on)
            for t in graph.tensors.values()
            if t.in_arena and on.store is not None
        }
        variants = {
            n: self.variants.get(n, (Variant(self.workspace[n], Cost(s, s * POWER_W)),))
            for n, s in self.seconds.items()
        }
        return CostedGraph(graph, on, Budget(ram_bytes, time_s), variants, pages, static_bytes)


def with_ram(costed: CostedGraph, arena_bytes: int, time_s: float | None = None) -> CostedGraph:
    """The same graph with another budget for its arena."""
    return replace(costed, budget=Budget(arena_bytes + costed.static_bytes, time_s))


def random_net(seed: int, layers: int = 4) -> Net:
    """A network with branches, residual sums, shared parameters, statistics, and its training."""
    rng = random.Random(seed)
    net = Net()

    def size() -> int:
        return rng.choice((24, 64, 100, 256, 512, 512, 1000, 2048))

    def spent() -> float:
        return rng.choice((2e-6, 2e-5, 1e-4, 4e-4, 1e-3, 5e-3))

    net.tensor("x", 512, "input")
    net.tensor("label", 4, "label")
    net.tensor("lr", 4, "scalar")
    at, bytes_ = "x", 512
    saved: list[tuple[str, int]] = []
    tape: list[dict[str, Any]] = []
    params: list[tuple[str, int]] = []
    for k in range(layers):
        kind = rng.choice(("dense", "dense", "dense", "relu", "pool", "norm", "add", "shared"))
        y = f"y{k}"
        if kind == "relu" and at != "x":
            net.node(f"f{k}", Over(), (at,), ((y, bytes_),), seconds=spent() / 10)
            tape.append({"kind": "relu", "x": at, "y": y, "bytes": bytes_})
        elif kind == "pool" and at != "x":
            out = max(8, bytes_ // 4)
            net.node(f"f{k}", Pure(), (at,), ((y, out), (f"i{k}", out // 4 or 1)), seconds=spent())
            tape.append({"kind": "pool", "x": at, "y": y, "index": f"i{k}", "bytes": bytes_})
            bytes_ = out
        elif kind == "norm" and at != "x":
            net.tensor(f"s{k}", 32, "statistic")
            net.node(f"f{k}", Pure(), (at,), ((y, bytes_), (f"m{k}", 32)), seconds=spent())
            net.node(f"f{k}/move", Update(), (f"s{k}", f"m{k}"), seconds=1e-6)
            tape.append({"kind": "norm", "x": at, "y": y, "m": f"m{k}", "bytes": bytes_})
        elif kind == "add" and (same := [t for t, n in saved if n == bytes_ and t != at]):
            other = rng.choice(same)
            net.node(f"f{k}", Sum(), (at, other), ((y, bytes_),), seconds=spent() / 10)
            tape.append({"kind": "add", "x": at, "other": other, "y": y, "bytes": bytes_})
        else:
            out = rng.choice((bytes_, size()))
            if kind == "shared" and params:
                w, w_bytes = rng.choice(params)
            else:
                w, w_bytes = net.tensor(f"w{k}", n := size(), rng.choice(("param",) * 4 + ("const",))), n
                if net.tensors[w].kind == "param":
                    params.append((w, w_bytes))
            op = Impure() if rng.random() < 0.1 else Pure()
            ws = rng.choice((0, 0, 0, 128, 300))
            net.node(f"f{k}", op, (at, w), ((y, out),), seconds=spent(), workspace=ws)
            tape.append({"kind": "dense", "x": at, "w": w, "w_bytes": w_bytes, "y": y, "bytes": bytes_})
            bytes_ = out
        at = y
        saved.append((at, bytes_))
    net.node("loss", Pure(), (at, "label"), (("loss", 4, "result"), (f"d_{at}", bytes_)), phase="loss")
    grads = {at: f"d_{at}"}
    dws: dict[str, str] = {}
    number = 0
    left = {w: sum(e.get("w") == w for e in tape) for w, _ in params}

    def gradient(x: str, dx: str, nbytes: int) -> None:
        if x not in grads:
            grads[x] = dx
            return
        total = f"{dx}+"
        net.node(
            f"b/{total}", Sum(), (grads[x], dx), ((total, nbytes),), phase="backward", seconds=spent() / 10
        )
        grads[x] = total

    for e in reversed(tape):
        number += 1
        k, x, dy = number, e["x"], grads[e["y"]]
        dx = f"d_{x}_{k}"
        match e["kind"]:
            case "relu":
                net.node(
                    f"b{k}", Over(), (dy, e["y"]), ((dx, e["bytes"]),), phase="backward", seconds=spent() / 10
                )
                gradient(x, dx, e["bytes"])
            case "pool":
                net.node(
                    f"b{k}", Pure(), (dy, e["index"]), ((dx, e["bytes"]),), phase="backward", seconds=spent()
                )
                gradient(x, dx, e["bytes"])
            case "norm":
                net.node(
                    f"b{k}", Over(), (dy, x, e["m"]), ((dx, e["bytes"]),), phase="backward", seconds=spent()
                )
                gradient(x, dx, e["bytes"])
            case "add":
                gradient(x, dy, e["bytes"])
                copy = f"d_{e['other']}_{k}"
                net.node(
                    f"b{k}", Pure(), (dy,), ((copy, e["bytes"]),), phase="backward", seconds=spent() / 10
                )
                gradient(e["other"], copy, e["bytes"])
            case _:
                w = e["w"]
                if x != "x":
                    net.node(
                        f"b{k}/dx", Pure(), (dy, w), ((dx, e["bytes"]),), phase="backward", seconds=spent()
                    )
                    gradient(x, dx, e["bytes"])
                if net.tensors[w].kind != "param":
                    continue
                dw = f"d_{w}_{k}"
                if w in dws:
                    net.node(
                        f"b{k}/dw",
                        Accumulate(),
                        (dy, dws[w], x),
                        ((dw, e["w_bytes"]),),
                        phase="backward",
                        seconds=spent(),
                    )
                else:
                    net.node(
                        f"b{k}/dw", Pure(), (dy, x), ((dw, e["w_bytes"]),), phase="backward", seconds=spent()
                    )
                dws[w] = dw
                left[w] -= 1
                if not left[w]:
                    if seed % 2:
                        net.node(f"b{k}/update", Update(), (w, dw, "lr"), phase="update", seconds=1e-5)
                    else:
                        net.tensor(f"v_{w}", e["w_bytes"], "state")
                        net.node(
                            f"b{k}/update",
                            UpdateBoth(),
                            (w, dw, f"v_{w}", "lr"),
                            phase="update",
                            seconds=2e-5,
                        )
    return net
