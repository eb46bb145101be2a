"""Spread between processes: of a test's sessions, of its suite, and the tolerance that it leaves undecided."""

import math
import random
import statistics

import numpy as np
import pytest

from pytest_gpubench.stats.process_spread import (
    UNKNOWN_SPEEDUP,
    UNKNOWN_TIME,
    ProcessSpread,
    change_across,
    noise_of,
    outliers_allowed,
    shrunk,
    spread_of,
    spread_of_suite,
)
from pytest_gpubench.stats.regression import ChangeEstimate
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.verdict.rounds import change_of_pairs
from tests.results.measured import present

MOST_PRIOR_FREEDOM = 20


def change(ratio: float, low: float, high: float, old: float = 10.0) -> ChangeEstimate:
    difference = Interval(old * low - old, old * high - old)
    return ChangeEstimate(ratio, Interval(low, high), "median", 0.001, old, old * ratio, difference, (60, 60))


def test_a_spread_is_that_within_groups() -> None:
    assert spread_of([0.0, 0.02]) == ProcessSpread(statistics.stdev([0.0, 0.02]), 1)
    found = present(spread_of([0.0, 0.01, 0.02], [5.0, 5.03]))
    assert found.freedom == 3
    assert found.std == pytest.approx(math.sqrt((2e-4 + 4.5e-4) / 3))
    assert spread_of([1.0], [2.0]) is None
    assert spread_of([1.0, 1.0]) == ProcessSpread(0.0005, 1)


def test_a_suite_of_nothing_is_what_is_known_of_gpus() -> None:
    assert spread_of_suite([], UNKNOWN_TIME) == UNKNOWN_TIME
    assert shrunk(None, UNKNOWN_TIME) == UNKNOWN_TIME
    assert pytest.approx(math.sqrt(2) * UNKNOWN_TIME.std) == UNKNOWN_SPEEDUP.std  # of two arms


@pytest.mark.parametrize("std", [0.002, 0.008])
def test_a_suite_of_tests_alike_is_known_well_and_a_mixed_one_is_not(std: float) -> None:
    rng = np.random.default_rng(1)
    alike = [spread_of(list(each)) for each in std * rng.standard_normal((200, 5))]
    mixed = [spread_of(list(std * 3 ** (place % 3) * each)) for place, each in enumerate(rng.standard_normal((200, 5)))]
    found = spread_of_suite([each for each in alike if each], UNKNOWN_TIME)
    assert found.freedom >= MOST_PRIOR_FREEDOM / 2
    assert found.std == pytest.approx(std, rel=0.1)
    assert spread_of_suite([each for each in mixed if each], UNKNOWN_TIME).freedom == UNKNOWN_TIME.freedom


@pytest.mark.parametrize("std", [0.003, 0.006])
def test_more_tests_are_known_better_and_their_own_spread_counts_for_more(std: float) -> None:
    suites = [spread_of_suite([ProcessSpread(std, 4)] * number, UNKNOWN_TIME) for number in (0, 1, 3, 10, 30)]
    assert [each.freedom for each in suites] == sorted(each.freedom for each in suites)
    assert [each.std for each in suites] == sorted(each.std for each in suites)
    assert suites[-1].freedom == MOST_PRIOR_FREEDOM


@pytest.mark.parametrize("std", [0.001, 0.003, 0.0042])
def test_more_sessions_leave_less_undecided(std: float) -> None:
    """As long as processes differ by what is known of GPUs, or less: 0.42 % is what two in ten tests are above."""
    owns = [None, *(ProcessSpread(std, saved - 1) for saved in range(2, 12))]
    widths = [shrunk(own, UNKNOWN_TIME).half_width(0.001, saved) for saved, own in enumerate(owns, 1)]
    assert widths == sorted(widths, reverse=True)


def test_a_test_is_shrunk_towards_its_suite() -> None:
    found = shrunk(ProcessSpread(0.003, 4), ProcessSpread(0.002, 12))
    assert found == ProcessSpread(pytest.approx(math.sqrt((4 * 9e-6 + 12 * 4e-6) / 16)), 16)  # type: ignore[arg-type]


