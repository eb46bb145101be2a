"""A pool of GPU memory for checked calls: it is filled with a pattern before each, so nothing older is in an output."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch

from pytest_gpubench.correctness.leaves import flatten
from pytest_gpubench.correctness.memory import memory_of
from pytest_gpubench.correctness.poison import POISON

__tracebackhide__ = True

MOST_WATCHED_BYTES = 2**20
"""So many bytes before and behind an output are looked at, where nothing else was allocated there."""
Block = dict[str, Any]
"""A block of memory as torch's snapshots describe it."""


def pool_on(device: torch.device) -> "PoisonedPool | None":
    """Return a new pool; None where torch has none: on the CPU, and with another allocator than its own."""
    if device.type != "cuda" or not hasattr(torch._C, "_cuda_beginAllocateToPool"):
        return None
    return PoisonedPool(device) if torch.cuda.get_allocator_backend() == "native" else None


class PoisonedPool:
    """Memory that calls allocate from while the pool is in use, on any stream and in any thread.

    By torch.cuda.MemPool (torch 2.6). Its memory is freed with the last tensor in it.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.pool = torch.cuda.MemPool()
        self.growths = 0
        """How often a call asked the GPU for memory that was not filled."""
        self.allocations = 0
        """The allocations of the last call."""

    def fill(self) -> None:
        """Fill all of its free memory with the pattern."""
        for block in self._blocks():
            if block["state"] == "inactive":
                _words_at(block["address"], block["size"], self.device).fill_(POISON - 2**16)

    def reserve(self, outputs: object, copies: int) -> None:
        """Take as much memory as so many copies of outputs need."""
        sizes = [memory.storage_bytes for _, memory in memory_of(flatten(outputs)) if memory.device.type == "cuda"]
        with self.use():
            held = [torch.empty(size, dtype=torch.int8, device=self.device) for size in sizes * copies]
        del held

    @contextmanager
    def use(self) -> Iterator[None]:
        """Let all allocations come from the pool."""
        index, pool = self.device.index or 0, self.pool.id
        before = self._counts()
        torch._C._cuda_beginAllocateToPool(index, pool)
        try:
            yield
        finally:
            names = ("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool")  # the second before torch 2.8
            next(getattr(torch._C, name) for name in names if hasattr(torch._C, name))(index, pool)
            torch._C._cuda_releasePool(index, pool)
            segments, allocations = (now - then for now, then in zip(self._counts(), before, strict=True))
            self.growths += segments > 0
            self.allocations = allocations

    def _counts(self) -> tuple[int, int]:
        """Return how many segments, and how many blocks in them, were allocated so far."""
        stats: Any = torch.cuda.memory_stats_as_nested_dict(self.device)
        return int(stats["segment"]["all"]["allocated"]), int(stats["allocation"]["all"]["allocated"])

    def _segments(self) -> list[Block]:
        segments: Any = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        return [each for each in segments if tuple(each.get("segment_pool_id", ())) == tuple(self.pool.id)]

    def _blocks(self) -> list[Block]:
        return [block for segment in self._segments() for block in segment["blocks"]]

    def overwritten(self, outputs: object) -> list[str]:
        """Return the outputs of the last call beside which it wrote, into memory that it had not allocated.

        Where a call allocates only what it returns, that is the free memory before and behind each output; otherwise
        the few bytes by which an allocation is larger than what was asked for.
        """
        blocks = self._blocks()
        alone = self.allocations == sum(block["state"] != "inactive" for block in blocks)
        return [
            name
            for name, memory in memory_of(flatten(outputs))
            for block in blocks
            if block["address"] == memory.storage
            and block["state"] != "inactive"
            and not all(map(self._is_filled, self._beside(block, memory.storage_bytes, alone)))
        ]

    def _beside(self, block: Block, used: int, alone: bool) -> Iterator[tuple[int, int]]:
        """Yield the ranges of addresses beside an output that are to hold the pattern."""
        start = block["address"]
        yield start + used, start + block["size"]
        for segment in self._segments() if alone else ():
            for before, after in pairwise(segment["blocks"]):
                if after["address"] == start and before["state"] == "inactive":
                    yield start - min(before["size"], MOST_WATCHED_BYTES), start
                if before["address"] == start and after["state"] == "inactive":
                    yield after["address"], after["address"] + min(after["size"], MOST_WATCHED_BYTES)

    def _is_filled(self, span: tuple[int, int]) -> bool:
        start, stop = span[0] + span[0] % 2, span[1]
        return stop <= start or bool(_words_at(start, stop - start, self.device).eq(POISON - 2**16).all())


class _Words:
    """Memory at an address, for torch.as_tensor."""

    def __init__(self, address: int, shape: Sequence[int]) -> None:
        self.__cuda_array_interface__ = {
            "shape": tuple(shape),
            "typestr": "<i2",
            "data": (address, False),
            "version": 3,
        }


def _words_at(address: int, size_bytes: int, device: torch.device) -> torch.Tensor:
    """Return the memory at an address as a tensor of two-byte words."""
    return torch.as_tensor(_Words(address, [size_bytes // 2]), device=device)
