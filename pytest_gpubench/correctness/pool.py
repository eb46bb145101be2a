"""A pool of GPU memory for checked calls: what is free in it is filled with a pattern before each of them."""

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import torch

from pytest_gpubench.correctness.inputs import room_on
from pytest_gpubench.correctness.leaves import flatten
from pytest_gpubench.correctness.memory import bytes_at, memory_of
from pytest_gpubench.correctness.poison import POISON
from pytest_gpubench.gpu.device import end_allocating

MOST_WATCHED_BYTES = 2**20
"""So many bytes before and behind an output are looked at, where nothing else was allocated there."""
MOST_SMALL_BYTES = 2**20
"""Larger blocks have segments of their own in torch."""
GUARD_BYTES = (2**16, 3 * 2**19)
"""So many bytes before all outputs, in the segments of small blocks and of large ones."""
MOST_KEPT_BYTES = 2**28
"""A larger pool is given back after each comparison."""
T = TypeVar("T")
Span = tuple[int, int]
"""The addresses where a range of memory begins and ends."""


def _hold(pool: object) -> None:
    """Keep an object, beyond the end of the interpreter."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))


def _let_go(pool: object) -> None:
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(pool))


class Counts(NamedTuple):
    """Torch's counters of segments and blocks on a GPU, since the process began."""

    segments: int
    allocations: int


_kept: "dict[torch.device, PoisonedPool]" = {}
_grown_bytes: dict[torch.device, int] = {}
"""The size of the last pool that had to grow: the next one gets as much at once, and can be kept."""


@contextmanager
def pool_on(device: torch.device) -> "Iterator[PoisonedPool | None]":
    """Give a pool; None where torch has none: on the CPU, and with another allocator than its own.

    One that is small, and in which nothing was left, is kept for the next time: to ask the GPU for memory, and to give
    it back, takes as long as several calls.
    """
    has_pools = device.type == "cuda" and hasattr(torch._C, "_cuda_beginAllocateToPool")
    if not has_pools or torch.cuda.get_allocator_backend() != "native":
        yield None
        return
    pool = _kept.pop(device, None) or PoisonedPool(device)
    try:
        yield pool
    except BaseException:
        pool.close()
        raise
    if pool.is_reusable and device not in _kept:
        _kept[device] = pool
    else:
        if pool.has_grown and pool.size_bytes + 2 * GUARD_BYTES[1] <= MOST_KEPT_BYTES:
            _grown_bytes[device] = pool.size_bytes
        pool.close()


def with_enough(pool: "PoisonedPool | None", take: Callable[[], T], more: int = 3) -> T:
    """Make calls; return what they give.

    They are made up to `more` times again where they ask the GPU for memory that was not filled.
    """
    grown = 0 if pool is None else pool.growths
    taken = take()
    if pool is None or pool.growths == grown or not more:
        return taken
    del taken  # its memory is filled too
    return with_enough(pool, take, more - 1)


