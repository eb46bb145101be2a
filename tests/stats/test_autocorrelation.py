"""Autocorrelated reps: their effective number, and the false FAIL rate of limits on them."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.autocorrelation import drift_of, independent_for
from pytest_gpubench.stats.summary import median_interval, std_interval
from pytest_gpubench.verdict.limits import Judgement, Limits
from tests.results.measured import present, timing_of
from tests.stats.simulation import Floats, autoregressive

LEAST_TO_TELL = 32

Noise = Callable[[np.random.Generator, int], Floats]
"""Takes a generator and a number of reps; returns noise whose median is 0."""


def independent(rng: np.random.Generator, reps: int) -> Floats:
    return rng.standard_normal(reps)


def autocorrelated(rng: np.random.Generator, reps: int) -> Floats:
    noise: Floats = autoregressive(rng, (1, reps), 0.9)[0]
    return noise


def two_modes(dwell: int) -> Noise:
    def draw(rng: np.random.Generator, reps: int) -> Floats:
        """Two modes 2.5 apart, each of which lasts so many reps on average."""
        mode = (np.cumsum(rng.random(reps) < 1 / dwell) + rng.integers(2)) % 2
        return 2.5 * (mode - 0.5) + 0.3 * rng.standard_normal(reps)

    return draw


def bursts(rng: np.random.Generator, reps: int) -> Floats:
    """Ten reps in a row take longer, again and again."""
    begins = rng.random(reps) < 0.01
    return rng.standard_normal(reps) + 8.0 * (np.convolve(begins, np.ones(10))[:reps] > 0)


@pytest.mark.parametrize(
    ("samples", "count"),
    [
        ([1.0], 1),
        ([1.0, 2.0] * 50, 100),  # neighbours that differ more than by chance
        ([5.0] * 100, 100),
        ([1.0] * (LEAST_TO_TELL // 2 - 1) + [2.0] * (LEAST_TO_TELL // 2), LEAST_TO_TELL - 1),
        ([1.0] * (LEAST_TO_TELL // 2) + [2.0] * (LEAST_TO_TELL // 2), 2),
        ([1.0] * 500 + [2.0] * 500, 3),  # no fewer are told apart: they decide nothing
    ],
)
def test_independent_samples(samples: list[float], count: int) -> None:
    assert independent_for("median", samples) == count
    assert independent_for("std", samples) <= count  # the squares of two modes are alike


def test_the_order_of_time_decides() -> None:
    samples = autocorrelated(np.random.default_rng(1), 2000).tolist()
    assert 10 < independent_for("median", samples) < 200
    assert 10 < independent_for("std", samples) < 400
    shuffled = np.random.default_rng(2).permutation(samples).tolist()
    assert independent_for("median", shuffled) > 1000
    assert independent_for("std", shuffled) > 1000


def test_the_interval_leaves_out_the_share_of_fewer_samples() -> None:
    samples = [float(x) for x in range(1, 101)]
    assert median_interval(samples, 0.05, 100) == median_interval(samples, 0.05) == (40, 61)
    assert median_interval(samples, 0.05, 10) == (20, 81)  # ranks 2 and 9 of ten
    assert median_interval(samples, 0.05, 5) is None
    wide, narrow = present(std_interval(samples, 0.05, 20)), present(std_interval(samples, 0.05))
    assert wide.low < narrow.low < narrow.high < wide.high
    few, ten = (present(std_interval(samples, 0.05, count)) for count in (4, 10))
    assert std_interval(samples, 0.05, 3) == (0, 6 * (max(samples) - min(samples)))
    assert (few.low, few.high) == (0, ten.high), "too few to show that a deviation is large"
    assert ten.low > 0


def fails(draw: Noise, limits: Limits, trials: int, first: int = 250, most: int = 2000) -> tuple[float, float]:
    """Return the share of measurements that fail, looked at after 250, 500, ... reps, and the mean number of reps."""
    failed = taken = 0
    for trial in range(trials):
        samples_us = (100 + draw(np.random.default_rng(trial), most)).tolist()
        judgement, reps = Judgement(limits, 0.001), first
        while not judgement.look(timing_of(samples_us[:reps])) and reps < most:
            reps *= 2
        failed += judgement.verdicts[0].outcome is Outcome.FAIL
        taken += reps
    return failed / trials, taken / trials


def ramp(rng: np.random.Generator, reps: int) -> Floats:
    """Rise or fall by 3 % in 2,000 reps, 1.5 % of it to either side of the median."""
    slope: Floats = rng.choice([-1, 1]) * (3 * np.arange(reps) / 2000 - 1.5)
    return slope + 0.3 * rng.standard_normal(reps)


@pytest.mark.parametrize(
    ("samples", "drift"),
    [
        ([10.0] * 100, 0.0),
        ([10.0 + step / 100 for step in range(LEAST_TO_TELL)], LEAST_TO_TELL / 100),
        ([10.0 - step / 100 for step in range(LEAST_TO_TELL)], LEAST_TO_TELL / 100),
        ([10.0 + step / 100 for step in range(LEAST_TO_TELL - 1)], 0.0),  # too few to tell
        ([10.0, 11.0] * 50, 0.0),
    ],
)
def test_a_drift_is_what_lies_between_the_first_and_the_last(samples: list[float], drift: float) -> None:
    assert drift_of(samples) == pytest.approx(drift)


def test_independent_samples_seldom_seem_to_drift() -> None:
    rng = np.random.default_rng(1)
    seen = [drift_of(rng.standard_normal(250).tolist()) > 0 for _ in range(1000)]
    assert sum(seen) / 1000 == pytest.approx(0.0124, abs=0.012)


def test_a_limit_on_reps_that_drift_is_seldom_decided_early() -> None:
    """Without the drift 47 % fail."""
    assert fails(ramp, AT_THE_MEDIAN, 30)[0] <= 0.06 + 4 * math.sqrt(0.06 * 0.94 / 30)


AT_THE_MEDIAN = Limits(max_time_us=100)


@pytest.mark.parametrize(
    ("draw", "limits"),
    [
        (independent, AT_THE_MEDIAN),
        (autocorrelated, AT_THE_MEDIAN),  # without the counts 0.33
        (two_modes(3), AT_THE_MEDIAN),  # 0.017
        (two_modes(10), AT_THE_MEDIAN),  # 0.24
        (autocorrelated, Limits(max_rel_std=0.01)),  # 0.16
        (bursts, Limits(max_rel_std=0.0256 / 1.0076)),  # 0.23
    ],
)
@pytest.mark.parametrize("trials", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_limit_at_the_truth_seldom_fails(draw: Noise, limits: Limits, trials: int) -> None:
    assert fails(draw, limits, trials)[0] <= 0.005 + 4 * math.sqrt(0.005 / 1000)


@pytest.mark.parametrize("trials", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_independent_reps_are_judged_as_soon(trials: int) -> None:
    """0.2 % beyond the limit at a spread of 0.4 %: without the counts 252 reps, with them at most 256."""
    share, reps = fails(lambda rng, reps: 0.4 * independent(rng, reps), Limits(max_time_us=99.8), trials)
    assert share == 1
    assert reps < 280
