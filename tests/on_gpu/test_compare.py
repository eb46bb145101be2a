"""Comparisons on the GPU: a kernel is itself, and 10 % more work is told in few calls."""

import pytest
import torch

from pytest_gpubench import GpuBench, LimitBroken
from tests.on_gpu.doubling import torch_double


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
