"""Train with a kernel: compare its gradients too, and time its backward alone."""

import pytest
import torch

from example_suite import ON_GPU
from example_suite.kernels.layer_norm import layer_norm
from pytest_gpubench import GpuBench

ROWS, COLUMNS = (4096, 4096) if ON_GPU else (7, 781)


def torch_layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias)


@pytest.fixture
def inputs(gpu_bench: GpuBench) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.randn(ROWS, COLUMNS, device=gpu_bench.device, requires_grad=True)
    weight = torch.rand(COLUMNS, device=gpu_bench.device, requires_grad=True)
    bias = torch.randn(COLUMNS, device=gpu_bench.device, requires_grad=True)
    return x, weight, bias


# atol: the weight's gradient is a sum over all rows, some 1e-4 off in float32 in whatever order it is added
@pytest.mark.perf(min_speedup=0.3)
def test_layer_norm_keeps_up_with_torch(
    gpu_bench: GpuBench, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    gpu_bench.compare(layer_norm, torch_layer_norm, args=inputs, grads=True, rtol=1e-4, atol=1e-3)


@pytest.mark.perf(min_speedup=0.5)
def test_layer_norm_backward_keeps_up_with_torch(
    gpu_bench: GpuBench, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    gpu_bench.compare(layer_norm, torch_layer_norm, args=inputs, backward="backward", rtol=1e-4, atol=1e-3)
