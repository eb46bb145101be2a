"""A sum over two GPUs: a process for each, the slower one counts. Skipped where there are fewer."""

from collections.abc import Callable

import pytest
import torch

from example_suite.kernels.all_reduce import all_reduce, all_reduce_in_two_steps
from pytest_gpubench import GpuBench, Rank

ELEMENTS = 32 * 2**20
BYTES = 4 * ELEMENTS


def make_input(rank: Rank) -> tuple[torch.Tensor]:
    return (torch.full((ELEMENTS,), float(rank.index + 1), device=rank.device),)


def check_sum(rank: Rank, out: torch.Tensor) -> None:
    expected = sum(range(1, rank.world_size + 1))
    assert bool((out == expected).all()), f"found {out.min()} to {out.max()}, expected {expected}"


@pytest.mark.perf(gpus=2, max_rel_std=0.1)
@pytest.mark.parametrize("function", [all_reduce, all_reduce_in_two_steps])
def test_a_sum_over_two_gpus_is_right_and_steady(gpu_bench: GpuBench, function: Callable[..., object]) -> None:
    found = gpu_bench.ranks(
        function, world_size=2, setup=make_input, check=check_sum, collective="all_reduce", message_bytes=BYTES
    )
    if found.timing.measured:
        gpu_bench.extra_info["bus_gbps"] = found.bus_gbps
        gpu_bench.extra_info["skew_us"] = found.skew_us
        assert found.skew_us < 0.1 * found.timing.median_us