class PoisonedPool:
    """Memory that calls allocate from while the pool is in use, on any stream and in any thread.

    By torch.cuda.MemPool (torch 2.6). Its memory is freed with the last tensor in it, after `close`.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.growths = 0
        """The number of times that a call asked the GPU for memory that was not filled."""
        self._begin()

    def _begin(self) -> None:
        self.pool: Any = torch.cuda.MemPool()
        _hold(self.pool)
        self.allocations = 0
        """The allocations of the last call."""
        self.guards: list[torch.Tensor] = []
        """Memory that no call gets, so that something that is watched lies before the first output."""
        self.filled: list[Span] = []
        """The memory that was filled last, in order."""
        self._whole: list[Span] = []
        """All of its memory."""
        self._blocks: list[Span] = []
        """All of its memory but the guards, as blocks that torch can hand out; empty where that is not known."""
        self._growths_when_reserved = self._growths_when_read = self.growths
        """The growths when memory was reserved, and when the blocks were read."""
        self._can_be_taken = True
        """False once some of them were in use: then free memory is looked up for each fill."""

    def close(self) -> None:
        """Let go of the pool, unless the GPU is broken: torch ends the process where it cannot give memory back."""
        pool, self.pool = self.pool, None
        self.guards.clear()
        with suppress(RuntimeError):
            torch.cuda.synchronize(self.device)
            _let_go(pool)

    @property
    def is_reusable(self) -> bool:
        """True if it is as it was reserved, small, and nothing was seen to stay in it."""
        is_as_reserved = bool(self._blocks) and not self.has_grown
        return is_as_reserved and self._can_be_taken and self.size_bytes <= MOST_KEPT_BYTES

    @property
    def has_grown(self) -> bool:
        """True if calls asked for more memory than was reserved."""
        return self.growths > self._growths_when_reserved

    @property
    def size_bytes(self) -> int:
        """Its size when free memory was last looked up."""
        return sum(stop - start for start, stop in self._whole)

    def _has(self, large: int, small: int) -> bool:
        """Tell whether so many bytes in a large block, and in small ones, were reserved."""
        sizes = [stop - start for start, stop in self._blocks]
        small_bytes = sum(size for size in sizes if size <= MOST_SMALL_BYTES)
        return bool(self.guards) and large + GUARD_BYTES[1] <= max(sizes, default=0) and small <= small_bytes

    def fill(self, in_use: bool = False) -> None:
        """Fill all of its free memory with the pattern.

        in_use: True where tensors lie in it. Else all of it is taken at once: torch hands out what is free alone.
        """
        can_be_taken = self._can_be_taken and self._blocks and self.growths == self._growths_when_read
        if not in_use and can_be_taken and self._fill_blocks():
            return
        segments = self._segments()
        free = [span for segment in segments for span in self._free_spans(segment["blocks"])]
        self._write(free)
        if self.growths != self._growths_when_read or not self._blocks:
            self._blocks = self._all_blocks(segments) if self._can_be_taken else []
            self._whole = free
            self._growths_when_read = self.growths

    def _fill_blocks(self) -> bool:
        """Fill all of its memory; return whether all was free."""
        try:
            with self._allocating():
                taken = [self._words(stop - start) for start, stop in self._blocks]
        except torch.OutOfMemoryError:
            taken = []
        self._can_be_taken = sorted(block.data_ptr() for block in taken) == [start for start, _ in self._blocks]
        if self._can_be_taken:
            self._write(self._whole)
        return self._can_be_taken

    def _write(self, spans: list[Span]) -> None:
        for start, stop in spans:  # by a kernel: the first memset in a session of the profiler takes 0.5 ms
            _words_at(start, stop - start, self.device).fill_(POISON - 2**16)
        self.filled = spans

    def _all_blocks(self, segments: Sequence[Mapping[str, Any]]) -> list[Span]:
        """Return all memory of segments but the guards, in sizes that torch takes from there; nothing where it cannot.

        It cannot where something else lies in them, or where a rest is too small for the segments of large blocks.
        """
        guards, found = {guard.data_ptr() for guard in self.guards}, list[Span]()
        for segment in segments:
            is_small = segment["segment_type"] == "small"
            for block in segment["blocks"]:
                start, size = block["address"], block["size"]
                if start in guards:
                    continue
                if block["state"] != "inactive" or (size <= MOST_SMALL_BYTES and not is_small):
                    return []
                step = MOST_SMALL_BYTES if is_small else size
                found += [(each, min(each + step, start + size)) for each in range(start, start + size, step)]
        return sorted(found)

    def reserve(self, outputs: object, copies: int) -> None:
        """Take as much memory as so many copies of outputs need, with guards before and room behind."""
        sizes = [memory.storage_bytes for _, memory in memory_of(flatten(outputs)) if memory.device.type == "cuda"]
        large = copies * sum(-(-size // 2**21) * 2**21 for size in sizes if size > MOST_SMALL_BYTES)
        small = copies * sum(-(-size // 512) * 512 for size in sizes if size <= MOST_SMALL_BYTES)
        grown = max(large, _grown_bytes.get(self.device, 0))
        if self._has(grown, small):
            return
        large = grown if grown <= room_on(self.device) else large
        if self._has(large, small):
            return
        if self.guards:
            self.close()
            self._begin()
        with self.use():
            self._words(large + 2 * GUARD_BYTES[1])  # freed at once: one block, of which all get a part
            self.guards = [self._words(size) for size in GUARD_BYTES]
            held = [self._words(size) for size in sizes * copies]
        del held
        self._growths_when_reserved = self.growths

    def _words(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(-(-size_bytes // 2), dtype=torch.int16, device=self.device)

    @contextmanager
    def use(self) -> Iterator[None]:
        """Let all allocations come from the pool; count them."""
        before = self._counts()
        try:
            with self._allocating():
                yield
        finally:
            after = self._counts()
            self.growths += after.segments > before.segments
            self.allocations = after.allocations - before.allocations

    @contextmanager
    def _allocating(self) -> Iterator[None]:
        pool = self.pool.id
        torch._C._cuda_beginAllocateToPool(self.device.index or 0, pool)
        try:
            yield
        finally:
            end_allocating(self.device, pool)

    def _counts(self) -> Counts:
        stats = torch._C._cuda_memoryStats(self.device.index or 0)
        return Counts(stats["segment"]["all"]["allocated"], stats["allocation"]["all"]["allocated"])

    def _segments(self) -> list[dict[str, Any]]:
        """Return this pool's segments, as torch describes them."""
        # a snapshot of this pool alone, by its id, broke the heap of torch 2.11 after some hundred of them
        segments: Any = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        own = tuple(self.pool.id)
        return [each for each in segments if tuple(each.get("segment_pool_id", ())) == own]

    def _free_spans(self, blocks: Sequence[Mapping[str, Any]]) -> Iterator[Span]:
        """Yield the memory among the blocks of a segment that nothing uses; guards are such."""
        guards, start, stop = {guard.data_ptr() for guard in self.guards}, 0, 0
        for block in blocks:
            if block["state"] == "inactive" or block["address"] in guards:
                start, stop = (start if stop else block["address"]), block["address"] + block["size"]
            elif stop:
                yield start, stop
                stop = 0
        if stop:
            yield start, stop

    def overwritten(self, outputs: object) -> list[str]:
        """Return the outputs of the last call before or behind which it wrote, where it allocated nothing else."""
        found = memory_of(flatten(outputs))
        beside = spans_beside({memory.storage: memory.storage_bytes for _, memory in found}, self.filled)
        if self.allocations != len(beside):
            return []  # memory beside an output may be that of a temporary
        return [name for name, memory in found if self._is_written(beside.get(memory.storage, []))]

    def _is_written(self, spans: Sequence[Span]) -> bool:
        """Tell whether memory that was filled holds something else."""
        even = [(start + start % 2, stop) for start, stop in spans]
        words = [_words_at(start, stop - start, self.device) for start, stop in even if start < stop]
        return bool(words) and not bool(torch.stack([each.eq(POISON - 2**16).all() for each in words]).all())


def spans_beside(storages: Mapping[int, int], filled: Sequence[Span]) -> dict[int, list[Span]]:
    """Return the memory before and behind each storage that lies in filled memory, up to other storages.

    storages: their sizes in bytes by address.
    """
    found = {}
    for start, stop in filled:
        inside = sorted(address for address in storages if start <= address < stop)
        gaps = [*zip([start, *(address + storages[address] for address in inside)], [*inside, stop], strict=True)]
        for address, (low, _), (end, high) in zip(inside, gaps[:-1], gaps[1:], strict=True):
            before = max(low, address - MOST_WATCHED_BYTES), address
            found[address] = [before, (end, min(high, end + MOST_WATCHED_BYTES))]
    return found


def _words_at(address: int, size_bytes: int, device: torch.device) -> torch.Tensor:
    """Return the memory at an even address as a tensor of two-byte words."""
    return bytes_at(address, size_bytes // 2 * 2, device).view(torch.int16)
