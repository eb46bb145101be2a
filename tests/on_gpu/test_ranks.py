"""Collectives over two GPUs of this host: one process to each, in lockstep, no process left."""

import os
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from pytest_gpubench import MeasurementError, Rank, Ranks
from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.timing.ranks import Job, measure_ranks
from tests.results.measured import present
from tests.timing.ranks.test_worker import children

HOST_BOUND = "host-bound"
PLAN = Plan(cache="cold", reps=50, warmup=None, precision=0.02, max_time_s=20)
SMALL, LARGE = 2**10, 64 * 2**20
pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() < 2, reason="needs 2 GPUs: nothing here is proved by this run"
)


def small(rank: Rank) -> tuple[torch.Tensor]:
    return (torch.full((SMALL,), rank.index + 1.0, device=rank.device),)


def large(rank: Rank) -> tuple[torch.Tensor]:
    return (torch.full((LARGE,), rank.index + 1.0, device=rank.device),)


def reduce_all(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x


def is_sum(rank: Rank, out: torch.Tensor) -> None:
    assert bool((out == 3).all())
    assert out.device.index == torch.cuda.current_device() == rank.device.index
    assert os.environ["NCCL_NVLS_ENABLE"] == "0"


def second_works_first(x: torch.Tensor) -> torch.Tensor:
    if dist.get_rank() == 1:
        torch.cuda._sleep(2_000_000)  # type: ignore[no-untyped-call]
    dist.all_reduce(x)
    return x


def second_leaves_out_one(x: torch.Tensor) -> torch.Tensor:
    if dist.get_rank() == 0:
        dist.all_reduce(x)
    torch.cuda.synchronize()
    return x


@pytest.fixture(autouse=True)
def no_orphans() -> Any:
    before = children()
    yield
    assert children() <= before


def measured(job: Job, **others: Any) -> Ranks:
    return present(measure_ranks(replace(job, **others), find_device("cuda"), 2))


def test_an_all_reduce_of_256_mib() -> None:
    found = measured(Job(reduce_all, PLAN, large, is_sum, collective="all_reduce", message_bytes=4 * LARGE))
    print(found)
    assert found.timing.reps == 50
    assert found.timing.timer == "profiler"
    assert found.timing.launches == 1
    assert "nccl" in found.timing.kernels[0].name.lower()
    assert HOST_BOUND not in found.timing.flags
    assert found.skew_us < 0.1 * found.timing.median_us
    assert found.bus_gbps is not None
    assert 1 < found.bus_gbps < 2000
    assert found.timing.gbps == found.bus_gbps == found.algorithm_gbps  # of two ranks


def test_a_short_one_is_not_the_hosts_skew() -> None:
    found = measured(Job(reduce_all, PLAN, small, is_sum))
    print(found)
    assert found.skew_us < found.timing.median_us


def test_waiting_for_a_peer_that_has_more_to_do_is_the_calls_own() -> None:
    found = measured(Job(second_works_first, PLAN, small))
    print(found)
    alone = measured(Job(reduce_all, PLAN, small))
    assert min(found.medians_us) > alone.timing.median_us + 500  # the first spins as long as the second sleeps


def test_a_collective_that_one_rank_leaves_out_is_ended() -> None:
    with pytest.raises(MeasurementError, match="made no progress within the 30 s") as caught:
        measured(Job(second_leaves_out_one, PLAN, small), timeout_s=30.0)
    assert any("in second_leaves_out_one" in note for note in caught.value.__notes__)  # type: ignore[attr-defined]
    measured(Job(reduce_all, replace(PLAN, reps=5), small))  # the GPUs are free again
