"""Simulations: how far a rate may be off, noise, and the intervals of thousands of samples at once.

The intervals are twins of the package's functions, in numpy; tests show that they are equal.
"""

import math
import statistics
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pytest_gpubench.stats.summary import median_interval, student_quantile
from tests.results.measured import present

Floats = npt.NDArray[np.float64]
Truth = float
Draw = Callable[[np.random.Generator, int, int], tuple[Floats, Truth]]
"""Takes a generator, trials and samples; returns a row of samples per trial, and what is true of them."""
SIGMAS = 4
"""By how many standard errors of a simulation a rate may miss its bound; the seeds are fixed."""


def slack(rate: float, trials: int) -> float:
    """Return by how much a rate may be off that so many trials find."""
    return SIGMAS * math.sqrt(rate * (1 - rate) / trials)


def autoregressive(rng: np.random.Generator, shape: tuple[int, int], memory: float) -> Floats:
    """Return AR(1) noise of standard deviation 1: each value is `memory` of the last one and something new."""
    noise = rng.standard_normal(shape)
    noise[:, 1:] *= math.sqrt(1 - memory**2)
    for step in range(1, shape[1]):
        noise[:, step] += memory * noise[:, step - 1]
    return noise


def normal(rng: np.random.Generator, trials: int, count: int) -> tuple[Floats, Truth]:
    return 40 + rng.standard_normal((trials, count)), 40.0


def lognormal(rng: np.random.Generator, trials: int, count: int) -> tuple[Floats, Truth]:
    return rng.lognormal(3, 0.5, (trials, count)), math.exp(3)


def bimodal(rng: np.random.Generator, trials: int, count: int) -> tuple[Floats, Truth]:
    """Three of five samples come from the lower of two modes, twenty sigma apart."""
    samples = 40 + rng.standard_normal((trials, count)) + 20 * (rng.random((trials, count)) < 0.4)
    return samples, 40 + statistics.NormalDist().inv_cdf(0.5 / 0.6)


def quantised(rng: np.random.Generator, trials: int, count: int) -> tuple[Floats, Truth]:
    """Readings of a clock that ticks every 32 ns, of something that varies by as much."""
    samples = np.round((2 + 0.032 * rng.standard_normal((trials, count))) / 0.032) * 0.032
    return samples, round(2 / 0.032) * 0.032


def steady_normal(rng: np.random.Generator, trials: int, count: int) -> tuple[Floats, Truth]:
    return 40 + rng.standard_normal((trials, count)), 1.0


def steady_uniform(rng: np.random.Generator, trials: int, count: int) -> tuple[Floats, Truth]:
    return 40 + rng.random((trials, count)), 1 / math.sqrt(12)


def steady_lognormal(rng: np.random.Generator, trials: int, count: int) -> tuple[Floats, Truth]:
    return rng.lognormal(0, 0.1, (trials, count)), math.exp(0.005) * math.sqrt(math.expm1(0.01))


def outliers(rng: np.random.Generator, trials: int, count: int) -> tuple[Floats, Truth]:
    """Two samples of a hundred are ten sigma late."""
    samples = 40 + rng.standard_normal((trials, count)) + 10 * (rng.random((trials, count)) < 0.02)
    return samples, math.sqrt(1 + 100 * 0.02 * 0.98)


def far_outliers(rng: np.random.Generator, trials: int, count: int) -> tuple[Floats, Truth]:
    """Two samples of a hundred are fifty sigma late."""
    samples = 400 + rng.standard_normal((trials, count)) + 50 * (rng.random((trials, count)) < 0.02)
    return samples, math.sqrt(1 + 2500 * 0.02 * 0.98)


def two_modes(rng: np.random.Generator, trials: int, count: int) -> tuple[Floats, Truth]:
    """One sample of ten comes from a second mode, ten sigma late."""
    samples = 40 + rng.standard_normal((trials, count)) + 10 * (rng.random((trials, count)) < 0.1)
    return samples, math.sqrt(1 + 100 * 0.1 * 0.9)


DISTRIBUTIONS: list[Draw] = [normal, lognormal, bimodal, quantised]
STEADINESS: list[Draw] = [steady_normal, steady_uniform, steady_lognormal, outliers]
HARD: list[Draw] = [*STEADINESS, far_outliers, two_modes]


def lower_rank(samples: int, alpha: float) -> int | None:
    """Return the place, from 1, of the sample that is the lower end of `median_interval`."""
    interval = median_interval(range(1, samples + 1), alpha)
    return None if interval is None else round(interval.low)


def median_bounds(samples: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Return the ends of `median_interval` of each row."""
    rank = present(lower_rank(samples.shape[1], alpha))
    ordered = np.partition(samples, [rank - 1, samples.shape[1] - rank], axis=1)
    return ordered[:, rank - 1], ordered[:, -rank]


def std_bounds(samples: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Return the ends of `std_interval` of each row."""
    count = samples.shape[1]
    cut = int(count / (2 * math.sqrt(count - 4)))
    kept = np.partition(samples, [cut, count - cut - 1], axis=1)[:, cut : count - cut]
    about_mean = np.square(samples - samples.mean(axis=1, keepdims=True)).sum(axis=1)
    about_centre = np.square(np.square(samples - kept.mean(axis=1, keepdims=True))).sum(axis=1)
    z = statistics.NormalDist().inv_cdf(1 - alpha / 2)
    correction = count / (count - z)
    excess = count * about_centre / np.square(about_mean) - (count - 3) / count
    exponent = z * correction * np.sqrt(np.maximum(excess, 0) / (count - 1))
    variance = correction * about_mean / (count - 1)
    low = np.sqrt(variance / correction * np.exp(-exponent * student_quantile(z, count - 1) / z))
    return low, np.sqrt(variance * np.exp(exponent))
