"""Spread between processes: of a test's sessions, of its suite, and the tolerance that it leaves undecided."""

import math
import statistics

import numpy as np
import pytest

from pytest_gpubench.stats.process_spread import (
    LEAST_FREEDOM,
    LEAST_STD,
    MOST_PRIOR_FREEDOM,
    UNKNOWN_TIME,
    ProcessSpread,
    change_across,
    shrunk,
    spread_of,
    spread_of_suite,
)
from pytest_gpubench.stats.regression import Change
from pytest_gpubench.stats.summary import Interval


def change(ratio: float, low: float, high: float, old: float = 10.0) -> Change:
    difference = Interval(old * low - old, old * high - old)
    return Change(ratio, Interval(low, high), "median", 0.001, old, old * ratio, difference, (60, 60))


def test_a_spread_is_that_within_groups() -> None:
    assert spread_of([0.0, 0.02]) == ProcessSpread(statistics.stdev([0.0, 0.02]), 1)
    found = spread_of([0.0, 0.01, 0.02], [5.0, 5.03])
    assert found is not None
    assert found.freedom == 3
    assert found.std == pytest.approx(math.sqrt((2e-4 + 4.5e-4) / 3))
    assert spread_of([1.0], [2.0]) is None
    assert spread_of([1.0, 1.0]) == ProcessSpread(LEAST_STD, 1)


def test_a_suite_of_nothing_is_what_is_known_of_gpus() -> None:
    assert spread_of_suite([], UNKNOWN_TIME) == UNKNOWN_TIME
    assert shrunk(None, UNKNOWN_TIME) == UNKNOWN_TIME


@pytest.mark.parametrize("std", [0.002, 0.008])
def test_a_suite_of_tests_alike_is_known_well_and_a_mixed_one_is_not(std: float) -> None:
    rng = np.random.default_rng(1)
    alike = [spread_of(list(each)) for each in std * rng.standard_normal((200, 5))]
    mixed = [spread_of(list(std * 3 ** (place % 3) * each)) for place, each in enumerate(rng.standard_normal((200, 5)))]
    found = spread_of_suite([each for each in alike if each], UNKNOWN_TIME)
    assert found.freedom >= MOST_PRIOR_FREEDOM / 2
    assert found.std == pytest.approx(std, rel=0.1)
    assert spread_of_suite([each for each in mixed if each], UNKNOWN_TIME).freedom <= 4


def test_a_small_suite_counts_no_more_than_the_sessions_of_the_others() -> None:
    for own, freedom in ((1, LEAST_FREEDOM - 1), (4, 1), (9, 1)):
        assert spread_of_suite([ProcessSpread(0.003, own)], UNKNOWN_TIME).freedom == freedom
    assert spread_of_suite([ProcessSpread(0.003, 4)] * 3, UNKNOWN_TIME).freedom == 8
    assert spread_of_suite([ProcessSpread(0.003, 4)] * 50, UNKNOWN_TIME).freedom == MOST_PRIOR_FREEDOM


def test_a_test_is_shrunk_towards_its_suite() -> None:
    found = shrunk(ProcessSpread(0.01, 4), ProcessSpread(0.002, 12))
    assert found == ProcessSpread(pytest.approx(math.sqrt((4 * 1e-4 + 12 * 4e-6) / 16)), 16)  # type: ignore[arg-type]


def test_what_is_left_undecided_shrinks_with_sessions() -> None:
    spread = ProcessSpread(0.003, 20)
    assert spread.half_width(0.001, 1) == pytest.approx(3.5518 * 0.003 * math.sqrt(2), rel=1e-4)
    assert spread.half_width(0.001, 5) == pytest.approx(3.5518 * 0.003 * math.sqrt(1.2), rel=1e-4)
    assert spread.half_width(0.001, 5, 3) == pytest.approx(3.5518 * 0.003 * math.sqrt(1 / 5 + 1 / 3), rel=1e-4)
    assert spread.decidable(0.001, 5) == pytest.approx(math.expm1((3.5518 + 1.3253) * 0.003 * math.sqrt(1.2)), rel=1e-4)