def test_a_test_that_is_unlike_its_suite_is_shrunk_little() -> None:
    """30 times as much is 900 times the variance: the suite counts as 12 * 4 / 900 of a degree of freedom."""
    quiet = ProcessSpread(0.001, 12)
    found = shrunk(ProcessSpread(0.03, 4), quiet)
    assert found.freedom == 4
    assert found.std == pytest.approx(0.03, rel=0.01)
    edge = 0.001 * math.sqrt(4.0)
    assert shrunk(ProcessSpread(edge, 4), quiet).freedom == 16
    assert shrunk(ProcessSpread(1.05 * edge, 4), quiet).freedom < 16


@pytest.mark.parametrize(
    ("old", "new", "outliers"),
    [(1, 1, None), (1, 300, None), (2, 5, None), (5, 4, None), (5, 5, 0), (4, 7, 0), (8, 8, 0), (9, 9, 1)],
)
def test_the_sessions_that_part_for_certain(old: int, new: int, outliers: int | None) -> None:
    assert outliers_allowed(old, new, 0.001) == outliers


def test_sessions_part_with_the_chance_that_is_told() -> None:
    """Counted over all that two times five processes in one of two modes may do, for the worst share."""
    rng = np.random.default_rng(1)
    slow = rng.random((400_000, 10)) < 0.5
    parted = ~slow[:, :5].any(axis=1) & slow[:, 5:].all(axis=1)
    assert parted.mean() == pytest.approx(2**-10, rel=0.15)
    assert outliers_allowed(5, 5, 1.001 * 2**-10) == 0
    assert outliers_allowed(5, 5, 0.999 * 2**-10) is None


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
    assert math.log(1.02 / present(found.interval).low) == pytest.approx(math.hypot(math.log(1.02 / 1.01), 0.01))
    assert present(found.difference).high == pytest.approx(0.2 + math.hypot(0.1, 0.01 * 10.2))
    both = change_across([change(1.04, 1.03, 1.05), change(1.04 / 1.02, 1.03 / 1.02, 1.05 / 1.02, old=10.2)], 0.0)
    assert both.ratio == pytest.approx(1.04 / math.sqrt(1.02))
    assert both.old == pytest.approx(10.0 * math.sqrt(1.02))
    assert present(both.interval).high / both.ratio == pytest.approx(1.05 / 1.04)


def drawn(rng: random.Random, spread: float, pairs: int, mean: float = 0.0) -> list[float]:
    return [rng.gauss(mean, spread) for _ in range(pairs)]


@pytest.mark.parametrize("pairs", [2, 4, 8])
def test_the_spread_is_estimated_without_bias(pairs: int) -> None:
    """Real changes, and a few tests that are much noisier, do not move it."""
    rng = random.Random(pairs)
    steady = [drawn(rng, 0.004, pairs, mean=0.1 * number) for number in range(900)]
    noise = present(noise_of([*steady, *(drawn(rng, 0.05, pairs) for _ in range(20)), [0.5]]))
    assert noise.spread == pytest.approx(0.004, rel=0.12)


def test_nothing_is_known_without_two_pairs_and_rounding_is_no_noise() -> None:
    assert noise_of([[0.1], []]) is None
    noise, rounded = noise_of([[0.1, 0.2]]), noise_of([[0.1 + 1e-16, 0.1 - 1e-16]])
    assert (present(noise).smallest_change(1, 0.01), present(rounded).smallest_change(2, 0.01)) == (math.inf, 0)


@pytest.mark.parametrize("pairs", [4, 6])
def test_the_smallest_change_is_seen_nine_times_in_ten(pairs: int) -> None:
    rng = random.Random(0)
    noise = present(noise_of([drawn(rng, 0.004, pairs) for _ in range(900)]))
    smallest = noise.smallest_change(pairs, 0.01)
    changes = [change_of_pairs(drawn(rng, 0.004, pairs, math.log1p(smallest)), "median", 0.01) for _ in range(1500)]
    seen = statistics.fmean(change.interval is not None and change.interval.low > 1 for change in changes)
    assert seen == pytest.approx(0.9, abs=0.06)
