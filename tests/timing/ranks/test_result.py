"""The result of several ranks: the slowest counts in each rep; bandwidth as nccl-tests count it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_gpubench import MeasurementError, NotMeasured, Ranks, Timing
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.timing.ranks import Job, measure_ranks
from tests.results.measured import kernel
from tests.timing.ranks.fake_ranks import PLAN, Start, nothing, timing

Combine = Callable[..., Ranks]


@pytest.fixture
def combine(ranks_saying: Start) -> Combine:
    """Return what comes of ranks that took these timings."""

    def measured(timings: Sequence[Timing], collective: Any = None, message_bytes: int | None = None) -> Ranks:
        ranks_saying(*([("done", each)] for each in timings))
        job = Job(nothing, PLAN, collective=collective, message_bytes=message_bytes)
        found = measure_ranks(job, cpu_device(), len(timings))
        assert found is not None
        return found

    return measured


def test_in_each_rep_the_slowest_rank_counts(combine: Combine) -> None:
    first = timing(10, 20, 30, busy_us=(1, 2, 3), span_us=(4, 5, 6), sm_clock_mhz=(7, 8, 9))
    second = timing(11, 19, 35, busy_us=(10, 20, 30), span_us=(40, 50, 60), sm_clock_mhz=(70, 80, 90))
    found = combine([first, second])
    assert list(found.timing.samples_us) == [11, 20, 35]
    assert list(found.timing.busy_us) == [10, 2, 30]
    assert list(found.timing.span_us) == [40, 5, 60]
    assert list(found.timing.sm_clock_mhz) == [70, 8, 90]
    assert (found.medians_us, found.skew_us, found.ranks) == ((20, 19), 1, (first, second))
    assert (found.bus_gbps, found.algorithm_gbps) == (None, None)


def test_what_is_not_told_by_rep_is_of_the_slowest_rank_and_warnings_are_of_all(combine: Combine) -> None:
    """What one rank could not read is not made up."""
    slow = (kernel("slow", 1, 9),)
    first = timing(10, 10, flags=("host-bound", "overlap"), throttle_reasons=("power",), elapsed_s=2.0, discarded=3)
    second = timing(20, 20, kernels=slow, flags=("overlap",), throttle_reasons=("heat",), elapsed_s=1.0, discarded=3)
    found = combine([replace(first, sm_clock_mhz=(5, 5)), second]).timing
    assert (found.kernels, found.sm_clock_mhz) == (slow, ())
    assert found.flags == ("host-bound", "overlap")
    assert found.throttle_reasons == ("heat", "power")
    assert (found.discarded, found.elapsed_s) == (3, 2.0)


@pytest.mark.parametrize("samples", [((1, 2), (1,)), ((), ())])
def test_ranks_that_did_not_take_the_same_reps_have_no_number(
    combine: Combine, samples: tuple[tuple[float, ...], ...]
) -> None:
    with pytest.raises(MeasurementError, match="did not all take the same reps"):
        combine([timing(*each) for each in samples])


def test_what_was_not_measured_has_no_skew() -> None:
    found = Ranks(timing(unmeasured="switched off"))
    assert str(found) == "f: not measured (switched off)"
    with pytest.raises(NotMeasured, match="switched off"):
        _ = found.skew_us


def test_bandwidths_are_of_the_slowest_ranks_median(combine: Combine) -> None:
    found = combine([timing(*[100.0] * 4)] * 3 + [timing(*[200.0] * 4)], "all_reduce", 2_000_000)
    assert found.timing.moved_bytes == 3_000_000
    assert found.bus_gbps == found.timing.gbps == 15.0
    assert found.algorithm_gbps == 10.0
    assert "by rank 100.00, 100.00, 100.00, 200.00 us, skew 100.00 us, 15.0 GB/s on the bus" in str(found)


@pytest.mark.parametrize(
    ("collective", "of_two", "of_eight"),
    [
        ("all_reduce", 1000, 1750),
        *((each, 500, 875) for each in ("reduce_scatter", "all_gather", "all_to_all")),
        *((each, 1000, 1000) for each in ("broadcast", "reduce")),
    ],
)
def test_bus_bytes(combine: Combine, collective: Any, of_two: int, of_eight: int) -> None:
    for ranks, moved_bytes in ((2, of_two), (8, of_eight)):
        assert combine([timing(1.0)] * ranks, collective, 1000).timing.moved_bytes == moved_bytes
