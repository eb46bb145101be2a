"""The slowdown of a new run against an old one, from the samples that both kept, and when that is certain.

The interval of a ratio is made of the exact intervals of both runs' statistics, each wrong with half of alpha, so that
it assumes nothing of the shape of either distribution. Simulated with 60 samples of each run at alpha 0.001 and a
change of exactly the margin, Mann-Whitney's test (Hodges and Lehmann's interval) failed up to 9 times as often as alpha
where spread or skew of the runs differ, 10 times where neighbouring samples resemble each other (AR 0.3), and 55 times
(AR 0.6); half-widths added as squares (Zou and Donner) 15 times at AR 0.6; this one twice there, and never in 20,000
trials where samples were independent. It pays with an interval half as wide again. Nothing helps samples that hardly
differ from their neighbours (85 times alpha at AR 0.9) nor a drift between the runs: for that there are speedups.
"""

import math
import operator
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_gpubench.stats.summary import Interval, check_alpha, median_interval, quartiles, student_quantile

Statistic = Literal["speedup", "median", "mean", "q1", "q3"]

QUARTERS: dict[str, int] = {"q1": 1, "median": 2, "q3": 3}
LEAST_FOR_MEAN = 10
"""The fewest samples for a mean: the variance of fewer says too little about a distribution's tail."""
LARGEST_LOG_RATIO = 300.0
"""No two times that were measured differ by a factor of e^300."""


@dataclass(frozen=True)
class ChangeEstimate:
    """The ratio of a statistic of the new run to that of the old run, with its interval."""

    ratio: float
    """New over old of a time, old over new of a speedup: above 1 is slower."""
    interval: Interval | None
    """The ratio's interval; None if there are too few samples for alpha."""
    metric: str
    alpha: float
    """The chance, at most, that the lower end is above the truth; likewise for the upper end below it."""
    old: float = math.nan
    """The statistic of the old run: microseconds, or a speedup."""
    new: float = math.nan
    difference: Interval | None = None
    """The interval of new less old in microseconds, as `interval`; None for speedups too."""
    counts: tuple[int, int] = (0, 0)
    """The samples of the old and the new run; of several sessions, those of one."""
    sessions: tuple[int, int] = (1, 1)
    """The sessions of the old and the new run, each a process of its own."""
    doubt: str = ""
    """The reason why it is no FAIL although the whole interval is beyond the tolerance; empty where it is one."""
    remedy: str = ""
    """The advice where it is INCONCLUSIVE because processes differ."""
    further: int = 0
    """The number of further sessions of the new run that may decide, or have to confirm a FAIL."""


