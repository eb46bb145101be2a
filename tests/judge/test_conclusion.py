"""Verdicts on the time of a case."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.judge.conclusion import concluded, on_time, timing_of, worst_of
from pytest_gpubench.judge.judgement import CaseJudgement, time_of
from pytest_gpubench.judge.trial import Rules
from pytest_gpubench.results.model import DeviceFacts, Outcome, Verdict
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.verdict.limits import Limits

H200 = DeviceFacts(type="cuda", name="NVIDIA H200", host="")
CASE = CaseJudgement(
    case="",
    status="pass",
    reason="right",
    ratio=2.0,
    interval=Interval(1.9, 2.1),
    reference_us=time_of([20.0] * 40),
    candidate_us=time_of([10.0] * 40),
)


@pytest.mark.parametrize(
    ("limits", "status", "words"),
    [
        (Limits(min_speedup=1.9), "pass", "candidate is faster than the reference: 2.000x [1.900, 2.100]"),
        (Limits(min_speedup=1.91), "inconclusive", "too close to tell against the reference"),
        (Limits(min_speedup=2.1), "inconclusive", "too close to tell"),
        (Limits(min_speedup=2.11), "fail", "not fast enough against the reference"),
        (Limits(max_time_us=10), "pass", "median 10.00 us"),
        (Limits(max_time_us=9.9), "fail", "candidate is too slow: median 10.00 us"),
        (Limits(max_time_us={"A100": 99}), "inconclusive", "no max_time_us for NVIDIA H200"),
        (Limits(min_speedup=1.0, max_time_us=9.9), "fail", "candidate is too slow"),
        (Limits(), "pass", "2.000x [1.900, 2.100] as fast as the reference"),
    ],
)
def test_limits_are_judged_by_the_times_of_both_arms(limits: Limits, status: str, words: str) -> None:
    found = concluded(CASE, limits, H200, 0.001)
    assert (found.status, len(found.verdicts)) == (status, len(limits.asked))
    assert words in found.reason
    assert found.score == (1.9 if status == "pass" else 0)


@pytest.mark.parametrize(("reps", "outcome"), [(11, Outcome.INCONCLUSIVE), (12, Outcome.PASS)])
def test_the_first_look_decides_a_limit_on_the_time(reps: int, outcome: Outcome) -> None:
    """At half of alpha, 2 ** -11, twelve reps have an interval."""
    [found] = on_time(timing_of([10.0] * reps, H200), Limits(max_time_us=10), 0.001)
    assert found.outcome is outcome


@pytest.mark.parametrize(
    ("reps", "look"),
    [(2, 1), (12, 1), (14, 2), (24, 2), (26, 3), (48, 3), (50, 4), (96, 4), (98, 5), (384, 6), (386, 7), (768, 7)],
)
def test_each_look_at_the_time_spends_its_part_of_alpha(reps: int, look: int) -> None:
    """A half, a sixth, a twelfth: of any number of looks the sum is less than alpha."""
    seeing: Any = SimpleNamespace(judge=lambda _stage, seen: (seen,))
    [seen] = on_time(timing_of([10.0] * reps, H200), seeing, 0.001)
    found: Any = seen
    assert (found.alpha, found.spent) == (0.001, pytest.approx(0.001 / (look * (look + 1))))


@pytest.mark.parametrize(
    ("low", "high", "status"),
    [(0.3, 0.49, "fail"), (0.3, 0.51, "inconclusive"), (1.9, 2.5, "inconclusive"), (2.1, 2.5, "pass")],
)
def test_a_speedup_on_a_cpu_is_judged_beyond_a_factor_of_two(low: float, high: float, status: str) -> None:
    """Two processes that do the same may differ by so much there."""
    case = msgspec.structs.replace(CASE, interval=Interval(low, high))
    assert concluded(case, Limits(min_speedup=1), DeviceFacts(type="cpu", name="", host=""), 0.001).status == status


@pytest.mark.parametrize("limits", [Limits(max_kernels=1), Limits(min_speedup={"a": 1.0})])
def test_limits_that_cannot_be_judged_are_refused(limits: Limits) -> None:
    with pytest.raises(BadRequest):
        Rules(limits)


def test_the_worst_verdict_counts() -> None:
    """A FAIL before what is not decided before a PASS; without limits a right candidate passes."""
    outcomes = (Outcome.PASS, Outcome.NOT_JUDGED, Outcome.FAIL)
    verdicts = [Verdict(kind="", asked="", outcome=each, sentence=each.value) for each in outcomes]
    found: list[Any] = [worst_of(verdicts[:number], "words")[0] for number in range(4)]
    assert found == ["pass", "pass", "inconclusive", "fail"]
    assert worst_of([], "words") == ("pass", "words")
