"""The backward of layer norm, whose weight and bias gradients are sums over all rows."""

import pytest
import torch

from example_suite.kernels.layer_norm import layer_norm
from pytest_gpubench import GpuBench


def torch_layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias)


def inputs(rows: int, columns: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.randn(rows, columns, device=device, requires_grad=True)
    weight = torch.rand(columns, device=device, requires_grad=True)
    bias = torch.randn(columns, device=device, requires_grad=True)
    return x, weight, bias


@pytest.mark.parametrize(("rows", "columns"), [(16, 1024), (7, 781)])
def test_matches_float64(device: torch.device, rows: int, columns: int) -> None:
    x, weight, bias = inputs(rows, columns, device)
    out, expected = layer_norm(x, weight, bias), torch_layer_norm(x.double(), weight.double(), bias.double())
    torch.testing.assert_close(out, expected.float())

    grad_out = torch.randn_like(out)
    gradients = torch.autograd.grad(out, (x, weight, bias), grad_out)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, (x, weight, bias), grad_out.double()))


@pytest.mark.perf(max_rel_std=0.05, max_time_us={"H200": 250})
def test_layer_norm_backward_is_fast_and_steady(gpu_bench: GpuBench, full_size: bool) -> None:
    rows, columns = (4096, 4096) if full_size else (7, 781)
    x, weight, bias = inputs(rows, columns, gpu_bench.device)
    gpu_bench.measure(layer_norm, (x, weight, bias), backward="backward")
    gpu_bench.measure(torch_layer_norm, (x, weight, bias), backward="backward")
