"""The GPU kernels that a measurement launches itself; `windows` knows their records by their names."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.base import Timer

CLOCK_WINDOW_NS = 5_000
"""Windows shorter than this are too few ticks of the nanosecond timer to read a clock from."""
FLUSH_BLOCK = 16384
"""Elements that one program of a flush kernel touches."""
MOST_MULTIPROCESSORS = 1024
CODE_BYTES = 2**17
"""The bytes of code that a flush runs on each multiprocessor, in instructions of 16 bytes.

On an H200 a `torch.max` still takes 1.5 % longer after other kernels with half as much; twice as much takes 70 us more.
"""
LINE_BYTES, LINES_BLOCK = 128, 1024
"""The bytes of a line, and the lines of which one program changes the priority."""
DEMOTION = tl.constexpr("applypriority.global.L2::evict_normal [$1], 128; mov.u32 $0, 0;")
CODE = tl.constexpr("mov.u32 $0, %tid.x;" + "mad.lo.s32 $0, $0, $0, 7;" * (CODE_BYTES // 16))


@triton.jit
def _replace_code(done, flush):
    """Run code that fills a multiprocessor's caches of instructions, and return what it computes.

    flush: the number of the flush, from 1 on; one program of it does so on each multiprocessor.
    done: the number of the last flush for which that was done, by multiprocessor.
    """
    multiprocessor = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    found = 0
    if tl.atomic_max(done + multiprocessor, flush, sem="relaxed") < flush:
        found = tl.inline_asm_elementwise(CODE, "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    return found


@triton.jit(do_not_specialize=["flush"])
def gpu_bench_read_flush(buffer, out, count, never, done, flush, CODE_BYTES: tl.constexpr, BLOCK: tl.constexpr):
    """Read the buffer, with the highest priority that data has in the L2 cache."""
    found = 0
    if CODE_BYTES:
        found = _replace_code(done, flush)
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(buffer + offsets, mask=offsets < count, other=0, eviction_policy="evict_last"), 0)
    # `buffer` holds zeros and `never` is none, which the compiler cannot know: it has to do the loads
    tl.store(out, total + found, mask=total == never)


@triton.jit
def gpu_bench_demote(buffer, lines, IS_KNOWN: tl.constexpr, BLOCK: tl.constexpr):
    """Give lines of the buffer the ordinary priority in the L2 cache, if the GPU knows that instruction."""
    if IS_KNOWN:
        at = tl.minimum(tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK), lines - 1)
        addresses = buffer.to(tl.int64) + 128 * at
        tl.inline_asm_elementwise(DEMOTION, "=r,l", [addresses], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit(do_not_specialize=["flush"])
def gpu_bench_write_flush(buffer, out, count, done, flush, CODE_BYTES: tl.constexpr, BLOCK: tl.constexpr):
    """Overwrite the buffer."""
    if CODE_BYTES:
        tl.store(out, _replace_code(done, flush))
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(buffer + offsets, tl.zeros([BLOCK], dtype=tl.int32), mask=offsets < count)


@triton.jit
def _store_clocks(clocks, slot):
    """Write the cycle counter and the nanosecond timer of multiprocessor 0 into a slot."""
    multiprocessor = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    cycles = tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    now_ns = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    tl.store(clocks + 2 * slot, cycles, mask=multiprocessor == 0)
    tl.store(clocks + 2 * slot + 1, now_ns, mask=multiprocessor == 0)


@triton.jit(do_not_specialize=["slot"])
def gpu_bench_begin(clocks, slot):
    """Mark the beginning of a rep."""
    _store_clocks(clocks, slot)


@triton.jit(do_not_specialize=["slot"])
def gpu_bench_end(clocks, slot):
    """Mark the end of a rep."""
    _store_clocks(clocks, slot)


@triton.jit
def gpu_bench_noop(clocks):
    """Do nothing that could be left out."""
    tl.store(clocks, tl.load(clocks))


def flush_of(buffer: torch.Tensor, overwrites: bool = False, only_reads: bool = False) -> Callable[[], object]:
    """Return the function that brings the caches into a state by a buffer of int32.

    It reads the buffer, and gives it the ordinary priority then, or overwrites it; before that it fills the
    multiprocessors' caches of instructions. only_reads: it does nothing but read the buffer.
    """
    count, out, done = buffer.numel(), buffer.new_zeros(1), buffer.new_zeros(MOST_MULTIPROCESSORS)
    grid, numbers = (triton.cdiv(count, FLUSH_BLOCK),), itertools.count(1)
    # Triton 3.2 knows a kernel again without its globals: a kept one would run the code of another release
    options = {"CODE_BYTES": 0 if only_reads else CODE_BYTES, "BLOCK": FLUSH_BLOCK, "num_warps": 8}
    if overwrites:
        return lambda: gpu_bench_write_flush[grid](buffer, out, count, done, next(numbers), **options)

    def read() -> None:
        gpu_bench_read_flush[grid](buffer, out, count, 1, done, next(numbers), **options)

    lines = buffer.nbytes // LINE_BYTES
    is_known, of_lines = torch.cuda.get_device_capability(buffer.device) >= (8, 0), (triton.cdiv(lines, LINES_BLOCK),)

    def flush() -> None:
        read()
        gpu_bench_demote[of_lines](buffer, lines, IS_KNOWN=is_known, BLOCK=LINES_BLOCK, num_warps=8)

    return read if only_reads else flush


class Sentinels:
    """Launch the kernels that mark where a rep begins and ends, and read the clocks they noted."""

    def __init__(self, device: Device) -> None:
        with torch.inference_mode(False):  # or `read_clocks` could not write to it outside of that mode
            self.buffer = torch.zeros(2 * Timer.max_reps, 2, dtype=torch.int64, device=device.torch_device)
        grid = (device.facts.multiprocessors or 1,)
        self._begin: Any = gpu_bench_begin[grid]
        self._end: Any = gpu_bench_end[grid]
        self._noop: Any = gpu_bench_noop[(1,)]

    def begin(self, slot: int) -> None:
        """Mark the beginning of a rep."""
        self._begin(self.buffer, slot, num_warps=1)

    def end(self, slot: int) -> None:
        """Mark the end of a rep."""
        self._end(self.buffer, slot, num_warps=1)

    def noop(self) -> None:
        """Launch a kernel that does next to nothing."""
        self._noop(self.buffer, num_warps=1)

    def read_clocks(self, reps: int) -> list[float | None]:
        """Return each rep's mean clock in MHz between its sentinels, None where it was too short to tell."""
        noted = self.buffer[: 2 * reps].view(reps, 2, 2).tolist()
        self.buffer[: 2 * reps].zero_()
        return [mean_clock_mhz(begin, end) for begin, end in noted]


def mean_clock_mhz(begin: Sequence[int], end: Sequence[int]) -> float | None:
    """Return cycles per microsecond between two readings (cycles, nanoseconds) of one multiprocessor."""
    cycles, elapsed_ns = end[0] - begin[0], end[1] - begin[1]
    if elapsed_ns < CLOCK_WINDOW_NS or cycles <= 0 or not begin[1]:
        return None
    return 1e3 * cycles / elapsed_ns
