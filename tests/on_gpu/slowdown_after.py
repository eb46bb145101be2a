"""The same kernels after it: each row is loaded twice, all sums are added to one place, the polynomial is long."""

import triton
import triton.language as tl


@triton.jit
def norm_kernel(x, out, columns, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    row = x + tl.program_id(0) * columns
    values = tl.load(row + offsets, mask=offsets < columns, other=0.0)
    scale = tl.rsqrt(tl.sum(values * values, 0) / columns)
    tl.debug_barrier()
    again = tl.load(row + offsets, mask=offsets < columns, other=0.0, volatile=True)
    tl.store(out + tl.program_id(0) * columns + offsets, again * scale, mask=offsets < columns)


@triton.jit
def sums_kernel(x, out, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + offsets, mask=offsets < count, other=0.0), 0))


@triton.jit
def polynomial_kernel(x, out, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < count)
    for _ in tl.static_range(256):
        values = values * 0.75 + 0.5
    tl.store(out + offsets, values, mask=offsets < count)
