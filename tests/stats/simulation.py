"""Simulations: how far a rate may be off, noise, and the intervals of thousands of samples at once.

The intervals are twins of the package's functions, in numpy; tests show that they are equal.
"""

import math
import statistics
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpubench.stats.summary import median_interval, student_quantile
from tests.results.measured import present

Floats = npt.NDArray[np.float64]
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


class Distribution(NamedTuple):
    """Samples of a distribution, a row for each trial, and its true median or standard deviation."""

    name: str
    truth: float
    draw: Callable[[np.random.Generator, tuple[int, int]], Floats]


def late(share: float, sigmas: float, middle: float = 40) -> Callable[[np.random.Generator, tuple[int, int]], Floats]:
    """Return normal samples, this share of which is so many sigma late."""
    return lambda rng, shape: middle + rng.standard_normal(shape) + sigmas * (rng.random(shape) < share)


def late_std(share: float, sigmas: float) -> float:
    return math.sqrt(1 + sigmas**2 * share * (1 - share))


TICKS = Distribution(
    "readings of a clock that ticks every 32 ns, of something that varies by as much",
    round(2 / 0.032) * 0.032,
    lambda rng, shape: np.round((2 + 0.032 * rng.standard_normal(shape)) / 0.032) * 0.032,
)
DISTRIBUTIONS = [
    Distribution("normal", 40.0, late(0, 0)),
    Distribution("lognormal", math.exp(3), lambda rng, shape: rng.lognormal(3, 0.5, shape)),
    Distribution("two modes", 40 + statistics.NormalDist().inv_cdf(0.5 / 0.6), late(0.4, 20)),
    TICKS,
]
"""With their medians."""
LOGNORMAL_STD = math.exp(0.005) * math.sqrt(math.expm1(0.01))
STEADINESS = [
    Distribution("normal", 1.0, late(0, 0)),
    Distribution("uniform", 1 / math.sqrt(12), lambda rng, shape: 40 + rng.random(shape)),
    Distribution("lognormal", LOGNORMAL_STD, lambda rng, shape: rng.lognormal(0, 0.1, shape)),
    Distribution("two of a hundred are ten sigma late", late_std(0.02, 10), late(0.02, 10)),
]
"""With their standard deviations."""
HARD = [
    *STEADINESS,
    Distribution("two of a hundred are fifty sigma late", late_std(0.02, 50), late(0.02, 50, 400)),
    Distribution("one of ten is ten sigma late", late_std(0.1, 10), late(0.1, 10)),
]


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
