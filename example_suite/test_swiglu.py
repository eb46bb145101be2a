"""Limit what a call does instead of how long it takes: exact, with no noise. And judge rounding by float64."""

import pytest
import torch

from example_suite import ON_GPU
from example_suite.kernels.swiglu import swiglu
from pytest_gpubench import GpuBench

SHAPE = (4096, 11008) if ON_GPU else (7, 781)


def torch_swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate) * up


@pytest.fixture
def gate_and_up(gpu_bench: GpuBench) -> torch.Tensor:
    return torch.randn(2, *SHAPE, dtype=torch.bfloat16, device=gpu_bench.device)


@pytest.mark.perf(max_kernels=1, forbid=("memcpy", "memset", "sync"), max_memory="100MiB", deterministic=True)
def test_swiglu_is_one_kernel_that_takes_the_memory_of_its_output(
    gpu_bench: GpuBench, gate_and_up: torch.Tensor
) -> None:
    gpu_bench(swiglu, *gate_and_up)


# a compiler that begins to spill, or lets fewer blocks on a multiprocessor, is seen without a clock
@pytest.mark.perf(max_local_bytes=0, max_registers={"*swiglu*": 64}, min_blocks_per_sm=2)
def test_swiglu_leaves_room_for_other_blocks(gpu_bench: GpuBench, gate_and_up: torch.Tensor) -> None:
    gpu_bench(swiglu, *gate_and_up)


# torch rounds silu(gate) to bfloat16 before it multiplies, so the two differ, and float64 says who is nearer
@pytest.mark.perf(min_speedup=0.8)
def test_swiglu_beats_torch(gpu_bench: GpuBench, gate_and_up: torch.Tensor) -> None:
    gpu_bench.compare(swiglu, torch_swiglu, args=tuple(gate_and_up), golden="float64")
