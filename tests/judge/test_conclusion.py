"""Verdicts on the time of a case."""

import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.judge.conclusion import (
    is_below,
    judge_speedup,
    judge_time,
    on_cpu,
    refuse_limits,
    time_of,
    untimed,
    worst_of,
)
from pytest_gpubench.judge.judgement import CaseJudgement
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.verdict.limits import Limits

PASS, FAIL, INCONCLUSIVE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(0.3, 0.49, FAIL), (0.3, 0.51, INCONCLUSIVE), (1.9, 2.5, INCONCLUSIVE), (2.1, 2.5, PASS)],
)
def test_a_speedup_on_a_cpu_is_judged_beyond_a_factor_of_two(low: float, high: float, outcome: Outcome) -> None:
    """Two processes that do the same may differ by so much there."""
    assert on_cpu(Interval(low, high), 1.0) is outcome


@pytest.mark.parametrize(("time_us", "outcome"), [(10.0, PASS), (10.1, FAIL)])
def test_a_time_passes_by_its_median(time_us: float, outcome: Outcome) -> None:
    assert judge_time(time_of([time_us] * 40), 10.0, "H200", 0.001).outcome is outcome


def test_a_limit_for_another_gpu_is_no_pass() -> None:
    time = time_of([1.0] * 40)
    assert judge_time(time, {"A100": 10.0}, "H200", 0.001).outcome is INCONCLUSIVE


@pytest.mark.parametrize(
    ("samples_us", "below"),
    [([0.7] * 8, True), ([0.8] * 8, False), ([0.3] * 6 + [0.9] * 6, False), ([0.7], True), ([0.8], False)],
)
def test_a_time_is_below_the_floor_by_its_whole_interval(samples_us: list[float], below: bool) -> None:
    """One sample has no interval, and counts itself."""
    assert is_below(time_of(samples_us), 0.8) is below


def test_a_call_that_nobody_times_is_inconclusive() -> None:
    """The comparison is kept."""
    found = untimed(CaseJudgement(case="a", status="pass", reason="right", compared=5), "it waits")
    reason = (
        "not timed: its call is not replayed (it waits), and without trust_claims = True its process is not believed"
    )
    assert (found.status, found.reason, found.not_replayed, found.compared) == ("inconclusive", reason, "it waits", 5)
    assert found.score == 0


@pytest.mark.parametrize("limits", [Limits(max_kernels=1), Limits(min_speedup={"a": 1.0})])
def test_limits_that_cannot_be_judged_are_refused(limits: Limits) -> None:
    with pytest.raises(BadRequest):
        refuse_limits(limits)


def test_the_worst_verdict_counts() -> None:
    """A FAIL before an INCONCLUSIVE before a PASS; without limits a right candidate passes."""
    verdicts = [judge_speedup(each, 1.5, each.value) for each in (PASS, INCONCLUSIVE, FAIL)]
    assert [worst_of(verdicts[:number], "words")[0] for number in range(4)] == ["pass", "pass", "inconclusive", "fail"]
    assert worst_of([], "words") == ("pass", "words")