def test_sessions_together_have_the_mean_and_a_wider_interval() -> None:
    alone = change(1.02, 1.01, 1.03)
    assert change_across([alone], 0.0) is alone
    found = change_across([alone], 0.01)
    assert (found.ratio, found.old, found.new) == pytest.approx((1.02, 10.0, 10.2))
    assert found.interval is not None
    assert math.log(1.02 / found.interval.low) == pytest.approx(math.hypot(math.log(1.02 / 1.01), 0.01))
    assert found.difference is not None
    assert found.difference.high == pytest.approx(0.2 + math.hypot(0.1, 0.01 * 10.2))
    both = change_across([change(1.04, 1.03, 1.05), change(1.04 / 1.02, 1.03 / 1.02, 1.05 / 1.02, old=10.2)], 0.0)
    assert both.ratio == pytest.approx(1.04 / math.sqrt(1.02))
    assert both.old == pytest.approx(10.0 * math.sqrt(1.02))
    assert both.interval is not None
    assert both.interval.high / both.ratio == pytest.approx(1.05 / 1.04)


def test_a_session_of_too_few_samples_leaves_no_interval() -> None:
    none = Change(1.0, None, "median", 0.001, 10.0, 10.0)
    assert change_across([change(1.0, 0.9, 1.1), none], 0.01).interval is None


def false_fails(std: float, tests: int, number: int, alpha: float) -> float:
    """Return the share of tests beyond a tolerance that is just kept: five saved processes, one new, alike in all."""
    rng, failed = np.random.default_rng(20261122), 0
    for logs in (std * rng.standard_normal((number // tests, tests, 6))).tolist():
        owns = [spread_of(each[:5]) for each in logs]
        suite = spread_of_suite([own for own in owns if own], UNKNOWN_TIME)
        for own, each in zip(owns, logs, strict=True):
            failed += each[5] - statistics.fmean(each[:5]) > shrunk(own, suite).half_width(alpha, 5)
    return failed / number


@pytest.mark.parametrize("std", [0.003, 0.008])
@pytest.mark.parametrize(
    ("tests", "number", "alpha", "most"),
    [
        (1, 400, 0.05, 0.05 + 3 * math.sqrt(0.05 / 400)),
        *(pytest.param(tests, 12000, 0.0005, 0.002, marks=pytest.mark.slow) for tests in (1, 2, 3)),
    ],
)
def test_a_small_suite_fails_as_seldom_as_is_asked(
    tests: int, number: int, alpha: float, most: float, std: float
) -> None:
    """At the tolerance, by processes alone: what samples add leaves more undecided."""
    assert false_fails(std, tests, number, alpha) <= most


@pytest.mark.parametrize(("std", "same", "at_tolerance"), [(0.003, 0.0, 0.0), (0.008, 0.0014, 0.022)])
def test_one_saved_session_fails_more_where_processes_differ_by_more_than_is_usual(
    std: float, same: float, at_tolerance: float
) -> None:
    """By processes alone, at a tolerance of 1 %: one saved, one that compares, and the fresh one that confirms."""
    saved, first, fresh = std * np.random.default_rng(20261122).standard_normal((3, 400_000))
    slower = np.minimum(first, fresh) - saved
    half_width = UNKNOWN_TIME.half_width(0.0005, 1)
    assert np.mean(slower > math.log1p(0.01) + half_width) == pytest.approx(same, abs=0.0003)
    assert np.mean(slower > half_width) == pytest.approx(at_tolerance, abs=0.001)


def test_one_odd_process_in_fifty_fails_nothing_in_two_processes() -> None:
    """By processes alone: one saved, one that compares, and the fresh one that a FAIL is confirmed in."""
    rng, number = np.random.default_rng(20261122), 200_000
    odd = 0.05 * (rng.random((3, number)) < 0.02)
    saved, first, fresh = 0.003 * rng.standard_normal((3, number)) + odd
    fails = [each - saved > math.log1p(0.01) + UNKNOWN_TIME.half_width(0.0005, 1) for each in (first, fresh)]
    assert np.mean(fails[0]) == pytest.approx(0.02, abs=0.002)
    assert np.mean(fails[0] & fails[1]) <= 0.0005
