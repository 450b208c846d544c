"""What a streamed way to run a node is."""

from __future__ import annotations

from dataclasses import dataclass

from poetgen.op import Call


@dataclass(frozen=True)
class Prices:
    """What a transfer takes: ``latency_s`` a call of the driver and ``s_per_byte``, in and out.

    ``s_per_cycle`` of the core weighs transfers against kernels that small tiles make slower.
    """

    in_latency_s: float
    in_s_per_byte: float
    out_latency_s: float
    out_s_per_byte: float
    s_per_cycle: float = 0.0


@dataclass(frozen=True)
class StreamVariant:
    """One way to run a node with operands in the store.

    ``streamed_inputs`` index the node's inputs; a mutated one is read from its old place and written to
    its new one. ``reads`` and ``writes`` are calls of the device's driver, ``bytes_in`` and ``bytes_out``
    whole sectors. ``calls`` may hold Pager, StreamIn, StreamOut, StreamNew and Workspace arguments.
    """

    streamed_inputs: tuple[int, ...]
    streamed_outputs: tuple[int, ...]
    workspace_bytes: int
    bytes_in: int
    bytes_out: int
    reads: int
    writes: int
    calls: tuple[Call, ...]
    extra_cycles: int = 0
    """What the core takes longer than for the resident node, estimated."""

    def time_s(self, prices: Prices) -> float:
        """Seconds of transfers, and what the core takes longer than for the resident node."""
        extra = self.extra_cycles * prices.s_per_cycle
        read = self.reads * prices.in_latency_s + self.bytes_in * prices.in_s_per_byte
        return extra + read + self.writes * prices.out_latency_s + self.bytes_out * prices.out_s_per_byte
