"""Cross entropy that overwrites its logits with their gradient: every rep needs fresh ones. Limits hold on an H200."""

import pytest
import torch
from hypothesis import given, settings
from torch.nn.functional import cross_entropy

from example_suite.kernels.cross_entropy import cross_entropy_
from example_suite.sizes import BUDGET_S, FEW_EXAMPLES, row_shapes
from pytest_gpubench import GpuBench
from pytest_gpubench.strategies import tensor


def inputs(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.randn(rows, columns, dtype=dtype, device=device, requires_grad=True)
    return logits, torch.randint(columns, (rows,), device=device)


def fused_step(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return loss and gradient; the gradient is where the logits were."""
    return cross_entropy_(logits, targets), logits


def torch_step(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return loss and gradient as training has torch compute them: in float32, whatever the logits are."""
    logits = logits.detach().requires_grad_()
    loss = cross_entropy(logits.float(), targets)
    (gradient,) = torch.autograd.grad(loss, logits)
    return loss.detach(), gradient


def assert_matches_torch(logits: torch.Tensor, targets: torch.Tensor) -> None:
    """Check loss and gradient."""
    torch.testing.assert_close(fused_step(logits.detach().clone(), targets), torch_step(logits, targets))


@pytest.mark.parametrize(("rows", "columns"), [(4, 1024), (3, 5003), (1, 4097), (2, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matches_torch(device: torch.device, rows: int, columns: int, dtype: torch.dtype) -> None:
    assert_matches_torch(*inputs(rows, columns, dtype, device))


@pytest.mark.parametrize("scale", [0.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_survives_any_scale(device: torch.device, scale: float, dtype: torch.dtype) -> None:
    logits, targets = inputs(3, 5003, dtype, device)
    assert_matches_torch(scale * logits, targets)


@pytest.mark.parametrize("masked", [slice(5000, None), slice(4096), slice(0, None, 2)])
def test_masked_words_do_not_count(device: torch.device, masked: slice) -> None:
    logits = torch.randn(3, 5003, device=device)
    logits[:, masked] = float("-inf")
    assert_matches_torch(logits, targets=torch.tensor([4097, 4099, 4999], device=device))


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(torch.bfloat16, marks=pytest.mark.perf(max_time_us={"H200": 600}), id="bf16"),
        pytest.param(torch.float32, marks=pytest.mark.perf(max_time_us={"H200": 1200}), id="fp32"),
    ],
)
def test_cross_entropy_is_fast(gpu_bench: GpuBench, full_size: bool, dtype: torch.dtype) -> None:
    rows, columns = (4096, 32768) if full_size else (3, 5003)
    logits, targets = inputs(rows, columns, dtype, gpu_bench.device)
    logits = logits.detach()
    gpu_bench.measure(cross_entropy_, setup=lambda: (logits.clone(), targets))


# most of the gradients are about 1e-8: the usual atol of 1e-5 would let anything pass for them
@pytest.mark.perf(min_speedup=3)
def test_cross_entropy_beats_torch(gpu_bench: GpuBench, full_size: bool) -> None:
    rows, columns = (4096, 32768) if full_size else (3, 5003)
    logits, targets = inputs(rows, columns, torch.bfloat16, gpu_bench.device)
    gpu_bench.compare(fused_step, torch_step, setup=lambda: (logits.detach().clone(), targets), rtol=0.016, atol=0)


@pytest.mark.perf(max_rel_std=0.05)
def test_cross_entropy_is_steady(gpu_bench: GpuBench, full_size: bool) -> None:
    rows, columns = (4096, 32768) if full_size else (3, 5003)
    logits, targets = inputs(rows, columns, torch.bfloat16, gpu_bench.device)
    gpu_bench.measure(cross_entropy, (logits, targets), backward="both", label="torch, both directions")
    gpu_bench.measure(cross_entropy_, setup=lambda: (logits.detach().clone(), targets))


# few examples: the kernel is compiled for each number of columns
@pytest.mark.perf(min_speedup=0.7, given_budget=BUDGET_S)
@given(shape=row_shapes("bfloat16", narrowest=512, widest=65536))
@settings(deadline=None, max_examples=FEW_EXAMPLES)
def test_cross_entropy_is_slow_at_no_shape(gpu_bench: GpuBench, shape: tuple[int, int]) -> None:
    rows, columns = shape
    logits = tensor(shape, torch.bfloat16)
    targets = torch.arange(rows, device=logits.device) % columns
    gpu_bench.compare(fused_step, torch_step, setup=lambda: (logits.clone(), targets), rtol=0.016, atol=0)
