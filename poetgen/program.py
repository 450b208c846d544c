"""Lower placed schedules to programs. In: MemoryPlans. Out: Program, with nothing left to decide.

A program is three functions (train_step, infer, evaluate) that share arena, parameters and store. Each
is a tuple of steps; a step holds its C statements, and what the interpreter needs to do the same.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from poetgen.cost import CostedGraph, aligned
from poetgen.graph import Node, Tensor, TrainingGraph
from poetgen.memory import MemoryPlan, Page, Residency, StoreLayout, layout, workspace_name
from poetgen.naming import LOCALS, CNames, c_identifier
from poetgen.op import (
    C_TYPE,
    Arg,
    Call,
    In,
    Kernel,
    Out,
    Pager,
    Raw,
    Spec,
    StreamIn,
    StreamNew,
    StreamOut,
    Struct,
    Workspace,
)
from poetgen.schedule import Compute, Free, Move, PageIn, PageOut

Space = Literal["arena", "ram", "flash", "caller", "scalar", "store"]
Verb = Literal[
    "compute", "in place", "recompute", "update", "page in", "page out", "write back", "move", "restore"
]
POINTER_BYTES = 4
HEADER_BYTES = POINTER_BYTES + 2 * 4
"""Of struct NAME: the arena's address, the seed and the step counter."""
COMMITS_BYTES = 4
"""Of struct NAME where there is a store: what a training step commits."""
PAGER_BYTES = 3 * POINTER_BYTES + 5 * 4
"""sizeof(struct poet_pager) on a 32-bit core; the generated code asserts the whole struct's."""
FUNCTIONS = ("init", "train_step", "infer", "evaluate", "save", "load", "get_params", "set_params")
"""The interface: NAME_init and so on."""
_OWN = ("commit", "restore", "arena", "store", "inputs", "label_t", "initial")
_TARGETS = frozenset("all clean help install test main file arith".split())
"""Names that a build or a file already has; a model called so gets an underscore."""


@dataclass(frozen=True)
class Operand:
    """Where a step finds a tensor: ``Operand("conv1/y", spec, "arena", 1568, "conv1_y")``.

    In the store ``c`` is its page; a streamed step reads it there, or makes it there.
    """

    tensor: str
    spec: Spec
    space: Space
    offset: int
    c: str


