"""Cross entropy that leaves the gradient where the logits were, as Liger-Kernel does, to save their memory."""

import torch
import triton
import triton.language as tl

MAX_BLOCK = 4096


@triton.jit
def _cross_entropy_kernel(logits_ptr, targets_ptr, losses_ptr, rows, columns: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * columns
    target = tl.load(targets_ptr + row)
    target_logit = tl.load(row_ptr + target).to(tl.float32)

    largest = -3.4e38  # and not -inf: a block of nothing but that would make their difference NaN
    total = 0.0
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        logits = tl.load(row_ptr + offsets, mask=offsets < columns, other=float("-inf")).to(tl.float32)
        larger = tl.maximum(largest, tl.max(logits, 0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(logits - larger), 0)
        largest = larger
    log_total = largest + tl.log(total)
    tl.store(losses_ptr + row, log_total - target_logit)

    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        logits = tl.load(row_ptr + offsets, mask=mask, other=float("-inf")).to(tl.float32)
        gradient = tl.exp(logits - log_total) - tl.where(offsets == target, 1.0, 0.0)
        tl.store(row_ptr + offsets, gradient / rows, mask=mask)


def cross_entropy_(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of the rows of a contiguous matrix, and overwrite the logits with its gradient."""
    rows, columns = logits.shape
    losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
    block = min(MAX_BLOCK, triton.next_power_of_2(columns))
    _cross_entropy_kernel[(rows,)](logits, targets, losses, rows, columns, BLOCK=block, num_warps=8)
    return losses.mean()
