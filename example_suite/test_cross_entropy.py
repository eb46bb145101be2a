"""Cross entropy that overwrites its logits with their gradient: every rep needs fresh ones."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from example_suite.kernels.cross_entropy import cross_entropy_
from pytest_gpubench import GpuBench


def inputs(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.randn(rows, columns, dtype=dtype, device=device, requires_grad=True)
    return logits, torch.randint(columns, (rows,), device=device)


@pytest.mark.parametrize(("rows", "columns"), [(4, 1024), (3, 5003)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matches_torch(device: torch.device, rows: int, columns: int, dtype: torch.dtype) -> None:
    logits, targets = inputs(rows, columns, dtype, device)
    expected = cross_entropy(logits.float(), targets)
    (expected_gradient,) = torch.autograd.grad(expected, logits)

    overwritten = logits.detach().clone()
    torch.testing.assert_close(cross_entropy_(overwritten, targets), expected.detach())
    torch.testing.assert_close(overwritten, expected_gradient)


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


@pytest.mark.perf(max_rel_std=0.05)
def test_cross_entropy_is_steady(gpu_bench: GpuBench, full_size: bool) -> None:
    rows, columns = (4096, 32768) if full_size else (3, 5003)
    logits, targets = inputs(rows, columns, torch.bfloat16, gpu_bench.device)
    gpu_bench.measure(cross_entropy, (logits, targets), backward="both", label="torch, both directions")
    gpu_bench.measure(cross_entropy_, setup=lambda: (logits.detach().clone(), targets))
