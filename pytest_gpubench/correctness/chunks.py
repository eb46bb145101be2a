"""Tensors chunk by chunk, so that no temporary is large."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

CHUNK_ELEMENTS = 2**22
"""Elements compared at a time: with about 64 bytes of temporaries for each, 256 MiB, however large the outputs are."""

Block = tuple[slice, ...]


def blocks_of(tensor: "torch.Tensor") -> Iterator[Block]:
    """Yield the blocks that a tensor is worked through in, each a chunk; none where it is empty."""
    if tensor.numel():
        yield from blocks(tensor.shape, CHUNK_ELEMENTS)


def blocks(shape: Sequence[int], limit: int) -> Iterator[Block]:
    """Yield index ranges that together are the whole tensor, of at most so many elements, half as many on average.

    Ranges of the index, not of memory: they are the same elements of two tensors, whatever their strides.
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


def index_in(block: Block, shape: tuple[int, ...], place: int) -> tuple[int, ...]:
    """Return the index in the whole tensor of an element of a block, counted in row-major order."""
    index = []
    for size in reversed(shape):
        place, within = divmod(place, size)
        index.append(within)
    starts = [part.start for part in block] + [0] * (len(shape) - len(block))
    return tuple(start + within for start, within in zip(starts, reversed(index), strict=True))


def raw_bits(chunk: "torch.Tensor") -> "torch.Tensor":
    """Return the bits of each element as an integer; of a complex one as two, in a last dimension of their own."""
    import torch

    chunk = chunk.resolve_conj().resolve_neg()
    chunk = torch.view_as_real(chunk) if chunk.is_complex() else chunk
    return chunk.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[chunk.element_size()])
