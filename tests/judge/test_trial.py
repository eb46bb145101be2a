"""The trial of a candidate: checks of its times, without a process."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_gpubench import InvalidResult
from pytest_gpubench.judge.attestation import Before
from pytest_gpubench.judge.conclusion import time_of
from pytest_gpubench.judge.judgement import Stopwatch
from pytest_gpubench.judge.process import Ended
from pytest_gpubench.judge.trial import Rules, Trial
from pytest_gpubench.stats.speedup import SpeedupEstimate
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.verdict.decision import at_least
from pytest_gpubench.verdict.limits import Limits


def trial_of(claimed_us: float, attested_us: float, reference_us: float, trust_claims: bool = True) -> Trial:
    """Return a trial that has found these times."""
    trial: Any = Trial.__new__(Trial)
    trial.device = SimpleNamespace(type="cuda", cache_bytes=400, facts=SimpleNamespace(name="H200"))
    claimed, reference = time_of([claimed_us] * 8), time_of([reference_us] * 8)
    trial.claimed = SimpleNamespace(candidate_us=claimed, reference_us=reference)
    trial.attested_us = time_of([attested_us] * 8)
    trial.ready = SimpleNamespace(spec=SimpleNamespace(trust_claims=trust_claims))
    trial.found, trial.timed_by, trial.not_replayed = {}, "candidate", "it waits"
    return trial  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("trust_claims", "limits", "attested", "status", "words"),
    [
        (True, Limits(min_speedup=1.5), 1.6, "pass", "2.000x"),
        (True, Limits(min_speedup=1.5), 1.4, "inconclusive", "claimed, but not attested: 2.000x"),
        (True, Limits(), 1.4, "pass", "2.000x"),
        (
            False,
            Limits(min_speedup=1.5),
            1.6,
            "inconclusive",
            "not replayed (it waits), and the spec does",
        ),
        (False, Limits(max_time_us=1e9), 1.6, "inconclusive", "trust_claims = True: a call takes"),
        (False, Limits(min_speedup=2.5), 2.6, "fail", "2.000x"),
        (False, Limits(), 1.6, "inconclusive", "trust_claims = True: 2.000x"),
    ],
)
def test_what_the_candidates_process_timed_passes_only_where_the_spec_trusts_it(
    trust_claims: bool, limits: Limits, attested: float, status: str, words: str
) -> None:
    """The verdicts say so too, as a test's outcome is theirs."""
    trial = trial_of(10.0, 10.0, 20.0, trust_claims)
    claimed = SpeedupEstimate(2.0, Interval(2.0, 2.0), 8, 0.001)
    trial.claimed.speedup = claimed  # type: ignore[misc]
    trial.claimed.outcome = at_least(claimed.interval, limits.min_speedup or 0)  # type: ignore[misc]
    trial.attested, trial.rules = SpeedupEstimate(attested, Interval(attested, attested), 8, 0.001), Rules(limits, 0.05)
    found, reason = trial._conclude()
    assert (found, words in reason) == (status, True), reason
    assert {each.outcome.value for each in trial.found["verdicts"]} <= {status}


@pytest.mark.parametrize(
    ("limits", "status", "words"),
    [
        (Limits(min_speedup=1.5), "pass", "2.000x [2.000, 2.000] as fast as the reference, wanted at least 1.5x"),
        (Limits(min_speedup=2.5), "fail", "2.000x"),
        (Limits(max_time_us=10), "pass", "a call takes 10.00 us, wanted at most 10 us"),
        (Limits(max_time_us=9.9), "fail", "a call takes 10.00 us"),
        (Limits(), "pass", "2.000x"),
    ],
)
def test_what_the_referee_timed_passes_without_trust(limits: Limits, status: str, words: str) -> None:
    """Its clock, which adds some microseconds, does not lower the ratio."""
    trial = trial_of(10.0, 15.0, 20.0, trust_claims=False)
    claimed = SpeedupEstimate(2.0, Interval(2.0, 2.0), 8, 0.001)
    trial.claimed.speedup, trial.timed_by = claimed, "referee"  # type: ignore[misc]
    trial.claimed.outcome = at_least(claimed.interval, limits.min_speedup or 0)  # type: ignore[misc]
    trial.attested, trial.rules = SpeedupEstimate(1.3, Interval(1.3, 1.3), 8, 0.001), Rules(limits, 0.05)
    found, reason = trial._conclude()
    assert (found, words in reason) == (status, True), reason


