"""The spread between runs of the same code on this machine, and the smallest slowdown that stands out from it."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_gpubench.stats.student import detectable_errors, student_t


@dataclass(frozen=True)
class RunNoise:
    """The spread between runs of the same code."""

    spread: float
    """The standard deviation of the log-ratio of a pair of runs, in the typical measurement."""
    measurements: int
    """The number of measurements that it was estimated from."""

    def smallest_change(self, pairs: int, alpha: float) -> float:
        """Return the smallest slowdown that so many pairs tell from none, 9 times in 10; infinite for a single pair."""
        if pairs < 2:
            return math.inf
        errors = detectable_errors(student_t(alpha, pairs - 1), pairs - 1)
        return math.expm1(errors * self.spread / math.sqrt(pairs))


def noise_of(log_ratios: Iterable[Sequence[float]]) -> RunNoise | None:
    """Estimate the noise from the pairs of each measurement; None where none has two.

    Only deviations from a measurement's own mean count, so a real change adds nothing. The median over the measurements
    is not moved by a few that are noisier than the others; dividing by Wilson and Hilferty's median of chi-squared
    makes it unbiased.
    """
    variances = [
        statistics.variance(pairs) / (1 - 2 / (9 * (len(pairs) - 1))) ** 3 for pairs in log_ratios if len(pairs) > 1
    ]
    if not variances:
        return None
    return RunNoise(round(math.sqrt(statistics.median(variances)), 9), len(variances))
