"""Calls whose kernels take more or less of a multiprocessor: Triton's, by how they are compiled, and libraries'."""

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from tests.on_gpu.slowdown_kernels import doubling_kernel, row_sum_kernel, spinning_kernel, strided_kernel

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


def strided(across: int, down: int) -> Callable[[], object]:
    x = torch.randn(4096, 4096, device="cuda")
    out = torch.empty_like(x)
    return lambda: strided_kernel[(4096,)](x, out, 4096, across, down, BLOCK=4096)


def spinning() -> Callable[[], object]:
    out = torch.empty(ROWS * 1024, device="cuda")
    return lambda: spinning_kernel[(ROWS,)](out, 100, BLOCK=1024, num_warps=32)


def attention(heads: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)


TRITON: dict[str, Callable[[], Callable[[], object]]] = {
    "softmax of 8 warps": lambda: softmax(8),
    "softmax of 1 warp spills": lambda: softmax(1),
    "softmax of 32 warps": lambda: softmax(32),
    "matmul of 64, 2 stages": lambda: matmul(64, 2),
    "matmul of 128, 4 stages": lambda: matmul(128, 4),
    "matmul of 128, 8 warps": lambda: matmul(128, 3, 8),
    "matmul of 256 spills": lambda: matmul(256, 2),
    "matmul of 32, 2 stages": lambda: matmul(32, 2),
    "doubling": doubling,
    "row sums unrolled": lambda: row_sums(16),
    "along rows": lambda: strided(1, 4096),
    "spinning of 32 warps": spinning,
}
LIBRARY: dict[str, Callable[[torch.Tensor], object]] = {
    "matmul": lambda x: x[:, :512].bfloat16() @ x[:, :512].bfloat16().T,
    "large matmul": lambda x: x.view(2048, 2048).bfloat16() @ x.view(2048, 2048).bfloat16(),
    "float32 matmul": lambda x: x[:, :512] @ x[:, :512].T,
    "softmax": lambda x: torch.softmax(x, -1),
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, (COLUMNS,)),
    "attention": lambda x: attention(x.view(4, 16, 1024, 64).bfloat16()),
    "convolution": lambda x: torch.nn.functional.conv2d(x.view(8, 64, 64, 128), x[0, :576].view(1, 64, 3, 3)),
    "sort": lambda x: torch.sort(x, -1),
    "topk": lambda x: torch.topk(x, 32),
    "cumsum": lambda x: x.cumsum(-1),
    "sum": lambda x: x.sum(),
    "gelu": lambda x: torch.nn.functional.gelu(x),
    "random": lambda _: torch.randn(2**20, device="cuda"),
    "indices": lambda x: x[:, torch.arange(100, device="cuda")],
    "transposed": lambda x: x.t().contiguous(),
    "fft": lambda x: torch.fft.fft(x),
}
"""Calls of libraries' kernels, of a tensor of so many rows and columns."""
