"""A bfloat16 matrix product that tunes itself, and torch's."""

import pytest
import torch

from example_suite.kernels.matmul import INTERPRETED, matmul
from pytest_gpubench import GpuBench

BFLOAT16 = pytest.param(
    torch.bfloat16,
    marks=pytest.mark.skipif(
        INTERPRETED, reason="Triton's interpreter multiplies the bits of bfloat16 (triton-lang/triton#11584)"
    ),
)


def torch_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def inputs(
    rows: int, columns: int, inner: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    a = torch.randn(rows, inner, dtype=dtype, device=device)
    b = torch.randn(inner, columns, dtype=dtype, device=device)
    return a, b


@pytest.mark.parametrize(("rows", "columns", "inner"), [(256, 256, 128), (200, 300, 72), (33, 19, 77)])
@pytest.mark.parametrize("dtype", [torch.float16, BFLOAT16])
def test_matches_float64(device: torch.device, rows: int, columns: int, inner: int, dtype: torch.dtype) -> None:
    a, b = inputs(rows, columns, inner, dtype, device)
    expected = (a.double() @ b.double()).to(dtype)
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(matmul(a, b), expected, rtol=2 * rounding, atol=1e-3)


@pytest.mark.perf(max_rel_std=0.05, max_time_us={"H200": 600})
def test_matmul_is_fast_and_steady(gpu_bench: GpuBench, full_size: bool) -> None:
    size = 4096 if full_size else 64
    a, b = inputs(size, size, size, torch.bfloat16, gpu_bench.device)
    for function in (torch_matmul, matmul):
        timing = gpu_bench(function, a, b)
        if timing.measured:
            gpu_bench.extra_info[f"{timing.label}_tflop_per_s"] = 2 * size**3 / timing.median_us / 1e6
