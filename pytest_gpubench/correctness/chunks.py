"""Chunks of a tensor: work on one at a time needs no large temporary."""

import math
from collections.abc import Iterator, Sequence

import torch

CHUNK_ELEMENTS = 2**22
"""The elements of a chunk that takes 64 bytes of temporaries for each, as comparing does: 256 MiB for any output."""

ChunkRange = tuple[slice, ...]
"""The index range of a chunk."""


def blocks_of(tensor: torch.Tensor, temporaries: int = 64) -> Iterator[ChunkRange]:
    """Yield the chunks of a tensor; none where it is empty.

    temporaries: the bytes that working on a chunk takes for each of its elements.
    """
    if tensor.numel():
        yield from blocks(tensor.shape, CHUNK_ELEMENTS * 64 // temporaries)


def blocks(shape: Sequence[int], limit: int) -> Iterator[ChunkRange]:
    """Yield index ranges of at most `limit` elements, half as many on average, that together are the whole tensor.

    They are ranges of the index, not of memory, so that they select the same elements of tensors with other strides.
    """
    if not shape:
        yield ()
        return
    inner = math.prod(shape[1:])
    if inner <= limit:
        rows = limit // max(inner, 1)
        for start in range(0, shape[0], rows):
            yield (slice(start, min(start + rows, shape[0])),)
        return
    for row in range(shape[0]):
        for rest in blocks(shape[1:], limit):
            yield (slice(row, row + 1), *rest)


def raw_bits(chunk: torch.Tensor) -> torch.Tensor:
    """Return the bits of each element as an integer; a complex element as two, in a last dimension."""
    chunk = chunk.resolve_conj().resolve_neg()
    chunk = torch.view_as_real(chunk) if chunk.is_complex() else chunk
    return chunk.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[chunk.element_size()])
