"""A kernel takes as long after itself as after others: its instructions are in no cache."""

import pytest
import torch

from pytest_gpubench import GpuBench
from pytest_gpubench.settings.cache import CacheName

OTHERS = (
    "sin",
    "exp",
    "log",
    "sqrt",
    "tanh",
    "erf",
    "lgamma",
    "digamma",
    "sort",
    "std",
    "argmax",
    "logsumexp",
    "cumsum",
)


@pytest.mark.parametrize("cache", ["cold", "dirty"])
def test_a_time_is_the_same_after_other_code(gpu_bench: GpuBench, cache: CacheName) -> None:
    """Was 2.1 % longer after other kernels than after its own, on an H200."""
    x, small = torch.randn(64, 512, 512, device="cuda"), torch.rand(64, 64, device="cuda")

    def maximum() -> torch.Tensor:
        return torch.max(x, 1)[0]

    def itself() -> None:
        maximum()

    def others() -> None:
        for name in OTHERS:
            for given in (small, small.double()):
                getattr(torch, name)(given, *([1] if name in ("logsumexp", "cumsum") else []))

    after_itself, after_others = (
        gpu_bench.measure(maximum, setup=setup, cache=cache, reps=60).median_us for setup in (itself, others)
    )
    assert after_others == pytest.approx(after_itself, rel=0.01)
