"""Measure a collective on two GPUs: a process for each, and the slower one counts. Skipped where there are fewer."""

import pytest
import torch

from example_suite.kernels.all_reduce import all_reduce
from pytest_gpubench import GpuBench, Rank

ELEMENTS = 32 * 2**20


def make_input(rank: Rank) -> tuple[torch.Tensor]:
    return (torch.full((ELEMENTS,), float(rank.index + 1), device=rank.device),)


def check_sum(rank: Rank, out: torch.Tensor) -> None:
    expected = sum(range(1, rank.world_size + 1))
    assert bool((out == expected).all()), f"found {out.min()} to {out.max()}, expected {expected}"


@pytest.mark.perf(gpus=2, max_rel_std=0.5)
def test_a_sum_over_two_gpus(gpu_bench: GpuBench) -> None:
    found = gpu_bench.ranks(
        all_reduce, world_size=2, setup=make_input, check=check_sum, collective="all_reduce", message_bytes=4 * ELEMENTS
    )
    gpu_bench.extra_info["bus_gbps"] = found.bus_gbps
    gpu_bench.extra_info["skew_us"] = found.skew_us
