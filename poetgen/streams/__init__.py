"""Streamed ways to run a node: some operands stay in the page store and pass through tile buffers.

In: a Node, a sector's bytes, a workspace limit. Out: StreamVariants with exact traffic and the C call.
One module a nest of loops; what it counts is what runtime_c/streams moves, call for call.
"""

from poetgen.streams.variant import Prices, StreamVariant

__all__ = ["Prices", "StreamVariant"]
