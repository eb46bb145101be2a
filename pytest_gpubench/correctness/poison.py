"""Unwritten outputs: fill free memory with a pattern before a call, and look for the pattern in its outputs."""

from collections.abc import Iterator
from typing import Any

import torch

from pytest_gpubench.correctness.chunks import raw_bits
from pytest_gpubench.correctness.leaves import flatten
from pytest_gpubench.correctness.memory import memory_of

__tracebackhide__ = True

POISON = 0xFFFD
"""Two bytes that, repeated, are a NaN in every float of 16 bits or more, one that no arithmetic makes.

Computed NaNs have all of their bits set, or the first of the mantissa alone, and either sign.
"""

ENOUGH_BLOCKS = 4
"""The free blocks of a size beside which no new one is made: each comparison would take more of the GPU's memory."""
MOST_POISONED_BLOCKS = 64
"""The free blocks filled for each size of output: enough for the outputs and temporaries of that size in one call."""


def poison_free_memory(outputs: object, device: torch.device | str) -> None:
    """Fill the free memory that outputs of these sizes will get next, so that unwritten elements are seen.

    It fills what torch's caching allocator would hand out on the current stream: up to 64 free blocks of each size, and
    one new one, but where four are free and the rest of the free memory is smaller than one. It does not reach memory
    of other streams, of CUDA graphs (torch.compile's `reduce-overhead`) and of other allocators. On the CPU, where the
    C library keeps free memory, it fills one block of each size: whether that one comes next is chance, above a few MiB
    it never does (then elements are 0). It stops quietly where memory is short. Drop outputs that are no longer needed
    first, or their memory is not free.
    """
    device = torch.device(device)
    sizes = {memory.storage_bytes for _, memory in memory_of(flatten(outputs)) if memory.device.type == device.type}
    held: list[torch.Tensor] = []
    for size in sorted(sizes, reverse=True):  # the largest first: smaller outputs may be cut from its blocks
        try:
            held += _poisoned_blocks(size, device)
        except torch.OutOfMemoryError:
            return


def _poisoned_blocks(size: int, device: torch.device) -> Iterator[torch.Tensor]:
    """Yield filled blocks until the allocator has no free one of this size left."""
    before, _ = _reserved_and_free_bytes(device)
    for number in range(1, MOST_POISONED_BLOCKS + 1):
        yield torch.full((-(-size // 2),), POISON - 2**16, dtype=torch.int16, device=device)
        reserved, free = _reserved_and_free_bytes(device)
        if device.type != "cuda" or reserved > before or (number >= ENOUGH_BLOCKS and free < size):
            return


def _reserved_and_free_bytes(device: torch.device) -> tuple[int, int]:
    """Return what torch holds of a GPU's memory, and what of it is free.

    torch.cuda.memory_reserved is the same in ten times the time.
    """
    if device.type != "cuda":
        return 0, 0
    stats: Any = torch.cuda.memory_stats_as_nested_dict(device)
    reserved, active = (int(stats[name]["all"]["current"]) for name in ("reserved_bytes", "active_bytes"))
    return reserved, reserved - active


def holds_poison(chunk: torch.Tensor) -> torch.Tensor:
    """Tell for each element, in row-major order, whether it holds the pattern, or one byte of it if it has only one."""
    bits = raw_bits(chunk)
    width = bits.element_size()
    if width == 1:
        return (bits.eq(-1) | bits.eq(-3)).reshape(-1)
    pattern = int.from_bytes(POISON.to_bytes(2, "little") * (width // 2), "little", signed=True)
    return bits.reshape(chunk.numel(), -1).eq(pattern).all(-1)
