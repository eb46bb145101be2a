"""Calls of Triton kernels that take more or less of a multiprocessor, by how they are compiled."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from tests.on_gpu.slowdown_kernels import doubling_kernel, row_sum_kernel

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


def doubling() -> Callable[[], object]:
    x = torch.randn(ROWS * COLUMNS, device="cuda")
    out = torch.empty_like(x)
    return lambda: doubling_kernel[(ROWS,)](x, out, x.numel(), BLOCK=1024)


def row_sums(unrolled: int) -> Callable[[], object]:
    x, out = torch.randn(ROWS, COLUMNS, device="cuda"), torch.empty(ROWS, device="cuda")
    return lambda: row_sum_kernel[(ROWS,)](x, out, COLUMNS, BLOCK=128, UNROLL=unrolled, num_warps=1)


TRITON: dict[str, Callable[[], Callable[[], object]]] = {
    "softmax of 8 warps": lambda: softmax(8),
    "softmax of 1 warp spills": lambda: softmax(1),
    "matmul of 64, 2 stages": lambda: matmul(64, 2),
    "matmul of 128, 8 warps": lambda: matmul(128, 3, 8),
    "doubling": doubling,
    "row sums unrolled": lambda: row_sums(16),
}
