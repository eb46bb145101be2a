"""Time a function that overwrites its input: `setup` makes fresh arguments before each rep, untimed."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from example_suite import ON_GPU
from example_suite.kernels.cross_entropy import cross_entropy_
from pytest_gpubench import GpuBench

ROWS, WORDS = (4096, 32768) if ON_GPU else (3, 5003)


def fused_step(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return loss and gradient; the gradient is where the logits were."""
    return cross_entropy_(logits, targets), logits


def torch_step(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return loss and gradient as training has torch compute them: in float32, whatever the logits are."""
    logits = logits.detach().requires_grad_()
    loss = cross_entropy(logits.float(), targets)
    (gradient,) = torch.autograd.grad(loss, logits)
    return loss.detach(), gradient


# most gradients are about 1e-8: the usual atol of 1e-5 would let anything pass for them
@pytest.mark.perf(min_speedup=1)
def test_cross_entropy_beats_torch(gpu_bench: GpuBench) -> None:
    logits = torch.randn(ROWS, WORDS, dtype=torch.bfloat16, device=gpu_bench.device)
    targets = torch.randint(WORDS, (ROWS,), device=gpu_bench.device)
    gpu_bench.compare(fused_step, torch_step, setup=lambda: (logits.clone(), targets), rtol=0.016, atol=0)
