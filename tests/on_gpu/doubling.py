"""A Triton kernel that doubles what it reads, whose launches, copies and memory are known, and torch's."""

import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def _double(x, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < count), mask=at < count)


def double_into(out: torch.Tensor, x: torch.Tensor, count: int | None = None) -> torch.Tensor:
    count = x.numel() if count is None else count
    _double[(triton.cdiv(count, 1024),)](x, out, count, BLOCK=1024)
    return out


def torch_double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def double(x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    return double_into(torch.empty_like(x) if out is None else out, x)
