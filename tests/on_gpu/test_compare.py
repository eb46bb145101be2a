"""Comparisons on the GPU: a kernel is itself, and more work is told in few calls and wherever memory lies."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from pytest_gpubench import GpuBench, LimitBroken
from tests.on_gpu.doubling import torch_double
from tests.on_gpu.hosts import RealHost

NUMBERS = 2**27


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
def test_a_little_more_work_fails_at_both_placements(gpu_bench: GpuBench) -> None:
    x = torch.rand(NUMBERS, device=gpu_bench.device)
    places: Counter[tuple[bool, int]] = Counter()

    def more(x_: torch.Tensor) -> torch.Tensor:
        small, out = torch.zeros(16, device=x.device), x_ * 2
        for tensor in (small, out):
            places[x_.data_ptr() == x.data_ptr(), tensor.data_ptr()] += 1
        torch.mul(x_[: NUMBERS // 50], 2, out=out[: NUMBERS // 50])
        return out

    with pytest.raises(LimitBroken, match="more is slower than torch_double"):
        gpu_bench.compare(more, torch_double, (x,))
    at_home = {place for (home, place), calls in places.items() if home and calls > 5}
    elsewhere = {place for (home, place), calls in places.items() if not home and calls > 5}
    assert len(at_home) >= 2
    assert len(elsewhere) >= 2
    assert not at_home & elsewhere, "neither outputs nor temporaries lie where they lay"


def test_the_first_attention_of_a_process_changes_no_switch(tmp_path: Path) -> None:
    """With it torch orders its kernels of attention for the GPU, and keeps that order."""
    host = RealHost(tmp_path)
    host.write(
        "import torch\nfrom torch.nn.functional import scaled_dot_product_attention as attention\n\n"
        "def test_it(gpu_bench):\n"
        "    q, k, v = torch.randn(3, 2, 4, 256, 64, device=gpu_bench.device, dtype=torch.bfloat16)\n"
        "    gpu_bench.compare({'it': lambda *args: attention(*args)}, attention, (q, k, v), reps=12)\n"
    )
    status, output = host.run()
    assert status == 0, output
