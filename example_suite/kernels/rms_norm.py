"""RMS norm over rows, forward and backward; all arithmetic is in float32 whatever the tensors hold."""

from typing import Any

import torch
import triton
import triton.language as tl

from example_suite.kernels.grid import count_programs


@triton.jit
def _forward_kernel(x_ptr, weight_ptr, out_ptr, rstd_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    rstd = 1.0 / tl.sqrt(tl.sum(x * x, 0) / columns + eps)
    tl.store(rstd_ptr + row, rstd)
    tl.store(out_ptr + row * columns + offsets, x * rstd * weight, mask=mask)


@triton.jit
def _backward_kernel(
    grad_out_ptr, x_ptr, weight_ptr, rstd_ptr, grad_x_ptr, partial_ptr, rows, columns, BLOCK: tl.constexpr
):
    program = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    grad_weight = tl.zeros([BLOCK], dtype=tl.float32)
    row = program
    while row < rows:
        at = row * columns + offsets
        rstd = tl.load(rstd_ptr + row)
        normed = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32) * rstd
        grad_out = tl.load(grad_out_ptr + at, mask=mask, other=0.0).to(tl.float32)
        grad_normed = grad_out * weight
        along = tl.sum(grad_normed * normed, 0) / columns
        tl.store(grad_x_ptr + at, (grad_normed - normed * along) * rstd, mask=mask)
        grad_weight += grad_out * normed
        row += tl.num_programs(0)
    tl.store(partial_ptr + program * columns + offsets, grad_weight, mask=mask)


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        rows, columns = x.shape
        block = triton.next_power_of_2(columns)
        out = torch.empty_like(x)
        rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
        _forward_kernel[(rows,)](x, weight, out, rstd, columns, eps, BLOCK=block, num_warps=8)
        ctx.save_for_backward(x, weight, rstd)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, weight, rstd = ctx.saved_tensors
        rows, columns = x.shape
        programs = count_programs(rows, x.device)
        grad_x = torch.empty_like(x)
        partial = torch.empty(programs, columns, dtype=torch.float32, device=x.device)
        _backward_kernel[(programs,)](
            grad_out.contiguous(),
            x,
            weight,
            rstd,
            grad_x,
            partial,
            rows,
            columns,
            BLOCK=triton.next_power_of_2(columns),
            num_warps=8,
        )
        return grad_x, partial.sum(0).to(weight.dtype), None


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Return each row of a contiguous matrix over its root mean square, times the weight."""
    out: torch.Tensor = _RmsNorm.apply(x, weight, eps)
    return out
