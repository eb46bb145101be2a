"""A second placement on a GPU: memory lies elsewhere, a slower kernel fails all the same."""

from collections import Counter

import pytest
import torch

from pytest_gpubench import GpuBench, LimitBroken

NUMBERS = 2**27


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


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

    with pytest.raises(LimitBroken, match="more is slower than doubled"):
        gpu_bench.compare(more, doubled, (x,))
    at_home = {place for (home, place), calls in places.items() if home and calls > 5}
    elsewhere = {place for (home, place), calls in places.items() if not home and calls > 5}
    assert len(at_home) >= 2
    assert len(elsewhere) >= 2
    assert not at_home & elsewhere, "neither outputs nor temporaries lie where they lay"
