"""Rows times a factor each, deliberately slow where the width is no multiple of 16: an example to be found out."""

import torch
import triton
import triton.language as tl

ALIGNMENT = 16
BLOCK = 1024


@triton.jit
def _scale_rows_kernel(x_ptr, factors_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    factor = tl.load(factors_ptr + row)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
        tl.store(out_ptr + row * columns + offsets, x * factor, mask=mask)


def scale_rows(x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Return each row of a contiguous matrix times its factor."""
    rows, columns = x.shape
    out = torch.empty_like(x)
    block = BLOCK if columns % ALIGNMENT == 0 else ALIGNMENT  # right for any width, and slow for most
    _scale_rows_kernel[(rows,)](x, factors, out, columns, BLOCK=block, num_warps=8)
    return out
