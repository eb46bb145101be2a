"""A test compared with a saved run, measurement by measurement."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pytest_gpubench import Measurement, Timing
from pytest_gpubench.results.counterpart import KeyReader, Missing, PastTest
from pytest_gpubench.results.model import Counts, Outcome
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.saved_runs import BaselineLimit, compare_with_baseline
from tests.results.measured import BARE_GPU as GPU
from tests.results.measured import arms, clocked, present, record

MEDIAN = RegressionTolerance("median", margin=0.05)
SPEEDUP = RegressionTolerance("speedup", margin=0.05)


def reps(label: str, median_us: float, **others: object) -> Timing:
    """Return a timing of enough reps to decide by; with this timer every process has the same."""
    samples_us = tuple(median_us * (1 + n / 1e5) for n in range(-20, 21))
    return clocked(label, median_us, samples_us=samples_us, **{"timer": "scripted", **others})  # type: ignore[arg-type] # a test's own keywords


def alone(median_us: float, **others: object) -> Measurement:
    return Measurement(timing=reps("a", median_us, **others))


def pair(candidate_us: float, reference_us: float, **others: object) -> tuple[Measurement, Measurement]:
    """Return both arms of a comparison, whose quads all say the same; others: of the reference's timing."""
    reference, candidate = arms(reps("a", candidate_us), reps("eager", reference_us, **others))
    ratios = (math.log(reference_us / candidate_us),) * 20
    return reference, msgspec.structs.replace(
        candidate, speedup=msgspec.structs.replace(present(candidate.speedup), log_ratios=ratios)
    )


def known(*measurements: Measurement) -> PastTest:
    return PastTest("t.py::test_it", "main", GPU, {}, {}, "", measurements)


def limit(past: PastTest | Missing, tolerance: RegressionTolerance = MEDIAN) -> BaselineLimit:
    return BaselineLimit(past, tolerance, "max_regression", "x")


def compared_after(
    past: BaselineLimit, before: list[Measurement], new: Sequence[Measurement], *others: Any
) -> list[Change]:
    return compare_with_baseline(past, KeyReader().read_after(before, new), new, *others)


def judged(changes: Sequence[Change]) -> list[Measurement]:
    return [each.new for each in changes if each.new is not None]


def outcomes(past: BaselineLimit, new: list[Measurement], throttled: str = "warn", enforced: bool = True) -> list[str]:
    """Return the outcomes of the verdicts, which those of the changes are too."""
    changes = compared_after(past, [], new, 0.001, enforced, throttled)
    found = [verdict.outcome for item in judged(changes) for verdict in item.verdicts]
    assert found == [each.outcome for each in changes if each.new is not None and each.new.verdicts]
    return [each.value for each in found]


@pytest.mark.parametrize(
    ("candidate_us", "reference_us", "found"),
    [
        (110.0, 201.0, "inconclusive"),
        (110.0, 199.0, "fail"),
        (99.0, 150.0, "fail"),
        (0.9, 1.5, "inconclusive"),
        (1.1, 1.9, "fail"),
        (100.0, 201.0, "pass"),
    ],
)
def test_arms_in_another_regime_are_no_failure(candidate_us: float, reference_us: float, found: str) -> None:
    """As on a CPU whose threads another process took: both arms took 300 times as long, and not equally so."""
    past = limit(known(*pair(10.0, 20.0)), SPEEDUP)
    new = list(pair(candidate_us, reference_us))
    assert outcomes(past, new) == [found]
    candidate = compared_after(past, [], new, 0.001, True)[1]
    assert ("look for other threads, clocks or libraries" in candidate.sentence) == (found == "inconclusive")


def test_a_speedup_is_not_misled_by_drift_and_a_reference_is_not_judged() -> None:
    old, drifted = pair(10.0, 20.0), pair(11.0, 22.0)
    assert outcomes(limit(known(*old), SPEEDUP), list(drifted)) == ["pass"]
    assert outcomes(limit(known(*old), MEDIAN), list(drifted)) == ["fail"]
    held = compared_after(limit(known(*old), MEDIAN), [], drifted, 0.001, True)
    assert [item.change is not None for item in judged(held)] == [True, True]
    assert judged(held)[0].verdicts == ()


def test_what_is_only_shown_has_a_change_and_no_verdict() -> None:
    held = compared_after(BaselineLimit(known(alone(10.0)), None), [], [alone(20.0)], 0.001, True)
    (item,) = judged(held)
    past = present(item.change)
    assert (past.baseline, past.old_us, round(past.ratio, 9)) == ("main", 10.0, 2.0)
    assert (item.verdicts, held[0].outcome, held[0].notes, held[0].further) == ((), Outcome.NOT_JUDGED, (), 0)


def test_equal_measurements_are_told_apart_by_what_came_before() -> None:
    past = limit(known(alone(10.0), alone(20.0)), MEDIAN)
    held = compared_after(past, [alone(10.0)], [alone(20.0)], 0.001, True)
    assert [each.outcome for each in held] == [Outcome.PASS]
    (change,) = compared_after(past, [alone(10.0)] * 2, [alone(20.0)], 0.001, True)
    assert "measured for the 3th time" in present(change.missing).sentence


