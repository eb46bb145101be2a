"""Noise between runs: its estimate, and the smallest slowdown that it lets one detect."""

import math
import random
import statistics

import pytest

from pytest_gpubench.stats.regression import change_of_pairs
from pytest_gpubench.stats.run_noise import RunNoise, noise_of


def drawn(rng: random.Random, spread: float, pairs: int, mean: float = 0.0) -> list[float]:
    return [rng.gauss(mean, spread) for _ in range(pairs)]


@pytest.mark.parametrize("pairs", [2, 4, 8])
def test_the_spread_is_estimated_without_bias(pairs: int) -> None:
    """Real changes, and a few tests that are much noisier, do not move it."""
    rng = random.Random(pairs)
    steady = [drawn(rng, 0.004, pairs, mean=0.1 * number) for number in range(900)]
    noise = noise_of([*steady, *(drawn(rng, 0.05, pairs) for _ in range(20)), [0.5]])
    assert noise is not None
    assert noise.spread == pytest.approx(0.004, rel=0.12)
    assert noise.measurements == 920


def test_nothing_is_known_without_two_pairs() -> None:
    assert noise_of([[0.1], []]) is None
    assert RunNoise(0.01, 1).smallest_change(1, 0.01) == math.inf


@pytest.mark.parametrize("pairs", [4, 6])
def test_the_smallest_change_is_seen_nine_times_in_ten(pairs: int) -> None:
    rng, smallest = random.Random(0), RunNoise(0.004, 9).smallest_change(pairs, 0.01)
    changes = [change_of_pairs(drawn(rng, 0.004, pairs, math.log1p(smallest)), "median", 0.01) for _ in range(1500)]
    seen = statistics.fmean(change.interval is not None and change.interval.low > 1 for change in changes)
    assert seen == pytest.approx(0.9, abs=0.06)


def test_noise_of_nothing_but_rounding_is_none() -> None:
    noise = noise_of([[0.1 + 1e-16, 0.1 - 1e-16]])
    assert noise is not None
    assert noise.smallest_change(2, 0.01) == 0
