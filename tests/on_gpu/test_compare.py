"""Comparisons on the GPU: right first, then faster, and the tricks that are seen through."""

import pytest
import torch

from pytest_gpubench import GpuBench, LimitBroken
from tests.on_gpu.doubling import double, torch_double


@pytest.fixture
def x(gpu_bench: GpuBench) -> torch.Tensor:
    return torch.randn(2**22, device=gpu_bench.device)


@pytest.mark.perf(min_speedup=0.9)
def test_a_sound_kernel_passes(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    comparison = gpu_bench.compare(double, torch_double, (x,))
    assert comparison.speedup > 0.9
    assert comparison.differences == ("out PASS max_diff=0",)


def test_a_kernel_is_not_told_from_itself_by_where_its_outputs_lie(gpu_bench: GpuBench) -> None:
    """With memory of its own for each function it was in 40 of 40 comparisons of this shape."""
    x = torch.randn(1024, 1024, device=gpu_bench.device)
    intervals = [gpu_bench.compare({"same": torch_double}, torch_double, (x,), reps=40).interval for _ in range(20)]
    assert all(each and each.low <= 1 <= each.high for each in intervals)


@pytest.mark.perf(min_speedup=1.0)
def test_ten_percent_more_work_is_told_in_few_calls(gpu_bench: GpuBench) -> None:
    x = torch.randn(9011, 4096, device=gpu_bench.device)
    with pytest.raises(LimitBroken, match=r"is slower than few: .*, (6|9|12) quads,"):
        gpu_bench.compare({"more": lambda: (x.exp(), 0)[1]}, lambda: (x[:8192].exp(), 0)[1], names=("few",))


@pytest.mark.perf(min_speedup=1.0)
def test_work_on_a_side_stream_is_counted(gpu_bench: GpuBench, x: torch.Tensor, side_stream: torch.cuda.Stream) -> None:
    """An event pair on the current stream would see next to nothing."""

    def hidden(x: torch.Tensor) -> torch.Tensor:
        with torch.cuda.stream(side_stream):
            for _ in range(3):
                out = x * 2
        return out

    with pytest.raises(LimitBroken):
        gpu_bench.compare(hidden, torch_double, (x,))
