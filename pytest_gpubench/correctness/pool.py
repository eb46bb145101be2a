"""A pool of GPU memory for checked calls: it is filled with a pattern before each, so nothing older is in an output."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch

from pytest_gpubench.correctness.leaves import flatten
from pytest_gpubench.correctness.memory import MemoryRange, memory_of
from pytest_gpubench.correctness.poison import POISON

__tracebackhide__ = True

MOST_WATCHED_BYTES = 2**20
"""So many bytes before and behind an output are looked at, where nothing else was allocated there."""
GUARD_BYTES = (2**16, 3 * 2**19)
"""So many bytes before all outputs, in the segments of small blocks and of large ones (above 1 MiB)."""
Block = dict[str, Any]
"""A block of memory as torch's snapshots describe it."""


def _hold(pool: object) -> None:
    """Keep an object, beyond the end of the interpreter."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))


def _let_go(pool: object) -> None:
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(pool))


@contextmanager
def pool_on(device: torch.device) -> "Iterator[PoisonedPool | None]":
    """Give a new pool; None where torch has none: on the CPU, and with another allocator than its own."""
    has_pools = device.type == "cuda" and hasattr(torch._C, "_cuda_beginAllocateToPool")
    if not has_pools or torch.cuda.get_allocator_backend() != "native":
        yield None
        return
    pool = PoisonedPool(device)
    try:
        yield pool
    finally:
        pool.close()


class PoisonedPool:
    """Memory that calls allocate from while the pool is in use, on any stream and in any thread.

    By torch.cuda.MemPool (torch 2.6). Its memory is freed with the last tensor in it, after `close`.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.pool: Any = torch.cuda.MemPool()
        _hold(self.pool)
        self.growths = 0
        """How often a call asked the GPU for memory that was not filled."""
        self.allocations = 0
        """The allocations of the last call."""
        self.guards: list[torch.Tensor] = []
        """Memory that no call gets, so that something that is watched lies before the first output."""

    def close(self) -> None:
        """Let go of the pool, unless the GPU is broken: torch ends the process where it cannot give memory back."""
        pool, self.pool = self.pool, None
        self.guards.clear()
        with suppress(RuntimeError):
            torch.cuda.synchronize(self.device)
            _let_go(pool)

    def fill(self) -> None:
        """Fill all of its free memory with the pattern."""
        for block in [block for segment in self._segments() for block in segment["blocks"]]:
            if block["state"] == "inactive":
                _words_at(block["address"], block["size"], self.device).fill_(POISON - 2**16)

    def reserve(self, outputs: object, copies: int) -> None:
        """Take as much memory as so many copies of outputs need, with guards before and room behind."""
        sizes = [memory.storage_bytes for _, memory in memory_of(flatten(outputs)) if memory.device.type == "cuda"]
        large = [-(-size // 2**21) * 2**21 for size in sizes if size > 2**20]
        with self.use():
            self._bytes(sum(large) * copies + 2 * GUARD_BYTES[1])  # freed at once: one block, of which all get a part
            self.guards = [self._bytes(size) for size in GUARD_BYTES]
            held = [self._bytes(size) for size in sizes * copies]
        del held

    def _bytes(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.int8, device=self.device)

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
        """Return this pool's segments; the guards in them count as free."""
        # a snapshot of this pool alone, by its id, broke the heap of torch 2.11 after some hundred of them
        segments: Any = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        own = [each for each in segments if tuple(each.get("segment_pool_id", ())) == tuple(self.pool.id)]
        guards = {guard.data_ptr() for guard in self.guards}
        for block in [block for segment in own for block in segment["blocks"] if block["address"] in guards]:
            block["state"] = "inactive"
        return own

    def overwritten(self, outputs: object) -> list[str]:
        """Return the outputs of the last call before or behind which it wrote, where it allocated nothing else."""
        segments = self._segments()
        blocks = [block for segment in segments for block in segment["blocks"]]
        if self.allocations != sum(block["state"] != "inactive" for block in blocks):
            return []  # memory beside an output may be that of a temporary
        spans = {block["address"]: span for segment in segments for block, span in _beside(segment["blocks"])}
        return [
            name
            for name, memory in memory_of(flatten(outputs))
            if memory.storage in spans and not self._is_filled_around(memory, *spans[memory.storage])
        ]

    def _is_filled_around(self, memory: MemoryRange, start: int, stop: int) -> bool:
        return self._is_filled((start, memory.storage)) and self._is_filled(
            (memory.storage + memory.storage_bytes, stop)
        )

    def _is_filled(self, span: tuple[int, int]) -> bool:
        start, stop = span[0] + span[0] % 2, span[1]
        return stop <= start or bool(_words_at(start, stop - start, self.device).eq(POISON - 2**16).all())


def _beside(blocks: Sequence[Block]) -> Iterator[tuple[Block, tuple[int, int]]]:
    """Yield each block that is in use, with the range that it and the free memory around it lie in."""
    for place, block in enumerate(blocks):
        start, stop = block["address"], block["address"] + block["size"]
        if place and blocks[place - 1]["state"] == "inactive":
            start -= min(blocks[place - 1]["size"], MOST_WATCHED_BYTES)
        if place + 1 < len(blocks) and blocks[place + 1]["state"] == "inactive":
            stop += min(blocks[place + 1]["size"], MOST_WATCHED_BYTES)
        if block["state"] != "inactive":
            yield block, (start, stop)


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
