"""The page store's first image (docs/store-format.md)."""

from __future__ import annotations

import struct

import numpy as np

from poetgen.interpreter import check_word
from poetgen.program import Program


def store_image(program: Program) -> bytes:
    """The store as it is before the first step (docs/store-format.md): superblocks, slot 0."""
    layout = program.store
    size = layout.sector_bytes
    image = bytearray(layout.sectors * size)
    training = program.costed.training
    for page in layout.pages.values():
        if page.region != "slot":
            continue
        data = np.ascontiguousarray(training.initial[page.tensor]).tobytes()
        data += bytes(page.nbytes - len(data))
        at = page.sector * size
        image[at : at + len(data)] = data
        end = at + (len(data) // size + 1) * size
        image[end - 4 : end] = struct.pack("<I", check_word(np.frombuffer(data, np.uint8)))
    for copy in range(2):
        block = bytearray(256)
        geometry = (layout.sector_bytes, layout.erase_sectors, layout.slot_sectors, layout.sectors)
        struct.pack_into("<8sIIIIIIII", block, 0, b"poetgen\0", 1, copy, 0, *geometry, 0)
        block[64:96] = bytes.fromhex(training.model.sha256)
        block[96:128] = bytes.fromhex(program.layout_sha256)
        struct.pack_into("<I", block, 252, check_word(np.frombuffer(bytes(block[:252]), np.uint8)))
        at = copy * layout.erase_sectors * size
        image[at : at + 256] = block
    return bytes(image)
