"""Row softmax in one pass over memory, against torch, eager and compiled. The limits hold on an H200."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings

from example_suite.kernels.softmax import softmax
from example_suite.sizes import BUDGET_S, EXAMPLES, row_shapes
from pytest_gpubench import GpuBench
from pytest_gpubench.strategies import tensor


def torch_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


@pytest.fixture
def compiled_softmax(needs_gpu: None) -> Callable[[torch.Tensor], torch.Tensor]:
    torch.compiler.reset()  # or what an earlier test compiled decides what this one gets
    return torch.compile(torch_softmax)


@pytest.mark.parametrize("shape", [(16, 1024), (5, 781), (3, 17), (1, 4099), (4, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matches_torch(device: torch.device, shape: tuple[int, int], dtype: torch.dtype) -> None:
    x = 5 * torch.randn(shape, dtype=dtype, device=device)
    torch.testing.assert_close(softmax(x), torch_softmax(x))


def test_survives_large_values(device: torch.device) -> None:
    x = torch.tensor([[1e4, -1e4, 1e4], [float("-inf"), 0.0, 0.0]], device=device)
    torch.testing.assert_close(softmax(x), torch_softmax(x))


@pytest.mark.parametrize("level", [0.0, 3e38, -3e38])
def test_equal_values_share_alike(device: torch.device, level: float) -> None:
    shares = softmax(torch.full((2, 781), level, device=device))
    torch.testing.assert_close(shares, torch.full_like(shares, 1 / 781))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, which computes for Triton's interpreter
def test_a_row_of_minus_infinity_has_no_softmax(device: torch.device) -> None:
    x = torch.full((2, 17), float("-inf"), device=device)
    x[1] = 0.0
    torch.testing.assert_close(softmax(x), torch_softmax(x), equal_nan=True)


@pytest.mark.perf(max_rel_std=0.05, max_time_us={"H200": 120})
def test_softmax_is_fast_and_steady(gpu_bench: GpuBench, full_size: bool) -> None:
    x = torch.randn((4096, 4096) if full_size else (16, 781), device=gpu_bench.device)
    gpu_bench(torch_softmax, x)
    timing = gpu_bench(softmax, x)
    if timing.measured:
        gpu_bench.extra_info["gb_per_s"] = 2 * x.nbytes / timing.median_us / 1e3


# 30.2 us against 54.8; a share is about 1 / 4096, of which the usual atol of 1e-5 would be 4 %
@pytest.mark.perf(min_speedup=1.7)
def test_softmax_beats_torch(gpu_bench: GpuBench, full_size: bool) -> None:
    x = torch.randn((4096, 4096) if full_size else (16, 781), device=gpu_bench.device)
    gpu_bench.compare(softmax, torch_softmax, args=(x,), rtol=1e-5, atol=0)


@pytest.mark.filterwarnings("ignore")  # what torch warns of while it compiles is not this suite's subject
@pytest.mark.perf(min_speedup={"triton": 1.7, "compiled": 1.1})
def test_both_softmaxes_beat_eager(
    gpu_bench: GpuBench, compiled_softmax: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    x = torch.randn(4096, 4096, device=gpu_bench.device)
    candidates = {"triton": softmax, "compiled": compiled_softmax}
    comparison = gpu_bench.compare(candidates, torch_softmax, args=(x,), rtol=1e-5, atol=0)
    assert comparison["triton"].timing.launches == 1


@pytest.mark.perf(min_speedup=0.5, given_budget=BUDGET_S)
@given(shape=row_shapes("float32", narrowest=512, widest=8192))
@settings(deadline=None, max_examples=EXAMPLES)
def test_softmax_is_slow_at_no_shape(gpu_bench: GpuBench, shape: tuple[int, int]) -> None:
    gpu_bench.compare(softmax, torch_softmax, args=(tensor(shape),), rtol=1e-5, atol=0)
