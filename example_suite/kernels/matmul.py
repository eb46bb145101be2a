"""A matrix product with float32 accumulation, tuned over three tilings when a size is first met."""

import os

import torch
import triton
import triton.language as tl

GROUP = 8
"""Row tiles whose programs run side by side, so that they find each other's columns in the L2 cache."""


def _tiling(rows: int, columns: int, inner: int, num_stages: int, num_warps: int) -> triton.Config:
    blocks = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": inner}
    return triton.Config(blocks, num_stages=num_stages, num_warps=num_warps)


TILINGS = [
    _tiling(128, 128, 64, num_stages=4, num_warps=4),
    _tiling(128, 256, 64, num_stages=3, num_warps=8),
    _tiling(64, 256, 32, num_stages=4, num_warps=4),
]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


# the interpreter has nothing to tune with; `out` needs no restoring between trials, as no trial reads it
@triton.autotune(TILINGS[:1] if INTERPRETED else TILINGS, key=["rows", "columns", "inner"])
@triton.jit
def _matmul_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    rows,
    columns,
    inner: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    program = tl.program_id(0)
    row_tiles = tl.cdiv(rows, BLOCK_M)
    group_size = GROUP * tl.cdiv(columns, BLOCK_N)
    first_row_tile = program // group_size * GROUP
    group_rows = tl.minimum(row_tiles - first_row_tile, GROUP)
    row_tile = first_row_tile + program % group_size % group_rows
    column_tile = program % group_size // group_rows

    m = row_tile.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column_tile.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    # beyond the last row and column the first ones are read again: cheaper than a mask, and never stored
    a_ptrs = a_ptr + (m % rows)[:, None] * inner + k[None, :]
    b_ptrs = b_ptr + k[:, None] * columns + (n % columns)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, inner, BLOCK_K):
        a = tl.load(a_ptrs, mask=k[None, :] < inner - start, other=0.0)
        b = tl.load(b_ptrs, mask=k[:, None] < inner - start, other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * columns
    out_ptrs = out_ptr + m[:, None] * columns + n[None, :]
    tl.store(out_ptrs, total, mask=(m[:, None] < rows) & (n[None, :] < columns))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the product of two contiguous matrices."""
    rows, inner = a.shape
    columns = b.shape[1]
    out = torch.empty(rows, columns, dtype=a.dtype, device=a.device)

    def grid(blocks: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(rows, blocks["BLOCK_M"]) * triton.cdiv(columns, blocks["BLOCK_N"]),)

    _matmul_kernel[grid](a, b, out, rows, columns, inner, GROUP=GROUP)
    return out
