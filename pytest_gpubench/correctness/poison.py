"""Unwritten outputs: fill free memory with a pattern before a call, and look for the pattern in its outputs."""

import torch

from pytest_gpubench.correctness.chunks import raw_bits
from pytest_gpubench.correctness.leaves import flatten
from pytest_gpubench.correctness.memory import memory_of

POISON = 0xFFFD
"""Two bytes that, repeated, are a NaN in every float of 16 bits or more, one that no arithmetic makes.

Computed NaNs have all of their bits set, or the first of the mantissa alone, and either sign.
"""


def poison_free_memory(outputs: object, device: torch.device | str) -> None:
    """Fill, on a CPU, a block of free memory for each size of output, so that unwritten elements are seen.

    The C library keeps what is freed: whether that block comes next is chance, above a few MiB it never does (then
    elements are 0). On a GPU, see `pool`.
    """
    device = torch.device(device)
    if device.type != "cpu":
        return
    sizes = {memory.storage_bytes for _, memory in memory_of(flatten(outputs)) if memory.device.type == "cpu"}
    held = [torch.full((-(-size // 2),), POISON - 2**16, dtype=torch.int16) for size in sorted(sizes, reverse=True)]
    del held


def holds_poison(chunk: torch.Tensor) -> torch.Tensor:
    """Tell for each element, in row-major order, whether it holds the pattern, or one byte of it if it has only one."""
    bits = raw_bits(chunk)
    width = bits.element_size()
    if width == 1:
        return (bits.eq(-1) | bits.eq(-3)).reshape(-1)
    pattern = int.from_bytes(POISON.to_bytes(2, "little") * (width // 2), "little", signed=True)
    return bits.reshape(chunk.numel(), -1).eq(pattern).all(-1)
