"""Statistics of a few samples, intervals for those of their distribution, and Student's quantiles."""

import math
import statistics
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

POWER_Z = statistics.NormalDist().inv_cdf(0.9)
LARGEST_LOG = 30.0
"""The logarithm of the largest ratio that an interval reaches: a tiny alpha, or few pairs, leave everything open."""


def student_quantile(z: float, freedom: int) -> float:
    """Return Student's t where the normal distribution has z (Abramowitz and Stegun, 26.7.5: four terms).

    Close from about ten degrees of freedom on; for fewer take `student_t`.
    """
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * freedom**4)
    )


@lru_cache(maxsize=1024)
def student_t(alpha: float, freedom: int) -> float:
    """Return the t that so many degrees of freedom exceed with chance alpha, below one half.

    The distribution in closed form (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4), in
    time that grows with the degrees of freedom; for many of them take `student_quantile`.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _upper_tail(middle, freedom) > alpha else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def detectable_errors(t: float, freedom: int) -> float:
    """Return the standard errors that a difference must have so that Student's t exceeds `t` 9 times in 10.

    By the normal approximation of the noncentral t (Abramowitz and Stegun, 26.7.10).
    """
    return t * (1 - 1 / (4 * freedom)) + POWER_Z * math.sqrt(1 + t**2 / (2 * freedom))


def _upper_tail(angle: float, freedom: int) -> float:
    """Return the chance of a t above the root of `freedom` times the angle's tangent."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    for step in range(2 + odd, freedom - 1, 2):
        term *= (step - 1) / step * cosine**2
        total += term
    if not odd:
        return (1 - sine * total) / 2
    return 0.5 - (angle + (sine * total if freedom > 1 else 0.0)) / math.pi


SAME_TICK_US = 2.5e-3
"""Readings of one tick of a clock are closer: the profiler rounds to nanoseconds, and they differ by up to 2."""
LEAST_FOR_STD = 10
"""The fewest samples that give the standard deviation an interval."""
LEAST_OF_USE = 4
"""Fewer independent samples decide next to nothing, so they are not counted further."""
SWING = 6.0
"""Of samples worth fewer, which may lie in one slow swing, the deviation counts as at most so many times the range."""


class Interval(NamedTuple):
    """A confidence interval, ends included."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """The distance between the ends."""
        return self.high - self.low


def check_alpha(alpha: float) -> None:
    """Raise ValueError for an alpha that decides nothing."""
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha must be between 0 and 0.5: {alpha!r}")


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """Return the three quartiles, interpolated between samples (the samples are the whole population)."""
    if len(samples) == 1:
        return (samples[0],) * 3
    first, second, third = statistics.quantiles(samples, n=4, method="inclusive")
    return first, second, third


def steps_us(samples_us: Sequence[float]) -> list[float]:
    """Return the distances between neighbouring samples that are not readings of one tick."""
    return [step for one, other in pairwise(sorted(samples_us)) if (step := other - one) > SAME_TICK_US]


def rel_std(samples: Sequence[float]) -> float:
    """Return the sample standard deviation over the mean; nan for fewer than two samples."""
    if len(samples) < 2:
        return math.nan
    return statistics.stdev(samples) / statistics.fmean(samples)


@lru_cache(maxsize=4096)
def lower_rank(count: int, alpha: float, quarter: int = 2) -> int | None:
    """Return the largest rank whose order statistic is above a quartile with probability at most alpha / 2.

    quarter: 2 for the median. It is above where fewer than so many of `count` samples are at or below the quartile, of
    which each is with probability quarter / 4: counted exactly, in whole numbers. The samples of this rank from below
    and of that for 4 - quarter from above enclose the quartile of any continuous distribution with probability
    1 - alpha (David and Nagaraja, Order Statistics, 3rd edition, section 7.1). None where even the smallest sample is
    above too often.
    """
    part, whole = Fraction(quarter, 4).as_integer_ratio()
    total, ways, below = whole**count, (whole - part) ** count, 0
    for rank in range(count + 1):
        below += ways
        if below / total > alpha / 2:
            return rank or None
        ways = ways * (count - rank) * part // ((rank + 1) * (whole - part))
    return None


def least_count(alpha: float, quarter: int = 2) -> int:
    """Return the smallest number of samples that gives an interval of a quartile, the median, at this alpha."""
    rarest = min(quarter, 4 - quarter) / 4
    return math.ceil(math.log(alpha / 2) / math.log(1 - rarest) - 1e-12)


def median_interval(
    samples: Sequence[float], alpha: float = 0.05, independent: int | None = None, quarter: int = 2
) -> Interval | None:
    """Return the distribution-free interval of the median; None where there are too few samples for alpha.

    independent: how many independent samples these are worth (`independent_for`); None is all of them, and the
    interval is exact. With fewer, as large a share of the samples is left out at each end as of so many.
    quarter: of another quartile, as for `lower_rank`.
    """
    count = len(samples) if independent is None else independent
    low, high = lower_rank(count, alpha, quarter), lower_rank(count, alpha, 4 - quarter)
    if low is None or high is None:
        return None
    ordered = sorted(samples)
    return Interval(ordered[low * len(samples) // count - 1], ordered[-(high * len(samples) // count)])


def std_interval(samples: Sequence[float], alpha: float, independent: int | None = None) -> Interval | None:
    """Return an interval of the standard deviation that holds without normality; None for fewer than ten samples.

    independent: how many independent samples these are worth (`independent_for`); None is all of them. The interval is
    that of so many: modes that change slowly have a share in the samples by chance, and with it their kurtosis. Of ten
    or more samples that are worth four to nine it begins at 0 and ends where that of ten does: they never show that the
    deviation is large, and do show where it is much smaller than a limit. For those worth fewer see `SWING`.

    The upper end is D. G. Bonett's (Approximate confidence interval for standard deviation of nonnormal distributions,
    Computational Statistics & Data Analysis 50, 2006): a normal interval on ln(variance) whose width comes from the
    kurtosis about a trimmed mean. His lower end is above the truth up to five times as often as alpha at alpha 0.001
    (two modes, simulated); without his small-sample factor on the variance, and with Student's t for the normal
    quantile, that is at most 1.3 times. Samples that are all equal give (0, 0).
    """
    total = len(samples)
    if total < LEAST_FOR_STD:
        return None
    if independent is not None and independent < LEAST_OF_USE:
        return Interval(0.0, SWING * (max(samples) - min(samples)))
    count = total if independent is None else max(independent, LEAST_FOR_STD)
    mean = statistics.fmean(samples)
    spread = math.fsum((x - mean) ** 2 for x in samples)
    if spread == 0 or max(samples) == min(samples):
        return Interval(0.0, 0.0)
    z = -statistics.NormalDist().inv_cdf(alpha / 2)  # 1 - alpha / 2 rounds to 1 below alpha 1e-16
    if count <= z:
        return None
    cut = int(total / (2 * math.sqrt(total - 4)))  # of a mean that is trimmed at each end
    centre = statistics.fmean(sorted(samples)[cut : total - cut])
    kurtosis = total * math.fsum((x - centre) ** 4 for x in samples) / spread**2
    correction = count / (count - z)
    error = correction * math.sqrt(max(kurtosis - (count - 3) / count, 0) / (count - 1))
    variance = spread / (total - 1)
    low = math.sqrt(variance) * math.exp(-student_quantile(z, count - 1) * error / 2)
    low = low if independent is None or independent == count else 0.0
    return Interval(low, math.sqrt(correction * variance) * math.exp(z * error / 2))
