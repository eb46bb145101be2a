"""A second placement on a GPU: memory lies elsewhere, a slower kernel fails all the same."""

from collections import Counter

import pytest
import torch

from pytest_gpubench import GpuBench, LimitBroken

NUMBERS = 2**26


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.perf(min_speedup=1.0)
def test_a_little_more_work_fails_at_both_placements(gpu_bench: GpuBench) -> None:
    x = torch.rand(NUMBERS, device=gpu_bench.device)
    places: Counter[tuple[bool, int]] = Counter()

    def more(x_: torch.Tensor) -> torch.Tensor:
        out = x_ * 2
        places[x_.data_ptr() == x.data_ptr(), out.data_ptr()] += 1
        torch.mul(x_[: NUMBERS // 50], 2, out=out[: NUMBERS // 50])
        return out

    with pytest.raises(LimitBroken, match="more is slower than doubled"):
        gpu_bench.compare(more, doubled, (x,))
    at_home, elsewhere = (
        {place for (home, place), calls in places.items() if home is at and calls > 5} for at in (True, False)
    )
    assert at_home
    assert elsewhere
    assert not at_home & elsewhere


@pytest.mark.perf(max_time_us=1000)
def test_what_passes_is_measured_once(gpu_bench: GpuBench) -> None:
    x = torch.rand(NUMBERS, device=gpu_bench.device)
    seen: set[int] = set()

    def noting(x: torch.Tensor) -> torch.Tensor:
        seen.add(x.data_ptr())
        return x * 2

    gpu_bench(noting, x)
    assert seen == {x.data_ptr()}
