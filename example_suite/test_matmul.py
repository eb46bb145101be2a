"""Hold a matrix product against the peak of this GPU, and against torch's; both are judged by float64."""

import pytest
import torch

from example_suite import ON_GPU
from example_suite.kernels.matmul import matmul
from pytest_gpubench import GpuBench

SIZE = 4096 if ON_GPU else 64


def torch_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


@pytest.mark.perf(min_speedup=0.3, min_peak_fraction=0.3)
def test_matmul_keeps_up_with_torch(gpu_bench: GpuBench) -> None:
    a, b = torch.randn(2, SIZE, SIZE, dtype=torch.float16, device=gpu_bench.device)
    gpu_bench.compare(matmul, torch_matmul, args=(a, b), golden="float64")