def change_of_samples(
    old_us: Sequence[float], new_us: Sequence[float], metric: Statistic, alpha: float, tick_us: float = 0.0
) -> ChangeEstimate:
    """Return the change of a statistic of samples; a ratio above 1 is slower.

    old_us, new_us: times in microseconds; of the speedup the log-ratios of both runs. What reference and candidate
    share, a clock that is 3 % slower today, is in neither speedup.
    The median, the quartiles and the median speedup need no more than samples that are independent of each other: exact
    order-statistic intervals (David and Nagaraja, section 7.1). The mean has Welch's t and Fieller's interval of a
    ratio of means.
    tick_us: of the clock, by which every statistic may be half a tick off; 0 is none. Raises ValueError for samples
    that are not above 0 and finite, or where there are none.
    """
    check_alpha(alpha)
    noun, rule = "time", ("must be above 0 us and finite", math.ulp(0.0), sys.float_info.max)
    if metric == "speedup":
        noun, rule = "log-ratio", ("cannot be measured", -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    old, new = (_ordered(us, f"{noun} of the {run} run", *rule) for us, run in ((old_us, "old"), (new_us, "new")))
    if metric == "mean":
        return _change_of_means(old, new, alpha, tick_us)
    quarter, counts = QUARTERS.get(metric, 2), (len(old), len(new))
    was, now = quartiles(old)[quarter - 1], quartiles(new)[quarter - 1]
    before, after = (median_interval(samples, alpha, quarter=quarter) for samples in (old, new))
    ratio = difference = None
    if metric == "speedup":
        if before is not None and after is not None:
            ratio = Interval(math.exp(before.low - after.high), math.exp(before.high - after.low))
        return ChangeEstimate(math.exp(was - now), ratio, metric, alpha, math.exp(was), math.exp(now), None, counts)
    if before is not None and after is not None:
        half_us = tick_us / 2
        if min(after.low, before.low) > half_us:  # ticks may leave nothing above 0
            low, high = (after.low - half_us) / (before.high + half_us), (after.high + half_us) / (before.low - half_us)
            ratio = Interval(low, high)
        difference = Interval(after.low - before.high - tick_us, after.high - before.low + tick_us)
    return ChangeEstimate(now / was, ratio, metric, alpha, was, now, difference, counts)


def _change_of_means(old: Sequence[float], new: Sequence[float], alpha: float, tick_us: float) -> ChangeEstimate:
    old_mean, new_mean = math.fsum(old) / len(old), math.fsum(new) / len(new)
    ratio, ratios, difference = new_mean / old_mean, None, None
    if min(len(old), len(new)) >= LEAST_FOR_MEAN:
        errors = _squared_error(old, old_mean), _squared_error(new, new_mean)
        freedoms = len(old) - 1, len(new) - 1
        t = _welch_quantile(errors[0] * ratio**2, errors[1], freedoms, alpha)
        ratios = _fieller(old_mean, new_mean, (t**2 * errors[0], t**2 * errors[1]), tick_us)
        half = _welch_quantile(*errors, freedoms, alpha) * math.sqrt(sum(errors)) + tick_us
        difference = Interval(new_mean - old_mean - half, new_mean - old_mean + half)
    return ChangeEstimate(ratio, ratios, "mean", alpha, old_mean, new_mean, difference, (len(old), len(new)))


def _squared_error(samples: Sequence[float], mean: float) -> float:
    if samples[0] == samples[-1]:
        return 0.0  # though their mean may be rounded
    residuals = [sample - mean for sample in samples]
    return math.fsum(map(operator.mul, residuals, residuals)) / (len(samples) - 1) / len(samples)


def _welch_quantile(old_error: float, new_error: float, freedoms: tuple[int, int], alpha: float) -> float:
    """Return Student's t at 1 - alpha with the degrees of freedom of Welch and Satterthwaite, rounded down."""
    largest = max(old_error, new_error)
    if not largest:
        return 0.0
    old, new = old_error / largest, new_error / largest
    freedom = (old + new) ** 2 / (old**2 / freedoms[0] + new**2 / freedoms[1])
    return student_quantile(statistics.NormalDist().inv_cdf(1 - alpha), int(freedom + 1e-9))


def _fieller(old_mean: float, new_mean: float, spreads: tuple[float, float], tick_us: float) -> Interval | None:
    """Return the ratios of the means that are not rejected; None where one of the means may be 0.

    spreads: t times the standard error of each mean, squared.
    """
    old_part, new_part = old_mean**2 - spreads[0], new_mean**2 - spreads[1]
    if old_part <= 0 or new_part <= 0:
        return None
    product = old_mean * new_mean
    # product**2 - old_part * new_part, without the difference of what is nearly equal
    root = math.sqrt(old_mean**2 * spreads[1] + new_mean**2 * spreads[0] - spreads[0] * spreads[1])
    low, high = new_part / (product + root), (product + root) / old_part
    old_share, new_share = tick_us / 2 / old_mean, tick_us / 2 / new_mean
    if old_share >= 1 or new_share >= 1:
        return None
    return Interval(low * (1 - new_share) / (1 + old_share), high * (1 + new_share) / (1 - old_share))


def _ordered(values: Sequence[float], what: str, rule: str, low: float, high: float) -> list[float]:
    """Return values in their order; raise ValueError where there are none, or one is not between low and high."""
    if not values:
        raise ValueError(f"there is no {what} to be compared")
    ordered = sorted(values)
    if not (low <= ordered[0] and ordered[-1] <= high) or math.isnan(sum(ordered)):
        wrong = next(value for value in values if not low <= value <= high)
        raise ValueError(f"a {what} {rule}: {wrong!r}")
    return ordered
