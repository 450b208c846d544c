"""What the templates print, put together from a program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from poetgen.emit.files import main_sources, model_sources
from poetgen.emit.steps import file_of, function_text, page_text
from poetgen.emit.text import array_text, comment_safe, hash_bytes, shape, signature
from poetgen.op import C_TYPE, Array
from poetgen.program import Function, Member, Program


def _signatures(program: Program) -> dict[str, str]:
    """The interface, function by function."""
    name = program.name
    m, batch = f"struct {name} *m", f"const struct {name}_inputs *in"
    y = f"const {name}_label_t *y"
    arguments = {
        "init": (m, "void *arena", "size_t arena_bytes", "const struct poet_blockdev *store"),
        "train_step": (m, batch, y, "float lr", "float *loss"),
        "evaluate": (m, batch, y, "struct poet_metrics *sum"),
        "infer": (m, batch, "float *out"),
        "save": (m,),
        "load": (m,),
        "get_params": (m, "poet_sink sink", "void *context"),
        "set_params": (m, "poet_source source", "void *context"),
        "commit": (m, "uint32_t step", "uint32_t parts"),
        "restore": (m,),
    }
    return {f: signature(f"int {name}_{f}", a) for f, a in arguments.items()}


def context_of(program: Program, claims: Sequence[str], version: str, trace: bool = False) -> dict[str, Any]:
    """Every name that a template may use."""
    training = program.costed.training
    model, board = training.model, program.costed.board
    home = program.train or program.infer
    output = model.spec(model.outputs[0])
    persistent = program.persistent
    in_ram = {m.tensor: m for m in program.members}
    initial = [
        array_text(f"{program.name}_initial_{m.c}", training.initial[m.tensor], f"{m.tensor}: initial value")
        for m in program.members
        if np.any(training.initial[m.tensor])
    ]
    has_initial = {m.tensor for m in program.members if np.any(training.initial[m.tensor])}
    boundary = _boundary(program, home)
    buffers = [
        {
            "c": c,
            "ctype": C_TYPE[model.spec(i).dtype],
            "size": model.spec(i).size,
            "bytes": model.spec(i).nbytes,
        }
        for i, c in ((i, f"input_{program.input_names[i]}") for i in model.inputs)
    ]
    if program.label is not None:
        spec = program.label.spec
        buffers.append({"c": "label", "ctype": C_TYPE[spec.dtype], "size": spec.size, "bytes": spec.nbytes})
    forward = [f for f in (program.infer, program.evaluate) if f is not None]
    what = "train" if program.train else "run"
    return {
        "name": program.name,
        "NAME": program.name.upper(),
        "version": version,
        "what": what,
        "about": f"{what} {program.name} on {board.about}.",
        "model_file": comment_safe(Path(model.path).name or model.name),
        "model_sha256": model.sha256,
        "board": board,
        "claims": [comment_safe(c) for c in claims],
        "uses_store": program.uses_store,
        "needs_store": program.needs_store,
        "saves": program.uses_store and bool(persistent),
        "signature": _signatures(program),
        "step_commits": " | ".join(_step_commits(program)) or "0",
        "batch": training.batch,
        "classes": program.classes,
        "output_size": output.size,
        "output_shape": shape(output),
        "param_count": sum(t.spec.size for t in persistent),
        "arena_bytes": program.arena_bytes,
        "arena_symbol_bytes": max(program.arena_bytes, 8),
        "inputs": [
            {
                "ctype": C_TYPE[model.spec(i).dtype],
                "c": program.input_names[i],
                "shape": f"{comment_safe(i)} {shape(model.spec(i))}",
            }
            for i in model.inputs
        ],
        "label": None
        if program.label is None
        else {
            "ctype": C_TYPE[program.label.spec.dtype],
            "note": f"{shape(program.label.spec)}"
            + (f": class 0 to {program.classes - 1}" if program.classes else ""),
        },
        "label_check": bool(program.classes and program.label),
        "labels": program.label.spec.size if program.label else 0,
        "members": [
            {
                "ctype": C_TYPE[m.spec.dtype],
                "c": m.c,
                "size": m.spec.size,
                "note": f"{comment_safe(m.tensor)} {shape(m.spec)}",
                "initial": f"{program.name}_initial_{m.c}" if m.tensor in has_initial else "",
            }
            for m in program.members
        ],
        "frozen": [
            array_text(m.c, _frozen_value(program, m), f"{m.tensor} {shape(m.spec)}") for m in program.frozen
        ],
        "initial": initial,
        "about_parameters": "frozen parameters and initial values.",
        "stored": [t.name for t in program.stored],
        "trains": program.train is not None,
        "nonfinite_note": _nonfinite_note(program),
        "in_ram": bool(program.members),
        "persistent": [f"{comment_safe(t.name)} {shape(t.spec)}" for t in persistent],
        "stream": [
            {
                "c": in_ram[t.name].c if t.name in in_ram else "",
                "page": program.page_names.get(t.name, ""),
            }
            for t in persistent
        ],
        "boundary": boundary,
        "state_pages": [page_text(c, program.store.pages[t]) for t, c in program.page_names.items()],
        "struct_bytes": program.struct_bytes,
        "sector_bytes": program.store.sector_bytes,
        "erase_sectors": program.store.erase_sectors,
        "slot_sectors": program.store.slot_sectors,
        "store_sectors": program.store.sectors,
        "model_hash": hash_bytes(model.sha256),
        "layout_hash": hash_bytes(program.layout_sha256),
        "train_file": file_of([program.train] if program.train else [], trace),
        "train": function_text(program.train, trace) if program.train else None,
        "forward_file": file_of(forward, False),
        "infer": function_text(program.infer, False),
        "evaluate": function_text(program.evaluate, False) if program.evaluate else None,
        "trace": trace,
        "lr": "0.01f",
        "buffers": buffers,
        "batch_bytes": sum(b["bytes"] for b in buffers),
        "input_initialisers": ", ".join(
            f".{program.input_names[i]} = input_{program.input_names[i]}" for i in model.inputs
        ),
        "cross": not board.is_host,
        "compiler": board.compiler,
        "flags": board.flags,
        "optimize": "-O2",
        "model_sources": model_sources(program),
        "main_sources": main_sources(program, board.is_host),
        "host_sources": main_sources(program, on_host=True),
        "ram": program.ram,
        "peak_bytes": program.peak_bytes,
        "reserved_bytes": board.reserved_bytes,
    }


def _step_commits(program: Program) -> list[str]:
    """Parts of the state that a training step commits; all of it where none has its home in RAM."""
    if not program.stored:
        return []
    return ["POET_PART_STORE"] if program.members else ["POET_PART_STORE", "POET_PART_RAM"]


def _frozen_value(program: Program, member: Member) -> Array:
    for function in program.functions:
        initial = function.plan.schedule.costed.training.initial
        if member.tensor in initial:
            return initial[member.tensor]
    raise AssertionError(f"{member.tensor} has no value")


def _nonfinite_note(program: Program) -> str:
    if program.train is None:
        return ""
    steps = program.train.steps
    loss = next(s.number for s in steps if s.phase == "loss")
    early = [s for s in steps[:loss] if s.verb == "update"]
    return "nothing was changed" if not early else f"{len(early)} updates came before it"


def _boundary(program: Program, home: Function) -> list[dict[str, Any]]:
    """Persistent tensors that stay in the arena between steps, though they leave it during one."""
    training = home.plan.schedule.costed.training
    resident = set(home.plan.schedule.resident)
    return [
        {
            "tensor": r.tensor,
            "ctype": C_TYPE[training.tensors[r.tensor].spec.dtype],
            "offset": r.offset,
            "page": program.page_names[r.tensor],
        }
        for r in home.plan.residencies
        if r.born == 0 and r.tensor in resident
    ]
