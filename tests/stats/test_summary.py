"""Intervals of the median and the standard deviation: known values, properties, simulated coverage."""

import itertools
import math
import statistics
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.stats.summary import Interval, least_count, median_interval, std_interval, student_quantile
from tests.results.measured import present
from tests.stats.simulation import (
    DISTRIBUTIONS,
    HARD,
    STEADINESS,
    TICKS,
    Distribution,
    lower_rank,
    median_bounds,
    slack,
    std_bounds,
)

times_us = st.lists(st.floats(1e-2, 1e6), min_size=1, max_size=60)
readings_us = st.lists(st.integers(1, 2**20).map(lambda ticks: ticks / 1024), min_size=20, max_size=60)
"""Enough for every interval asked here, on a grid: floats an ulp apart have a standard deviation of rounding errors."""
alphas = st.builds(lambda digits, power: digits / 10**power, st.integers(1, 9), st.integers(1, 9))


def brute_force_rank(samples: int, alpha: Fraction, share: Fraction) -> int:
    """Return the largest k with 2 P(Binomial(samples, share) < k) <= alpha, by adding up fractions; 0 without any."""
    chances = (
        math.comb(samples, below) * share**below * (1 - share) ** (samples - below) for below in range(samples + 1)
    )
    return sum(2 * outside <= alpha for outside in itertools.accumulate(chances))


@given(st.integers(0, 150), st.integers(1, 9), st.integers(1, 6), st.sampled_from([1, 2, 3]))
def test_the_ends_of_an_interval_are_the_brute_force_ones(samples: int, digits: int, power: int, quarter: int) -> None:
    ranks = [
        brute_force_rank(samples, Fraction(digits, 10**power), Fraction(each, 4)) for each in (quarter, 4 - quarter)
    ]
    found = median_interval(range(1, samples + 1), digits / 10**power, quarter=quarter)
    assert found == ((ranks[0], samples + 1 - ranks[1]) if all(ranks) else None)


@given(alphas, st.sampled_from([1, 2, 3]))
def test_least_count_is_the_smallest_count_with_an_interval(alpha: float, quarter: int) -> None:
    least = least_count(alpha, quarter)
    for count in range(least + 1):
        assert (median_interval(range(count), alpha, quarter=quarter) is None) is (count < least)


@pytest.mark.parametrize("power", range(1, 40))
def test_least_count_is_exact_where_the_binomial_is(power: int) -> None:
    """At alpha = 2 / 2^n the extremes of n samples are just enough."""
    assert least_count(2 / 2**power) == power


@given(times_us, alphas)
def test_the_interval_contains_the_median(samples: list[float], alpha: float) -> None:
    interval = median_interval(samples, alpha)
    assert (interval is None) == (len(samples) < least_count(alpha))
    if interval:
        assert interval.low <= statistics.median(samples) <= interval.high
        assert {interval.low, interval.high} <= set(samples)
        assert interval.width == interval.high - interval.low >= 0


@pytest.mark.parametrize("interval_of", [median_interval, std_interval])
@given(samples=readings_us, alpha=alphas, larger=alphas)
def test_an_interval_widens_as_alpha_shrinks(
    interval_of: Callable[[list[float], float], Interval | None], samples: list[float], alpha: float, larger: float
) -> None:
    alpha, larger = sorted((alpha, larger))
    wide, narrow = interval_of(samples, alpha), interval_of(samples, larger)
    if narrow is None:
        assert wide is None
    elif wide is not None:
        assert wide.low <= narrow.low <= narrow.high <= wide.high


@pytest.mark.parametrize(
    ("samples", "expected"),
    [((), None), (range(9), None), ((0.1,) * 9, None), ((0.1,) * 10, (0, 0)), ((3,) * 500, (0, 0))],
)
def test_std_interval_of_few_or_equal_samples(samples: tuple[float, ...], expected: tuple[float, float] | None) -> None:
    assert std_interval(samples, 0.05) == expected


@given(readings_us, alphas)
def test_the_interval_of_the_std_contains_the_sample_std(samples: list[float], alpha: float) -> None:
    interval = present(std_interval(samples, alpha))
    assert 0 <= interval.low <= statistics.stdev(samples) <= interval.high


