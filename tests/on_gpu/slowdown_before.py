"""Kernels as they were before a change: one load of each row, partial sums that are stored, a short polynomial."""

import triton
import triton.language as tl


@triton.jit
def norm_kernel(x, out, columns, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    row = x + tl.program_id(0) * columns
    values = tl.load(row + offsets, mask=offsets < columns, other=0.0)
    scale = tl.rsqrt(tl.sum(values * values, 0) / columns)
    tl.store(out + tl.program_id(0) * columns + offsets, values * scale, mask=offsets < columns)


@triton.jit
def sums_kernel(x, out, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + offsets, mask=offsets < count, other=0.0), 0))


@triton.jit
def polynomial_kernel(x, out, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < count)
    for _ in tl.static_range(8):
        values = values * 0.75 + 0.5
    tl.store(out + offsets, values, mask=offsets < count)
