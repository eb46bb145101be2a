"""Layer norm over rows, forward and backward; all arithmetic is in float32 whatever the tensors hold."""

from typing import Any

import torch
import triton
import triton.language as tl

from example_suite.kernels.grid import count_programs


@triton.jit
def _forward_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, rstd_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / columns + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    tl.store(out_ptr + row * columns + offsets, centred * rstd * weight + bias, mask=mask)


@triton.jit
def _backward_kernel(
    grad_out_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    grad_x_ptr,
    partial_weight_ptr,
    partial_bias_ptr,
    rows,
    columns,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    grad_weight = tl.zeros([BLOCK], dtype=tl.float32)
    grad_bias = tl.zeros([BLOCK], dtype=tl.float32)
    row = program
    while row < rows:
        at = row * columns + offsets
        rstd = tl.load(rstd_ptr + row)
        # beyond the row's end this is not 0, but the gradient it is multiplied with is
        normed = (tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32) - tl.load(mean_ptr + row)) * rstd
        grad_out = tl.load(grad_out_ptr + at, mask=mask, other=0.0).to(tl.float32)
        grad_normed = grad_out * weight
        along = tl.sum(grad_normed * normed, 0) / columns
        level = tl.sum(grad_normed, 0) / columns
        tl.store(grad_x_ptr + at, (grad_normed - normed * along - level) * rstd, mask=mask)
        grad_weight += grad_out * normed
        grad_bias += grad_out
        row += tl.num_programs(0)
    tl.store(partial_weight_ptr + program * columns + offsets, grad_weight, mask=mask)
    tl.store(partial_bias_ptr + program * columns + offsets, grad_bias, mask=mask)


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
        rows, columns = x.shape
        block = triton.next_power_of_2(columns)
        out = torch.empty_like(x)
        mean, rstd = torch.empty(2, rows, dtype=torch.float32, device=x.device)
        _forward_kernel[(rows,)](x, weight, bias, out, mean, rstd, columns, eps, BLOCK=block, num_warps=8)
        ctx.save_for_backward(x, weight, mean, rstd)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        x, weight, mean, rstd = ctx.saved_tensors
        rows, columns = x.shape
        programs = count_programs(rows, x.device)
        grad_x = torch.empty_like(x)
        partial = torch.empty(2, programs, columns, dtype=torch.float32, device=x.device)
        _backward_kernel[(programs,)](
            grad_out.contiguous(),
            x,
            weight,
            mean,
            rstd,
            grad_x,
            partial[0],
            partial[1],
            rows,
            columns,
            BLOCK=triton.next_power_of_2(columns),
            num_warps=8,
        )
        grad_weight, grad_bias = partial.sum(1).to(weight.dtype)
        return grad_x, grad_weight, grad_bias, None


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """Return each row of a contiguous matrix with mean 0 and variance 1, times the weight, plus the bias."""
    out: torch.Tensor = _LayerNorm.apply(x, weight, bias, eps)
    return out
