"""Row softmax in one pass over memory, against torch."""

import pytest
import torch

from example_suite.kernels.softmax import softmax
from pytest_gpubench import GpuBench


def torch_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


@pytest.mark.parametrize("shape", [(16, 1024), (5, 781), (3, 17)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matches_torch(device: torch.device, shape: tuple[int, int], dtype: torch.dtype) -> None:
    x = 5 * torch.randn(shape, dtype=dtype, device=device)
    torch.testing.assert_close(softmax(x), torch_softmax(x))


def test_survives_large_values(device: torch.device) -> None:
    x = torch.tensor([[1e4, -1e4, 1e4], [float("-inf"), 0.0, 0.0]], device=device)
    torch.testing.assert_close(softmax(x), torch_softmax(x))


@pytest.mark.perf(max_rel_std=0.05, max_time_us={"H200": 120})
def test_softmax_is_fast_and_steady(gpu_bench: GpuBench, full_size: bool) -> None:
    x = torch.randn((4096, 4096) if full_size else (16, 781), device=gpu_bench.device)
    gpu_bench(torch_softmax, x)
    timing = gpu_bench(softmax, x)
    if timing.measured:
        gpu_bench.extra_info["gb_per_s"] = 2 * x.nbytes / timing.median_us / 1e3