@pytest.mark.parametrize(("alpha", "high"), [(0.1, 0.9359), (0.05, 1.0841), (0.01, 1.5109)])
def test_the_upper_end_for_the_std_is_the_published_one(alpha: float, high: float) -> None:
    """The example of Bonett's paper, as R's DescTools quotes it; eight samples are fewer than `std_interval` takes."""
    samples = np.array([[15.83, 16.01, 16.24, 16.42, 15.33, 15.44, 16.88, 16.31]])
    _, [found_high] = std_bounds(samples, alpha)
    assert found_high == pytest.approx(high, abs=5e-5)


@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize("count", [11, 20, 57, 250])
def test_the_twins_are_equal(count: int, alpha: float) -> None:
    samples = np.random.default_rng(count).lognormal(2, 0.3, (5, count))
    for row, low, high in zip(samples.tolist(), *median_bounds(samples, alpha), strict=True):
        assert median_interval(row, alpha) == (low, high)
    for row, low, high in zip(samples.tolist(), *std_bounds(samples, alpha), strict=True):
        assert std_interval(row, alpha) == pytest.approx((low, high), rel=1e-9)


@pytest.mark.parametrize("trials", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.001])
@pytest.mark.parametrize("count", [11, 20, 100])
@pytest.mark.parametrize("draw", DISTRIBUTIONS, ids=lambda each: each.name)
def test_the_median_is_covered_as_often_as_promised(draw: Distribution, count: int, alpha: float, trials: int) -> None:
    """Exactly so for continuous distributions, at least so where samples tie."""
    samples = draw.draw(np.random.default_rng(20250101), (trials, count))
    low, high = median_bounds(samples, alpha)
    covered = float(np.mean((low <= draw.truth + 1e-9) & (draw.truth - 1e-9 <= high)))
    rank = lower_rank(count, alpha) or 0
    exact = float(1 - 2 * sum(Fraction(math.comb(count, below), 2**count) for below in range(rank)))
    assert rank
    assert exact >= 1 - alpha
    assert covered >= exact - slack(exact, trials)
    assert draw is TICKS or covered <= exact + slack(exact, trials)


HARD_TRIALS = [
    pytest.param(draw, count, 200_000, 1.3, marks=pytest.mark.slow) for draw in HARD for count in (20, 50, 250)
]


@pytest.mark.parametrize(
    ("draw", "count", "trials", "worst"), [*((draw, 50, 24_000, 1.0) for draw in STEADINESS), *HARD_TRIALS]
)
def test_false_fails_of_the_std_are_rare(draw: Distribution, count: int, trials: int, worst: float) -> None:
    """The lower end lies above the true standard deviation, where a limit would FAIL.

    The worst are far outliers: 1.3 alpha at 0.001 and 250 samples.
    """
    bounds = {0.05: 0.05, 0.01: 0.01, 0.001: 0.001 * worst}
    rng, above, batches = np.random.default_rng(20250102), dict.fromkeys(bounds, 0), max(1, trials * count // 1_000_000)
    for _ in range(batches):
        samples = draw.draw(rng, (trials // batches, count))
        for alpha in bounds:
            above[alpha] += int(np.sum(std_bounds(samples, alpha)[0] > draw.truth))
    for alpha, most in bounds.items():
        assert above[alpha] / (trials // batches * batches) <= most + slack(most, trials), (alpha, above)


@pytest.mark.parametrize("alpha", [0.05, 1e-3, 1e-15, 1e-17, 1e-100, 1e-300])
def test_a_spread_has_an_interval_at_any_alpha(alpha: float) -> None:
    """The quantile is that of the small tail: that of the large one is 1, in floating point, below 1e-16."""
    samples = [100.0 + number % 7 for number in range(2000)]
    interval, wider = present(std_interval(samples, alpha)), present(std_interval(samples, alpha / 2))
    assert wider.low < interval.low < statistics.stdev(samples) < interval.high < wider.high


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [(0.975, 9, 2.262157), (0.995, 9, 3.249836), (0.9995, 9, 4.780913), (0.9995, 49, 3.5004), (0.975, 249, 1.969537)],
)
def test_student_quantile_is_the_tabulated_one(probability: float, freedom: int, expected: float) -> None:
    z = statistics.NormalDist().inv_cdf(probability)
    assert student_quantile(z, freedom) == pytest.approx(expected, rel=1e-3)
