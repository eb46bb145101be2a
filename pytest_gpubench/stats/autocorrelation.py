"""Neighbouring samples that resemble each other: how many independent samples they are worth, and their drift.

A GPU's clock, its caches and its neighbours change more slowly than reps follow each other. An interval that takes such
reps as independent is too narrow: of 4,000 simulated measurements of 250 to 2,000 reps with two modes, each of which
lasts ten reps on average, 24 % broke a limit at the true median (alpha 0.1 %), and 0.4 % with the counts made here.
Independent samples pay for it with 3 to 5 % more reps until a verdict. What changes more slowly than the measurement
lasts shows as a drift at most, which may go on.
"""

import math
import operator
import statistics
from collections.abc import Sequence
from typing import Literal

from pytest_gpubench.stats.summary import LEAST_OF_USE

LEAST_TO_TELL = 32
"""Fewer samples count as independent: their correlation cannot be told from chance."""
DRIFT_ERRORS = 2.5
"""By chance one measurement in 80 has a drift of so many standard errors, and takes more reps."""
MEDIAN_CAUTION = 3.0
STD_CAUTION = 2.0
"""The factor that widens an estimated excess of the autocorrelation time: few samples estimate it poorly."""


def independent_for(statistic: Literal["median", "std"], samples: Sequence[float]) -> int:
    """Return the number of independent samples that would give a statistic as precisely as these, in order of time."""
    median = statistics.median(samples)
    of_median = _effective_count([(x > median) - (x < median) for x in samples], MEDIAN_CAUTION)
    if statistic == "median":
        return of_median
    mean = statistics.fmean(samples)  # of two modes that are seen as often, all squares are alike
    return min(of_median, _effective_count([(x - mean) ** 2 for x in samples], STD_CAUTION))


def drift_of(samples: Sequence[float]) -> float:
    """Return by how much samples in order of time rise or fall from the first to the last; 0 where none is seen.

    A line through the medians of both halves, whose difference is DRIFT_ERRORS standard errors at least.
    """
    count, middle = len(samples), statistics.median(samples)
    if count < LEAST_TO_TELL:
        return 0.0
    first, second = samples[: count // 2], samples[count // 2 :]
    change = 2 * (statistics.median(second) - statistics.median(first))
    level = [x - change * place / count for place, x in enumerate(samples)]
    error = 2 / math.sqrt(independent_for("median", level))
    difference = _share_above(second, middle) - _share_above(first, middle)
    return abs(change) if abs(difference) >= DRIFT_ERRORS * error else 0.0


def _share_above(samples: Sequence[float], middle: float) -> float:
    """Return the share of samples above the middle less that below."""
    return sum((x > middle) - (x < middle) for x in samples) / len(samples)


def _effective_count(values: Sequence[float], caution: float) -> int:
    """Return the number of samples over their autocorrelation time, at least 1.

    The time is Geyer's initial monotone sequence estimate (Practical Markov Chain Monte Carlo, Statistical Science 7,
    1992): autocorrelations are summed by pairs of lags, until a pair is not positive. It is 1 where the correlation of
    neighbours is within one standard error of 0.
    """
    count = len(values)
    mean = statistics.fmean(values) if values else 0.0
    centred = [value - mean for value in values]
    variance = math.fsum(map(operator.mul, centred, centred))
    if count < LEAST_TO_TELL or variance <= 0:
        return count
    correlations = (math.fsum(map(operator.mul, centred, centred[lag:])) / variance for lag in range(count // 2))
    independent, total, least = float(count), 0.0, math.inf
    for even, odd in zip(correlations, correlations, strict=False):
        if even + odd <= 0 or (not total and odd * math.sqrt(count) <= 1) or independent < LEAST_OF_USE:
            break
        least = min(least, even + odd)
        total += least
        independent = count / (1 + caution * max(0.0, 2 * total - 2))
    return max(1, math.floor(independent))
