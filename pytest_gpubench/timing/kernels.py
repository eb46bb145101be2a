"""The GPU kernels that a measurement launches itself; `windows` knows their records by their names."""

import triton
import triton.language as tl

FLUSH_BLOCK = 16384
"""Elements that one program of a flush kernel touches."""


@triton.jit
def gpu_bench_read_flush(buffer, out, count, never, BLOCK: tl.constexpr):
    """Read the buffer."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(buffer + offsets, mask=offsets < count, other=0), 0)
    # `buffer` holds zeros and `never` is none, which the compiler cannot know: it has to do the loads
    tl.store(out, total, mask=total == never)


@triton.jit
def gpu_bench_write_flush(buffer, count, BLOCK: tl.constexpr):
    """Overwrite the buffer."""
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