@dataclass(frozen=True)
class Step:
    """One line of the schedule. ``statements`` are C; the rest says the same to the interpreter."""

    number: int
    verb: Verb
    statements: tuple[str, ...]
    node: Node | None
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    phase: str
    frees: tuple[Operand, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    rescues: tuple[Operand, ...] = ()
    """Of a loss: what is brought back to the arena if it is not finite, for the step ends there."""


@dataclass(frozen=True)
class Pointer:
    """A residency's name in C: ``float *const conv1_y = POET_AT(float, arena, 0); /* steps 0..7 */``.

    ``note`` says how it came to be and went, where that is not by computing and by its last use.
    """

    c: str
    ctype: str
    offset: int
    nbytes: int
    first: int
    last: int
    note: str = ""


@dataclass(frozen=True)
class Constant:
    """A ``static const struct`` of a kernel's sizes. ``users`` are the layers of these sizes."""

    c: str
    ctype: str
    fields: tuple[tuple[str, str], ...]
    users: tuple[str, ...] = ()


@dataclass(frozen=True)
class Function:
    """One of train_step, infer, evaluate."""

    name: str
    plan: MemoryPlan
    pointers: tuple[Pointer, ...]
    steps: tuple[Step, ...]
    constants: tuple[Constant, ...]
    pages: tuple[tuple[str, Page], ...]
    """Each page it names, with its name in C."""


@dataclass(frozen=True)
class Member:
    """A parameter or state of ``struct NAME``, or a frozen one in code flash."""

    c: str
    tensor: str
    spec: Spec
    kind: str


@dataclass(frozen=True)
class RamRow:
    """A row of the RAM table, in bytes on the 32-bit target."""

    what: str
    nbytes: int


@dataclass(frozen=True, eq=False)
class Program:
    """What the templates print and the interpreter runs."""

    name: str
    costed: CostedGraph
    train: Function | None
    infer: Function
    evaluate: Function | None
    members: tuple[Member, ...]
    frozen: tuple[Member, ...]
    store: StoreLayout
    stored: tuple[Tensor, ...]
    page_names: Mapping[str, str]
    """C name of the page of each persistent tensor; empty where there is no store."""
    kernels: tuple[Kernel, ...]
    arena_bytes: int
    ram: tuple[RamRow, ...]
    struct_bytes: int
    layout_sha256: str
    input_names: Mapping[str, str]
    label: Tensor | None
    classes: int | None

    @property
    def uses_store(self) -> bool:
        """Is there a store: to page to, or at least to save to?"""
        return bool(self.store.pages)

    @property
    def needs_store(self) -> bool:
        """Does any function page? Else a program with a store runs without one, and cannot save."""
        return any(f.pages for f in self.functions)

    @property
    def persistent(self) -> tuple[Tensor, ...]:
        """What get_params streams, in its order, which no plan changes."""
        tensors = (self.train or self.infer).plan.schedule.costed.training.tensors
        return tuple(t for t in tensors.values() if t.persistent)

    @property
    def peak_bytes(self) -> int:
        """All of the RAM table (CONTRACT: what --ram counts)."""
        return sum(r.nbytes for r in self.ram)

    @property
    def functions(self) -> tuple[Function, ...]:
        """Those that exist."""
        return tuple(f for f in (self.train, self.infer, self.evaluate) if f is not None)


def static_bytes(training_inputs: Iterable[Tensor], sector_bytes: int | None) -> int:
    """RAM beside arena and parameters: head of the struct, pager, bounce sector, input and label buffers."""
    buffers = sum(aligned(t.spec.nbytes) for t in training_inputs)
    return buffers + aligned(_struct_bytes((), sector_bytes))


def _struct_bytes(members: Sequence[Member], sector_bytes: int | None) -> int:
    """sizeof(struct NAME) under ILP32: arena pointer, seed, step, pager, bounce sector, members."""
    size = HEADER_BYTES
    if sector_bytes is not None:
        size = aligned(size + COMMITS_BYTES + PAGER_BYTES) + sector_bytes
    if members:  # they are aligned, and so is the struct
        size = aligned(size) + sum(aligned(m.spec.nbytes) for m in members)
    return size


def lower(train: MemoryPlan | None, infer: MemoryPlan, evaluate: MemoryPlan | None = None) -> Program:
    """Join the plans of the three functions into one program."""
    home = train or infer
    costed = home.schedule.costed
    model = costed.training.model
    others = tuple(p for p in (infer, evaluate) if p is not None and p is not home)
    store = layout(home, others)
    name = c_identifier(model.name)
    if name in _TARGETS or name in LOCALS:
        name = f"{name}_"
    own = (f"{name}_{f}" for f in (*FUNCTIONS, *_OWN))
    fields = ("seed", "step", "commits", "pager", "bounce")
    names = CNames(frozenset({name, *own, *fields, *LOCALS}))
    short = short_names(costed.training)
    in_ram = set(home.in_ram)
    tensors = costed.training.tensors
    members = tuple(
        Member(names(short(t.name), t.name), t.name, t.spec, t.kind)
        for t in tensors.values()
        if t.persistent and t.name in in_ram
    )
    stored = tuple(tensors[t] for t in home.in_store)
    frozen: dict[str, Member] = {}
    for plan in (home, *others):
        for t in plan.schedule.costed.training.of_kind("const"):
            frozen.setdefault(
                t.name, Member(names(f"{name} {short(t.name)}", f"{name} {t.name}"), t.name, t.spec, t.kind)
            )
    fields_of = CNames()  # of struct NAME_inputs: nothing else lives there
    inputs = {i: fields_of(i) for i in model.inputs}
    lowering = _Lowering(name, store, {m.tensor: m.c for m in members}, frozen, inputs, names, short)
    functions = {
        "train_step": lowering.function("train_step", train) if train else None,
        "infer": lowering.function("infer", infer, home),
        "evaluate": lowering.function("evaluate", evaluate, home) if evaluate else None,
    }
    made = [f for f in functions.values() if f]
    arena_bytes = max(f.plan.arena_bytes for f in made)
    sector = store.sector_bytes if store.pages else None
    struct_bytes = _struct_bytes(members, sector)
    label = next(iter(costed.training.of_kind("label")), None)
    buffers = [*(tensors[i] for i in model.inputs if i in tensors), *((label,) if label else ())]
    by_kind = {
        k: sum(aligned(m.spec.nbytes) for m in members if m.kind == k)
        for k in ("param", "state", "statistic")
    }
    members_bytes = sum(by_kind.values())
    pager_bytes = PAGER_BYTES + sector if sector else 0
    ram = [
        RamRow("arena", arena_bytes),
        RamRow("parameters in RAM", by_kind["param"]),
        RamRow("optimizer state in RAM", by_kind["state"]),
        RamRow("batch-norm statistics in RAM", by_kind["statistic"]),
        RamRow("pager: state and bounce sector", pager_bytes),
        RamRow("rest of struct", struct_bytes - members_bytes - pager_bytes),
        RamRow("input and label of one batch", sum(aligned(t.spec.nbytes) for t in buffers)),
    ]
    classes = None
    if label is not None and costed.training.loss_name == "cross_entropy":
        classes = model.spec(model.outputs[0]).shape[-1]
        loss_node = next(n for n in costed.training.nodes if n.phase == "loss")
        classes = loss_node.in_specs[0].shape[1]
    return Program(
        name=name,
        costed=costed,
        train=functions["train_step"],
        infer=functions["infer"] or made[0],
        evaluate=functions["evaluate"],
        members=members,
        frozen=tuple(frozen.values()),
        store=store,
        stored=stored,
        page_names={
            t.name: lowering.page_name(t.name)
            for t in tensors.values()
            if t.persistent and t.name in store.pages
        },
        kernels=tuple(sorted(lowering.kernels, key=lambda k: (k.family, k.symbol))),
        arena_bytes=arena_bytes,
        ram=tuple(r for r in ram if r.nbytes),
        struct_bytes=struct_bytes,
        layout_sha256=hashlib.sha256(store.text.encode()).hexdigest(),
        input_names=inputs,
        label=label,
        classes=classes,
    )


_SCOPED_TYPE = re.compile(r"^(.+)/[A-Z][A-Za-z]*$")


def short_names(training: TrainingGraph) -> Callable[[str], str]:
    """What a tensor or node is called in C, before it is made an identifier.

    An exporter's path becomes what the user wrote: ``/layer1/layer1.0/conv1/Conv`` is layer1.0/conv1 and
    its output, ``/layer1/layer1.0/conv1/Conv_output_0``, is layer1.0/conv1/y. A parameter's gradient that
    its op does not call dw, say, is the parameter's grad.
    """
    gradients = {
        gradient: f"{parameter}/grad"
        for parameter, gradient in training.gradients.items()
        if gradient.rpartition("/")[2] not in ("dw", "db", "dg")
    }
    forward = (n for n in training.nodes if n.phase == "forward")
    layers = dict.fromkeys(n.layer or n.name for n in (*training.model.nodes, *forward))
    scopes = Counter(m[1] for name in layers if (m := _SCOPED_TYPE.match(name)))
    of: dict[str, str] = {}
    for name in layers:
        scoped = _SCOPED_TYPE.match(name)
        path = scoped[1] if scoped and scopes[scoped[1]] == 1 else name
        parts = path.split("/")
        of[name] = "/".join(
            part
            for part, below in zip(parts, [*parts[1:], ""], strict=True)
            if not below.startswith(f"{part}.")
        )

    def short(name: str) -> str:
        if name in gradients:
            return gradients[name]
        for cut in (m.start() for m in re.finditer(r"/|_output_|$", name)):
            if name[:cut] in of:
                rest = re.sub(r"^_output_0(?=/|$)", "/y", name[cut:])
                return of[name[:cut]] + re.sub(r"^_output_(?=\d+(/|$))", "/y", rest)
        return name

    return short


class _Lowering:
    """Turns actions into steps, one function after the other."""

    def __init__(
        self,
        name: str,
        store: StoreLayout,
        members: Mapping[str, str],
        frozen: Mapping[str, Member],
        inputs: Mapping[str, str],
        names: CNames,
        short: Callable[[str], str],
    ) -> None:
        self.name = name
        self.store = store
        self.members = members
        self.frozen = frozen
        self.inputs = inputs
        self.names = names
        self.short = short
        self.kernels: set[Kernel] = set()
        self.structs: dict[Struct, Constant] = {}
        self.users: dict[str, dict[str, None]] = {}

    def page_name(self, tensor: str) -> str:
        """C name of a tensor's page."""
        return self.names(f"page {self.short(tensor)}", f"page {tensor}")

    def function(self, name: str, plan: MemoryPlan, home: MemoryPlan | None = None) -> Function:
        """Steps of one plan; with ``home``, its boundary tensors are brought back at the end."""
        maker = _FunctionLowering(self, name, plan)
        maker.run()
        if home is not None and home is not plan:
            maker.restore(home)
        return Function(
            name,
            plan,
            tuple(replace(p, note=maker.note(p)) for p in maker.pointers.values()),
            tuple(maker.steps),
            tuple(replace(c, users=tuple(self.users[c.c])) for c in dict.fromkeys(maker.constants)),
            tuple(dict.fromkeys(maker.pages)),
        )


class _FunctionLowering:
    def __init__(self, shared: _Lowering, name: str, plan: MemoryPlan) -> None:
        self.shared = shared
        self.name = name
        self.plan = plan
        self.costed = plan.schedule.costed
        self.training = self.costed.training
        self.steps: list[Step] = []
        self.pointers: dict[str, Pointer] = {}
        self.constants: list[Constant] = []
        self.pages: list[tuple[str, Page]] = []
        self.done: set[str] = set()
        self.names = shared.names
        self.stays = {r.tensor: 0 for r in plan.residencies}
        for r in plan.residencies:
            self.stays[r.tensor] = max(self.stays[r.tensor], r.stay)
        self.born = {(r.tensor, r.born): r for r in plan.residencies}
        self.now = {
            r.tensor: r for r in plan.residencies if r.born == 0 and r.tensor in plan.schedule.resident
        }

    # Operands

    def operand(self, tensor: str, spec: Spec) -> Operand:
        """Where a tensor is now."""
        kind = self.training.tensors[tensor].kind
        if kind == "input":
            return Operand(tensor, spec, "caller", 0, f"in->{self.shared.inputs[tensor]}")
        if kind == "label":
            return Operand(tensor, spec, "caller", 0, "y")
        if kind == "result":
            c = {self.training.loss: "loss", self.training.output: "out"}.get(tensor, c_identifier(tensor))
            return Operand(tensor, spec, "caller", 0, c if self.name != "evaluate" else f"&{c}")
        if kind == "scalar":
            return Operand(tensor, spec, "scalar", 0, tensor if tensor == "lr" else f"(int32_t)m->{tensor}")
        if kind == "const":
            return Operand(tensor, spec, "flash", 0, self.shared.frozen[tensor].c)
        if tensor in self.shared.members:
            return Operand(tensor, spec, "ram", 0, f"m->{self.shared.members[tensor]}")
        residency = self.now[tensor]
        return Operand(tensor, spec, "arena", residency.offset, self.pointer(residency))

    def pointer(self, residency: Residency) -> str:
        tensor = residency.tensor
        short = self.shared.short(tensor)
        c = self.names(short, tensor)  # one name a tensor; a number for each of several stays
        if self.stays.get(tensor, 0) > 0:
            c = self.names(f"{short} {residency.stay}", f"{tensor} {residency.stay}")
        known = self.training.tensors.get(tensor)
        ctype = C_TYPE[known.spec.dtype] if known else "float"  # workspaces hold floats
        step = len(self.steps)
        old = self.pointers.get(c)
        first = old.first if old else step
        self.pointers[c] = Pointer(c, ctype, residency.offset, residency.nbytes, first, step)
        return c

    def note(self, pointer: Pointer) -> str:
        """How a residency came to be, or how it ends."""
        came = {"page in": "paged in", "recompute": "recomputed", "move": "moved"}
        goes = {"page out": "until paged out", "move": "until moved"}
        first, last = (self.steps[k].verb for k in (pointer.first, pointer.last))
        return came.get(first) or goes.get(last, "")

    # Steps

    def run(self) -> None:
        actions = self.plan.schedule.actions
        for k, action in enumerate(actions):
            if isinstance(action, Compute):
                self.compute(k, action)
            elif isinstance(action, PageIn):
                self.now[action.tensor] = self.born[action.tensor, k]
                self.page(action.tensor, "page in")
            elif isinstance(action, PageOut):
                self.page(action.tensor, "page out")
            elif isinstance(action, Move):
                self.move(k, action.tensor)
            elif isinstance(action, Free):
                self.free(action.tensor)

    def free(self, tensor: str) -> None:
        residency = self.now.pop(tensor)
        spec = self.training.tensors[tensor].spec
        freed = Operand(tensor, spec, "arena", residency.offset, "")
        if self.steps:
            last = self.steps[-1]
            self.steps[-1] = replace(last, frees=(*last.frees, freed))

    def compute(self, k: int, action: Compute) -> None:
        node = self.training.node[action.node]
        variant = self.costed.variants[action.node][action.variant]

        def place(tensor: str, spec: Spec) -> Operand:
            return self.stored(tensor, spec) if tensor in variant.streamed else self.operand(tensor, spec)

        inputs = tuple(place(t, s) for t, s in zip(node.inputs, node.in_specs, strict=True))
        if action.in_place is not None:
            self.now.pop(action.in_place)
        for out in node.outputs:
            if self.training.tensors[out].in_arena and out not in variant.streamed:
                self.now[out] = self.born[out, k]
        outputs = tuple(place(t, s) for t, s in zip(node.outputs, node.out_specs, strict=True))
        statements: list[str] = []
        goes_on = node.op.continues
        if goes_on is not None and action.in_place != node.inputs[goes_on]:
            statements.append(f"memcpy({outputs[0].c}, {inputs[goes_on].c}, {node.out_specs[0].nbytes});")
        workspace = ""
        if (workspace_name(node.name), k) in self.born:
            workspace = self.pointer(self.born[workspace_name(node.name), k])
        calls = variant.stream.calls if variant.stream else node.op.calls(node.in_specs, node.out_specs)
        for call in calls:
            statements.append(self.call(node, call, inputs, outputs, workspace))
        verb: Verb = "compute"
        if node.name in self.done:
            verb = "recompute"
        elif node.phase == "update":
            verb = "update"
        elif action.in_place is not None:
            verb = "in place"
        rescues: tuple[Operand, ...] = ()
        if node.phase == "loss" and self.training.loss in node.outputs and self.name == "train_step":
            home = _boundary(self.plan)
            if any(self.now.get(r.tensor) != r for r in home):
                rescues = tuple(_at_home(self.plan, r) for r in home)
            statements += self.give_up(rescues)
        self.done.add(node.name)
        self.step(verb, statements, node, inputs, outputs, node.phase)
        self.steps[-1] = replace(self.steps[-1], kernels=tuple(c.kernel for c in calls), rescues=rescues)

    def call(
        self,
        node: Node,
        call: Call,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        workspace: str,
    ) -> str:
        self.shared.kernels.add(call.kernel)
        args = ", ".join(self.argument(node, a, inputs, outputs, workspace) for a in call.args)
        if any(isinstance(a, Pager) for a in call.args):
            return f"POET_TRY({call.kernel.symbol}({args}));"
        return f"{call.kernel.symbol}({args});"

    def argument(
        self, node: Node, arg: Arg, inputs: Sequence[Operand], outputs: Sequence[Operand], workspace: str
    ) -> str:
        if isinstance(arg, In):
            return inputs[arg.index].c
        if isinstance(arg, Out):
            return outputs[arg.index].c
        if isinstance(arg, Workspace):
            return workspace or "NULL"  # some ways to run a node need none
        if isinstance(arg, Raw):
            return arg.text
        if isinstance(arg, Struct):
            return f"&{self.constant(node, arg)}"
        if isinstance(arg, Pager):
            return "&m->pager"
        if isinstance(arg, StreamIn):
            return self.stream(inputs[arg.index], new=False)
        if isinstance(arg, StreamNew):
            return self.stream(inputs[arg.index], new=True)
        if isinstance(arg, StreamOut):
            return self.stream(outputs[arg.index], new=True)
        return c_number(arg)

    def stored(self, tensor: str, spec: Spec) -> Operand:
        """A tensor as a streamed step meets it: in its page."""
        page = self.shared.store.pages[tensor]
        c = self.shared.page_name(tensor)
        self.pages.append((c, page))
        return Operand(tensor, spec, "store", 0, c)

    def stream(self, operand: Operand, new: bool) -> str:
        """A ``struct poet_stream``: resident, in its one page, or in a persistent tensor's slot."""
        if operand.space != "store":
            return f"poet_resident({operand.c})"
        if self.shared.store.pages[operand.tensor].region == "slot":
            return f"poet_{'next' if new else 'current'}_slot(&m->pager, &{operand.c})"
        return f"poet_paged(&{operand.c})"

    def constant(self, node: Node, struct: Struct) -> str:
        constants = self.shared.structs
        if struct not in constants:
            fields = tuple((k, c_number(v)) for k, v in struct.fields)
            kind = struct.ctype.split()[-1].removeprefix("poet_")
            wanted = self.shared.short(node.name)
            if node.phase != "forward":  # a tensor is called so
                wanted = f"{wanted} {kind}"
            c = self.shared.names(wanted, key=struct)
            constants[struct] = Constant(c, struct.ctype, fields)
        constant = constants[struct]
        self.constants.append(constant)
        layer = c_identifier(self.shared.short(node.layer or node.name))
        self.shared.users.setdefault(constant.c, {})[layer] = None
        return constant.c

    def page(self, tensor: str, verb: Verb) -> None:
        spec = self.training.tensors[tensor].spec
        where = self.operand(tensor, spec)
        page = self.shared.store.pages[tensor]
        assert page.region != "saved", f"{tensor} is never freed: no schedule pages it"
        c = self.shared.page_name(tensor)
        self.pages.append((c, page))
        way = "in" if verb in ("page in", "restore") else "out"
        if page.region == "slot" and verb == "page out":
            verb = "write back"
        prefix = "poet_slot" if page.region == "slot" else "poet_page"
        statement = f"POET_TRY({prefix}_{way}(&m->pager, &{c}, {where.c}));"
        inputs, outputs = ((), (where,)) if way == "in" else ((where,), ())
        self.step(verb, [statement], None, inputs, outputs, "")

    def move(self, k: int, tensor: str) -> None:
        spec = self.training.tensors[tensor].spec
        old = self.operand(tensor, spec)
        self.now[tensor] = self.born[tensor, k]
        new = self.operand(tensor, spec)
        statement = f"memmove({new.c}, {old.c}, {spec.nbytes});"
        self.step("move", [statement], None, (old,), (new,), "")

    def restore(self, home: MemoryPlan) -> None:
        """Bring back what training left in the arena between its steps."""
        for where in (_at_home(home, r) for r in _boundary(home)):
            self.step("restore", [self.bring(where)], None, (), (where,), "")

    def give_up(self, rescues: Sequence[Operand]) -> list[str]:
        """Leave a step whose loss is not finite; the next one finds the arena as this one did."""
        if not rescues:
            return ["if (!POET_IS_FINITE(*loss)) return POET_ENONFINITE;"]
        back = f"    POET_TRY({self.shared.name}_restore(m));"
        return ["if (!POET_IS_FINITE(*loss)) {", back, "    return POET_ENONFINITE;", "}"]

    def bring(self, where: Operand) -> str:
        """Read a persistent tensor's page; the page gets its name here."""
        c = self.shared.page_name(where.tensor)
        self.pages.append((c, self.shared.store.pages[where.tensor]))
        return f"POET_TRY(poet_slot_in(&m->pager, &{c}, {where.c}));"

    def step(
        self,
        verb: Verb,
        statements: Sequence[str],
        node: Node | None,
        inputs: tuple[Operand, ...],
        outputs: tuple[Operand, ...],
        phase: str,
    ) -> None:
        if not phase and self.steps:
            phase = self.steps[-1].phase
        self.steps.append(
            Step(len(self.steps), verb, tuple(statements), node, inputs, outputs, phase or "forward")
        )


def _boundary(home: MemoryPlan) -> tuple[Residency, ...]:
    """Persistent tensors that are in the arena between training steps, though they leave it in one."""
    resident = set(home.schedule.resident)
    return tuple(r for r in home.residencies if r.born == 0 and r.tensor in resident)


def _at_home(home: MemoryPlan, residency: Residency) -> Operand:
    """Where such a tensor is between training steps."""
    spec = home.schedule.costed.training.tensors[residency.tensor].spec
    at = f"POET_AT({C_TYPE[spec.dtype]}, arena, {residency.offset})"
    return Operand(residency.tensor, spec, "arena", residency.offset, at)


def c_number(value: int | float) -> str:
    """A literal: ints in decimal, floats as hex floats (the same bits everywhere) and for people."""
    if isinstance(value, int):
        return str(value)
    rounded = np.float32(value)
    digits, _, exponent = float(rounded).hex().partition("p")
    digits = digits.rstrip("0").removesuffix(".") if "." in digits else digits
    plain = np.format_float_positional(rounded, trim="-")
    short = np.format_float_scientific(rounded, trim="-", exp_digits=1)
    return f"{digits}p{exponent}f /* {min(plain, short, key=len)} */"
