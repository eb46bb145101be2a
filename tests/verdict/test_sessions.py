"""Saved runs of several sessions: how often the same code is called slower, and how often slower code."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from pytest_gpubench.results.model import Measurement, Outcome
from pytest_gpubench.stats.process_spread import UNKNOWN_TIME, ProcessSpread, shrunk, spread_of, spread_of_suite
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.verdict.regression import JudgedChange, Sessions, compare_measurements
from tests.results.measured import ALPHA, alone, pair

SAVED = "the baseline 'main'"
FIVE = [alone(us=289 * (1 + step / 1000)) for step in (-4, 4, -2, 2, 0)]


def compared(tolerance: str, us: float, old: list[Measurement], **others: ProcessSpread) -> JudgedChange:
    """Compare with saved sessions, the last of which is the latest."""
    return compare_measurements(
        old[-1], alone(us=us), parse_tolerance(tolerance), ALPHA, SAVED, Sessions(old[:-1], suite=others)
    )


@pytest.mark.parametrize(
    ("tolerance", "slower", "outcome"),
    [
        ("median:5%", 1.0, Outcome.PASS),
        ("median:5%", 1.08, Outcome.FAIL),
        ("median:3%", 1.0, Outcome.PASS),
        ("median:1%", 1.0, Outcome.INCONCLUSIVE),
        ("median:1%", 1.02, Outcome.INCONCLUSIVE),
        ("median:1%", 1.03, Outcome.FAIL),
        ("median:1us", 1.0, Outcome.INCONCLUSIVE),
        ("median:1us", 1.03, Outcome.FAIL),
        ("median:6us", 1.0, Outcome.PASS),
    ],
)
def test_one_saved_session_decides_what_processes_allow(tolerance: str, slower: float, outcome: Outcome) -> None:
    found = compared(tolerance, 289 * slower, FIVE[-1:])
    assert found.outcome is outcome
    told = (
        "; processes of the same code differ by 0.30 %, so 1 saved session can decide 2.1 % or more: save more with "
        "--gpu-bench-sessions=5, or compare with `pytest-gpubench ab`"
    )
    assert found.sentence.endswith(told) == (outcome is Outcome.INCONCLUSIVE)


def test_samples_that_are_too_few_are_the_first_thing_to_mend() -> None:
    found = compare_measurements(alone(reps=5), alone(reps=5), parse_tolerance("median:1%"), ALPHA, SAVED)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.sentence.endswith("too few for the 99.9 % interval: take at least 11 reps in both)")


def test_the_scripted_timer_has_no_processes_to_differ() -> None:
    old, new = (alone(us=us, timer="scripted") for us in (289, 290))
    assert compare_measurements(old, new, parse_tolerance("median:1%"), ALPHA, SAVED).outcome is Outcome.PASS


def test_more_sessions_decide_more() -> None:
    """1 % is decided where a suite is known to differ by no more than 0.1 %."""
    suite = ProcessSpread(0.001, 20)
    calm = [alone(us=289 * (1 + step / 1e4)) for step in (-8, 8, 4, -4, 0)]
    found = compared("median:1%", 289, calm, time=suite)
    assert found.outcome is Outcome.PASS
    assert "30 and 30 reps in each of 1 and 5 sessions, 99.9 % interval)" in found.sentence
    assert compared("median:1%", 289 * 1.015, calm, time=suite).outcome is Outcome.FAIL
    wild = [alone(us=289 * (1 + step / 100)) for step in (-8, 8, 4, -4, 0)]
    assert compared("median:5%", 289 * 1.1, wild, time=suite).outcome is Outcome.INCONCLUSIVE


def test_the_middle_of_the_sessions_is_compared_and_not_the_latest() -> None:
    latest_is_slow = [alone(us=us) for us in (289, 289, 289, 289, 292)]
    change = compared("median:5%", 289, latest_is_slow).change
    assert change is not None
    assert change.ratio == pytest.approx(289 / (289 * (292 / 289) ** 0.2), rel=1e-4)
    assert change.sessions == (5, 1)


def test_what_was_measured_in_another_way_is_no_session() -> None:
    others = [alone(us=500, timer="events"), alone(us=500, cache="hot"), alone(us=500, samples_us=(), unmeasured="off")]
    change = compared("median:5%", 289, [*others, alone()]).change
    assert change is not None
    assert change.sessions == (1, 1)
    assert change.ratio == pytest.approx(1.0)


def test_speedups_have_a_spread_of_their_own() -> None:
    _, old = pair("mine", 200)
    sessions = Sessions(suite={"time": ProcessSpread(0.05, 20), "speedup": ProcessSpread(0.0005, 20)})
    tolerances = {"speedup:1%": Outcome.PASS, "median:1%": Outcome.INCONCLUSIVE}
    for tolerance, outcome in tolerances.items():
        assert compare_measurements(old, old, parse_tolerance(tolerance), ALPHA, SAVED, sessions).outcome is outcome


# how often it is wrong


@dataclass
class Rates:
    """The shares of tests that came out so, of the same code and of code that is slower."""

    same: float
    at_margin: float
    by_two: float
    detectable: float
    """Slower by the tolerance and what is said to be decidable."""


def simulated(std: float, margin: float, suites: int, tests: int, alpha: float, saved: int, reps: int = 60) -> Rates:
    """Return how often tests of a suite FAIL that is compared with saved sessions; reps have a deviation of 0.5 %."""
    rng = np.random.default_rng(20261122)
    tolerance = parse_tolerance(f"median:{100 * margin:g}%")
    failed = np.zeros(4)
    for _ in range(suites):
        middles = std * rng.standard_normal((tests, saved + 1, 1))
        samples = 100 * np.exp(middles + 0.005 * rng.standard_normal((tests, saved + 1, reps)))
        logs = np.log(np.median(samples, axis=2))
        owns = [spread_of(found[:saved]) for found in logs.tolist()]
        suite = spread_of_suite([own for own in owns if own], UNKNOWN_TIME)
        for own, found in zip(owns, samples, strict=True):
            *earlier, old = (alone(samples_us=tuple(each)) for each in found[:saved].tolist())
            decidable = shrunk(own, suite).decidable(alpha, saved)
            for place, slower in enumerate((1.0, 1 + margin, 1.02 + margin, (1 + margin) * (1 + decidable))):
                new = alone(samples_us=tuple((slower * found[saved]).tolist()))
                sessions = Sessions(earlier, suite={"time": suite})
                failed[place] += (
                    compare_measurements(old, new, tolerance, alpha, SAVED, sessions).outcome is Outcome.FAIL
                )
    return Rates(*(failed / suites / tests).tolist())


def test_the_same_code_is_seldom_called_slower() -> None:
    found = simulated(0.008, 0.01, suites=5, tests=20, alpha=0.05, saved=5)
    assert found.same <= 0.02
    assert found.at_margin <= 0.05 + 3 * math.sqrt(0.05 / 100)
    assert found.detectable >= 0.6


@pytest.mark.slow
@pytest.mark.parametrize("margin", [0.01, 0.03])
@pytest.mark.parametrize("std", [0.003, 0.008])
def test_five_saved_sessions_call_two_in_a_thousand_slower_at_most(std: float, margin: float) -> None:
    """As a running test judges, whose two measurements spend half of alpha each."""
    found = simulated(std, margin, suites=150, tests=40, alpha=ALPHA / 2, saved=5)
    print(f"five sessions, {std:.1%} between processes, median:{margin:.0%}: {found}")
    assert max(found.same, found.at_margin) <= 0.002
    assert found.detectable >= 0.75
