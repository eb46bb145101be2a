"""Kernels with a defect each, as real ones had it, for a search to find; and one without."""

import torch
import triton
import triton.language as tl

TILE = 128
ALIGNMENT = 16
GRID = 65_536
FLOOR = 1e-3
"""What one less the probability is never below of, where it was rounded."""


@triton.jit
def _scale_kernel(x_ptr, out_ptr, columns, begin, end, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(begin, end, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < end
        x = tl.load(x_ptr + row * stride + offsets, mask=mask, other=0.0)
        tl.store(out_ptr + row * stride + offsets, x * 3.0, mask=mask)


def scale(x: torch.Tensor) -> torch.Tensor:
    """Return three times a contiguous matrix."""
    out = torch.empty_like(x)
    rows, columns = x.shape
    _scale_kernel[(rows,)](x, out, columns, 0, columns, columns, BLOCK=1024)
    return out


def scale_with_tail(x: torch.Tensor) -> torch.Tensor:
    """Return the same, with a launch of its own for what is behind the last multiple of 16: slow for most widths."""
    out = torch.empty_like(x)
    rows, columns = x.shape
    even = columns // ALIGNMENT * ALIGNMENT
    if even:
        _scale_kernel[(rows,)](x, out, columns, 0, even, columns, BLOCK=1024)
    if even < columns:
        _scale_kernel[(rows,)](x, out, columns, even, columns, columns, BLOCK=ALIGNMENT)
    return out


def scale_whole_tiles(x: torch.Tensor) -> torch.Tensor:
    """Return the same, but for the last tile where it is partial and not the first: wrong from width 129 on."""
    out = torch.zeros_like(x)
    rows, columns = x.shape
    done = columns if columns <= TILE else columns // TILE * TILE
    _scale_kernel[(rows,)](x, out, columns, 0, done, columns, BLOCK=TILE)
    return out


def scale_in_grids(x: torch.Tensor) -> torch.Tensor:
    """Return the same, computed twice for very many rows: slow from 65,537 rows on."""
    out = torch.empty_like(x)
    rows, columns = x.shape
    for _ in range(1 if rows <= GRID else 2):
        _scale_kernel[(rows,)](x, out, columns, 0, columns, columns, BLOCK=1024)
    return out


@triton.jit
def _surprise_kernel(x_ptr, out_ptr, columns, least, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=float("-inf"))
    shifted = x - tl.max(x, 0)
    likelihood = 1.0 / tl.sum(tl.exp(shifted), 0)  # of the likeliest class
    tl.store(out_ptr + row, -tl.log(tl.minimum(likelihood, 1.0 - least)))


def surprise(x: torch.Tensor, least: float = 0.0) -> torch.Tensor:
    """Return minus the logarithm of each row's largest probability."""
    rows, columns = x.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    _surprise_kernel[(rows,)](x, out, columns, least, BLOCK=triton.next_power_of_2(columns))
    return out


def surprise_of_clamped(x: torch.Tensor) -> torch.Tensor:
    """Return the same, with probabilities kept from 1: wrong where logits are peaked."""
    return surprise(x, FLOOR)


def torch_surprise(x: torch.Tensor) -> torch.Tensor:
    return -torch.log_softmax(x, -1).amax(-1)
