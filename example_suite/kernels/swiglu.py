"""SwiGLU, silu(gate) * up, without writing silu(gate) to memory."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def _swiglu_kernel(gate_ptr, up_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    gate = tl.load(gate_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + offsets, gate * tl.sigmoid(gate) * up, mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up of two contiguous tensors of one shape."""
    out = torch.empty_like(gate)
    _swiglu_kernel[(triton.cdiv(gate.numel(), BLOCK),)](gate, up, out, gate.numel(), BLOCK=BLOCK, num_warps=8)
    return out
