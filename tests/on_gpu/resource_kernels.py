"""Triton kernels whose registers, spills and shared memory depend on how they are compiled."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl

ROWS, COLUMNS = 512, 8192


@triton.jit  # type: ignore[untyped-decorator]
def softmax_kernel(x, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * count + offsets, mask=offsets < count, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * count + offsets, powers / tl.sum(powers, 0), mask=offsets < count)


@triton.jit  # type: ignore[untyped-decorator]
def matmul_kernel(a, b, c, size, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, size, K):
        left = tl.load(a + rows[:, None] * size + (start + inner)[None, :])
        total += tl.dot(left, tl.load(b + (start + inner)[:, None] * size + columns[None, :]))
    tl.store(c + rows[:, None] * size + columns[None, :], total)


def softmax(warps: int) -> Callable[[], object]:
    x = torch.randn(ROWS, COLUMNS, device="cuda")
    out = torch.empty_like(x)
    return lambda: softmax_kernel[(ROWS,)](x, out, COLUMNS, BLOCK=COLUMNS, num_warps=warps)


def matmul(tile: int, stages: int, warps: int = 4) -> Callable[[], object]:
    size = 1024
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty(size, size, device="cuda")
    grid = (size // tile, size // tile)
    given = {"M": tile, "N": tile, "K": 32, "num_warps": warps, "num_stages": stages}
    return lambda: matmul_kernel[grid](a, b, c, size, **given)