@pytest.mark.parametrize(
    ("timed_by", "attested_us", "left_us", "status"),
    [
        ("referee", 18.5, 18.5, "pass"),
        ("referee", 18.6, 18.6, "invalid"),
        ("candidate", 18.6, 18.6, "pass"),
        ("referee", 0.01, -8.0, "pass"),
        ("referee", 0.01, -8.1, "invalid"),
    ],
)
def test_a_replayed_call_has_the_referees_clock_as_its_witness(
    monkeypatch: pytest.MonkeyPatch, timed_by: Any, attested_us: float, left_us: float, status: str
) -> None:
    """Of the candidate's own process the ratio is bounded by that clock already."""
    found = SpeedupEstimate(2.0, None, 8, 0.001)
    attestation = SimpleNamespace(
        take=lambda *given: None, speedup=found, call_us=time_of([attested_us] * 8), left_us=[left_us] * 8
    )
    monkeypatch.setattr("pytest_gpubench.judge.trial.Attestation", lambda *given: attestation)
    trial: Any = trial_of(10.0, attested_us, 20.0)
    launched: list[bool] = []
    trial.timed_by, trial.launches = timed_by, 1
    trial.ready.example, trial.stopwatch, trial._sets_for = (), Stopwatch(), lambda example: 1
    ignore = lambda *given, **named: None  # noqa: E731
    trial.before, trial.reference = Before(time_of([20.0]), slack_us=8.0), SimpleNamespace(begin_case=ignore)
    trial.reference.launch = lambda as_graph: launched.append(as_graph)
    trial.claimed.speedup, trial.rules = found, Rules(Limits())
    trial.ready.outputs, trial.candidate = [], SimpleNamespace(begin_case=ignore, forget=ignore, queue=ignore)
    trial.candidate.process = SimpleNamespace(ask=ignore)
    for name in ("_check", "_time_inside", "_find_floor"):
        setattr(trial, name, ignore)
    trial._conclude = lambda: ("pass", "")
    if status == "invalid":
        with pytest.raises(InvalidResult, match="the referee's clock"):
            trial._judge()
    else:
        assert trial._judge() == ("pass", "")
    assert launched == [timed_by == "referee"], "both arms are launched in the same way"


@pytest.mark.parametrize(
    ("times_us", "too_fast"),
    [
        ((81.0, 81.0, 101.0), ""),
        ((79.0, 81.0, 101.0), "claimed_us"),
        ((81.0, 79.0, 101.0), "attested_us"),
        ((79.0, 79.0, 99.0), ""),
    ],
)
def test_a_time_below_what_memory_needs_is_invalid(times_us: tuple[float, float, float], too_fast: str) -> None:
    """It moves 500 bytes, 400 of them may be in the cache, at a byte in a microsecond: 80 us are the least.

    A reference below 100 us does not need all of its inputs.
    """
    trial = trial_of(*times_us)
    outputs, example = torch.zeros(65), (torch.zeros(60),)
    trial.candidate = SimpleNamespace(bandwidth=1.0, output=lambda: outputs)  # type: ignore[assignment]
    message = rf"faster than memory allows: 79.00 us \({too_fast}\), and a copy takes 100.0 us"
    with pytest.raises(Ended, match=message) if too_fast else nullcontext():
        trial._find_floor(example)
    assert trial.found["floor_us"] == 100


@pytest.mark.parametrize(("memory_bytes", "sets"), [(2**30, 8), (8 * 8 * 1024 - 1, 7), (8 * 3 * 1024 - 1, 2), (1, 2)])
def test_there_are_as_many_sets_as_memory_has_room_for(memory_bytes: int, sets: int) -> None:
    """Each takes 1024 bytes; eight are used, and take an eighth of the memory, unless two take more."""
    trial = trial_of(10.0, 10.0, 10.0)
    trial.candidate = SimpleNamespace(process=SimpleNamespace(memory_bytes=memory_bytes))  # type: ignore[assignment]
    assert trial._sets_for((torch.zeros(256),)) == sets