def test_what_there_is_nothing_to_compare_with_is_not_judged() -> None:
    missing = Missing("no test", "it is new")
    new = alone(10.0)
    held = compared_after(limit(missing, MEDIAN), [], [new], 0.001, True)
    (item,) = judged(held)
    (verdict,) = item.verdicts
    assert (verdict.kind, verdict.outcome, verdict.sentence) == ("max_regression", Outcome.NOT_JUDGED, "it is new")
    assert (item.timing, held[0].missing) == (new.timing, missing)
    (shown,) = compared_after(BaselineLimit(missing, None), [], [new], 0.001, True)
    assert (shown.new, shown.missing, shown.notes) == (new, missing, ())
    skipped = msgspec.structs.replace(new, timing=msgspec.structs.replace(new.timing, samples_us=(), unmeasured="off"))
    (change,) = compared_after(limit(known(alone(10.0))), [], [skipped], 0.001, True)
    assert (change.new, change.missing, change.notes) == (skipped, None, ())


DRIVER = ("driver", "570", "580")
OTHER_DRIVER = "driver 570 -> 580 since the baseline 'main'"


def test_what_else_differs_is_said() -> None:
    past = BaselineLimit(replace(known(*pair(10.0, 20.0)), changed=(DRIVER,)), SPEEDUP, "max_regression", "x")
    changes = compared_after(past, [], pair(10.0, 20.0), 0.001, True)
    assert [each.notes for each in changes] == [(OTHER_DRIVER,)] * 2  # a test warns of each sentence once
    hot = limit(known(alone(10.0, throttle_reasons=("SwPowerCap",))), MEDIAN)
    assert compared_after(hot, [], [alone(10.0)], 0.001, True)[0].notes == (
        "the GPU was throttled in the baseline 'main' (SwPowerCap); save a new one",
    )
    shared = limit(known(alone(10.0, neighbours="pid 7 computed")), MEDIAN)
    assert compared_after(shared, [], [alone(10.0)], 0.001, True)[0].notes == (
        "in the baseline 'main': pid 7 computed; save a new one",
    )


HOT = {"throttle_reasons": ("SwPowerCap",)}


@pytest.mark.parametrize(
    ("policy", "tolerance", "new", "found"),
    [
        ("fail", MEDIAN, pair(20.0, 20.0), ["fail"]),
        ("fail", MEDIAN, pair(20.0, 20.0, **HOT), ["fail"]),  # its reference is not compared
        ("fail", MEDIAN, [alone(20.0, **HOT)], ["invalid"]),
        ("warn", MEDIAN, [alone(20.0, **HOT)], ["fail"]),
        ("fail", MEDIAN, [alone(10.0, **HOT)], ["pass"]),
        ("fail", SPEEDUP, pair(10.0, 30.0, **HOT), ["invalid"]),  # a throttled reference makes a candidate look good
        ("fail", SPEEDUP, [*pair(10.0, 20.0), *pair(10.0, 20.0, **HOT)], ["pass", "invalid"]),
    ],
)
def test_what_was_slower_while_throttled_says_nothing_of_the_code(
    policy: str, tolerance: RegressionTolerance, new: Sequence[Measurement], found: list[str]
) -> None:
    old = known(*pair(10.0, 20.0), *pair(10.0, 20.0)) if len(new) > 1 else known(alone(10.0))
    past = BaselineLimit(old, tolerance, "max_regression", "x")
    assert outcomes(past, list(new), policy) == found
    changes = compared_after(past, [], new, 0.001, True, policy)
    assert len(new) == 1 or changes[0].outcome is Outcome.NOT_JUDGED  # of a reference


def test_samples_that_are_no_times_are_invalid() -> None:
    bad = Measurement(timing=clocked("a", 1.0, samples_us=(float("nan"),) * 41, timer="scripted"))
    assert outcomes(limit(known(alone(10.0))), [bad]) == ["invalid"]
    held = compared_after(BaselineLimit(known(alone(10.0)), None), [], [bad], 0.001, True)
    assert judged(held) == [bad]
    assert held[0].notes[0].startswith("a cannot be compared: ")


@pytest.mark.parametrize(("metric", "counts"), [("instructions", True), ("dram_read_bytes", False), ("median", False)])
def test_a_further_session_beside_others_counts_for_what_they_do_not_change(metric: str, counts: bool) -> None:
    item = alone(10.0, neighbours="pid 7 computed", counts=Counts(captures={metric: (1.0,)}))
    limit = BaselineLimit(known(alone(10.0)), RegressionTolerance(metric, margin=0.05), "max_regression", "x")
    found = limit.with_session(record(item), KeyReader().read_after([], [item]))
    assert isinstance(found, BaselineLimit) is counts
    assert counts or found == "a: pid 7 computed"
