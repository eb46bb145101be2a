"""Triton kernels that are launched in several ways, of which some are slow or take more of a multiprocessor."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl

ROWS, COLUMNS = 512, 8192


@triton.jit
def softmax_kernel(x, out, count, BLOCK: tl.constexpr):
    row, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * count + offsets, mask=offsets < count, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * count + offsets, powers / tl.sum(powers, 0), mask=offsets < count)


@triton.jit
def matmul_kernel(a, b, c, size, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, size, K):
        left = tl.load(a + rows[:, None] * size + (start + inner)[None, :])
        total += tl.dot(left, tl.load(b + (start + inner)[:, None] * size + columns[None, :]))
    tl.store(c + rows[:, None] * size + columns[None, :], total)


@triton.jit
def doubling_kernel(x, out, count, BLOCK: tl.constexpr):
    """Double all elements, with as many blocks as are launched."""
    for start in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        values = tl.load(x + offsets, mask=offsets < count).to(tl.float32)
        tl.store(out + offsets, 2 * values, mask=offsets < count)


@triton.jit
def strided_kernel(x, out, columns, across, down, BLOCK: tl.constexpr):
    """Double a matrix row by row, whose elements lie so far apart."""
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * down + offsets * across, mask=offsets < columns)
    tl.store(out + tl.program_id(0) * down + offsets * across, 2 * values, mask=offsets < columns)


@triton.jit
def row_sum_kernel(x, out, columns, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    """Sum each row, some blocks of it in every step."""
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK * UNROLL):
        for step in tl.static_range(UNROLL):
            total += tl.load(x + tl.program_id(0) * columns + start + step * BLOCK + tl.arange(0, BLOCK))
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def spinning_kernel(out, steps, BLOCK: tl.constexpr):
    """Take as long in every block."""
    values = tl.arange(0, BLOCK).to(tl.float32)
    for _ in range(steps):
        values = values * 1.0001 + 0.5
    tl.store(out + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), values)


@triton.jit
def numbered_kernel(x, out, count, BLOCK: tl.constexpr, NUMBER: tl.constexpr):
    """Add a number that is compiled in."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < count) + NUMBER, mask=offsets < count)


def softmax(warps: int) -> Callable[[], object]:
    x = torch.randn(ROWS, COLUMNS, device="cuda")
    out = torch.empty_like(x)
    return lambda: softmax_kernel[(ROWS,)](x, out, COLUMNS, BLOCK=COLUMNS, num_warps=warps)
