"""SwiGLU in one kernel, where eager torch takes two and writes silu(gate) in between."""

import pytest
import torch

from example_suite.kernels.swiglu import swiglu
from pytest_gpubench import GpuBench


def torch_swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate) * up


def inputs(shape: tuple[int, int], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    gate = torch.randn(shape, dtype=torch.bfloat16, device=device)
    return gate, torch.randn_like(gate)


@pytest.mark.parametrize("shape", [(16, 1024), (7, 781)])
def test_matches_torch(device: torch.device, shape: tuple[int, int]) -> None:
    gate, up = inputs(shape, device)
    torch.testing.assert_close(swiglu(gate, up), torch_swiglu(gate, up))


@pytest.mark.perf(max_time_us={"H200": 200})
def test_swiglu_is_fast(gpu_bench: GpuBench, full_size: bool) -> None:
    gate, up = inputs((4096, 11008) if full_size else (7, 781), gpu_bench.device)
    timing = gpu_bench(swiglu, gate, up)
    gpu_bench.extra_info["gb_per_s"] = 3 * gate.nbytes / timing.median_us / 1e3


@pytest.mark.perf(max_rel_std=0.05)
def test_swiglu_is_one_kernel_instead_of_two(gpu_bench: GpuBench, full_size: bool) -> None:
    gate, up = inputs((4096, 11008) if full_size else (7, 781), gpu_bench.device)
    eager = gpu_bench(torch_swiglu, gate, up)
    fused = gpu_bench(swiglu, gate, up)
    assert fused.median_us < eager.median_us
    assert (fused.launches, eager.launches) == (1, 2)
