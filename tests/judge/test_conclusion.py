"""Verdicts on a claimed and an attested time."""

import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.judge.conclusion import (
    fail_on_cpu,
    is_below,
    judge_speedup,
    judge_time,
    refuse_limits,
    time_of,
    worst_of,
)
from pytest_gpubench.judge.reps import less_the_same_tax
from pytest_gpubench.judge.trial import smaller_of
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.speedup import SpeedupEstimate
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.verdict.limits import Limits

PASS, FAIL, INCONCLUSIVE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("claimed", "attested", "outcome"),
    [
        (PASS, Interval(1.5, 1.7), PASS),
        (PASS, Interval(1.49, 1.7), INCONCLUSIVE),
        (PASS, Interval(0.9, 1.1), INCONCLUSIVE),
        (PASS, None, INCONCLUSIVE),
        (INCONCLUSIVE, Interval(2.0, 3.0), INCONCLUSIVE),
        (FAIL, Interval(2.0, 3.0), FAIL),
    ],
)
def test_a_speedup_passes_if_both_do(claimed: Outcome, attested: Interval | None, outcome: Outcome) -> None:
    assert judge_speedup(claimed, attested, 1.5, "words").outcome is outcome


@pytest.mark.parametrize(("high", "outcome"), [(0.49, FAIL), (0.51, INCONCLUSIVE), (0.9, INCONCLUSIVE)])
def test_a_speedup_on_a_cpu_fails_if_it_is_half_of_the_limit(high: float, outcome: Outcome) -> None:
    """Two processes that do the same may differ by a factor of two there."""
    assert fail_on_cpu(Interval(0.3, high), 1.0) is outcome


@pytest.mark.parametrize(
    ("claimed_us", "attested_us", "outcome"),
    [(10.0, 10.0, PASS), (10.0, 10.1, INCONCLUSIVE), (10.1, 10.1, FAIL), (10.1, 9.0, FAIL)],
)
def test_a_time_passes_if_both_do(claimed_us: float, attested_us: float, outcome: Outcome) -> None:
    claimed, attested = time_of([claimed_us] * 40), time_of([attested_us] * 40)
    assert judge_time(claimed, attested, 10.0, "H200", 0.001).outcome is outcome


def test_a_limit_for_another_gpu_is_no_pass() -> None:
    time = time_of([1.0] * 40)
    assert judge_time(time, time, {"A100": 10.0}, "H200", 0.001).outcome is INCONCLUSIVE


@pytest.mark.parametrize(
    ("claimed_us", "tax", "found_us"),
    [(102.0, 0.0, 100.0), (100.0, 0.04, 104 / 1.02), (100.0, 0.06, 100.0), (90.0, 0.0, 90.0)],
)
def test_like_calls_pay_the_same_tax(claimed_us: float, tax: float, found_us: float) -> None:
    """The reference takes 102 us as traced, 2 % of it tracing; a candidate is like it within 3 %."""
    found = less_the_same_tax([claimed_us, claimed_us], tax, [100.0, 100.0, 100.0], 0.02)
    assert found == pytest.approx([found_us] * 2)


@pytest.mark.parametrize(
    ("samples_us", "below"),
    [([0.7] * 8, True), ([0.8] * 8, False), ([0.3] * 6 + [0.9] * 6, False), ([0.7], True), ([0.8], False)],
)
def test_a_time_is_below_the_floor_by_its_whole_interval(samples_us: list[float], below: bool) -> None:
    """One sample has no interval, and counts itself."""
    assert is_below(time_of(samples_us), 0.8) is below


@pytest.mark.parametrize(
    ("claimed", "attested", "smaller"),
    [
        ((2.0, Interval(1.9, 2.1)), (1.0, Interval(0.5, 3.0)), (1.0, Interval(0.5, 2.1))),
        ((40.0, Interval(39.0, 41.0)), (1.0, Interval(0.9, 1.1)), (1.0, Interval(0.9, 1.1))),
        ((1.0, Interval(0.9, 1.1)), (40.0, Interval(39.0, 41.0)), (1.0, Interval(0.9, 1.1))),
        ((2.0, None), (1.0, Interval(0.9, 1.1)), (1.0, None)),
    ],
)
def test_the_ratio_is_never_above_the_attested_one(
    claimed: tuple[float, Interval | None],
    attested: tuple[float, Interval | None],
    smaller: tuple[float, Interval | None],
) -> None:
    assert smaller_of(*(SpeedupEstimate(*each, 8, 0.001) for each in (claimed, attested))) == smaller


@pytest.mark.parametrize("limits", [Limits(max_kernels=1), Limits(min_speedup={"a": 1.0})])
def test_limits_that_cannot_be_judged_are_refused(limits: Limits) -> None:
    with pytest.raises(BadRequest):
        refuse_limits(limits)


def test_the_worst_verdict_counts() -> None:
    """A FAIL before an INCONCLUSIVE before a PASS; without limits a right candidate passes."""
    verdicts = [judge_speedup(each, Interval(2.0, 3.0), 1.5, each.value) for each in (PASS, INCONCLUSIVE, FAIL)]
    assert [worst_of(verdicts[:number], "words")[0] for number in range(4)] == ["pass", "pass", "inconclusive", "fail"]
    assert worst_of([], "words") == ("pass", "words")
