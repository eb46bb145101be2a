"""Compare with a reference: outputs first, then times, of one candidate or of several."""

import pytest
import torch

from example_suite import ON_GPU
from example_suite.kernels.softmax import softmax
from pytest_gpubench import GpuBench

SHAPE = (4096, 4096) if ON_GPU else (16, 781)


def torch_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


# a share is about 1 / 4096: the usual atol of 1e-5 would be 4 % of that
@pytest.mark.perf(min_speedup=0.5)
def test_softmax_keeps_up_with_torch(gpu_bench: GpuBench) -> None:
    x = torch.randn(SHAPE, device=gpu_bench.device)
    gpu_bench.compare(softmax, torch_softmax, args=(x,), rtol=1e-4, atol=0)


@pytest.mark.skipif(not ON_GPU, reason="what torch.compile makes for a GPU cannot be run here")
@pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles
@pytest.mark.perf(min_speedup={"triton": 0.5, "compiled": 0.5})
def test_both_softmaxes_keep_up_with_eager(gpu_bench: GpuBench) -> None:
    x = torch.randn(SHAPE, device=gpu_bench.device)
    candidates = {"triton": softmax, "compiled": torch.compile(torch_softmax)}
    comparison = gpu_bench.compare(candidates, torch_softmax, args=(x,), rtol=1e-4, atol=0)
    assert comparison["triton"].timing.launches == 1
