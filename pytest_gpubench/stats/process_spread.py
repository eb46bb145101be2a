"""The spread of a statistic between processes that run the same code, and the changes that it hides.

The samples of one process share its addresses, clocks and autotuned choices, so their interval says nothing of the next
process. On H200s the medians of ordinary kernels in fresh processes had standard deviations of 0.14 to 0.40 %, those of
kernels with contended atomics 2.5 to 5.5 %. A test with several saved sessions has a spread of its own, of few degrees
of freedom. It is shrunk towards the spread of the whole suite (Smyth 2004, "Linear models and empirical Bayes methods",
the moderated t), which also makes Student's quantiles smaller. All spreads are of natural logarithms.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pytest_gpubench.stats.regression import Change
from pytest_gpubench.stats.student import student_t
from pytest_gpubench.stats.summary import Interval

LEAST_STD = 0.0005
"""Sessions that agree better by chance, or by the ticks of a clock, say nothing more."""
LEAST_FREEDOM = 5
"""What is known of GPUs fills a test's own degrees of freedom up to so many, and counts as one at least.

A test alone in its suite, with five sessions that differ by 0.8 % and not by 0.3 %, then fails at the tolerance 0.13 %
of the time; it was 0.4 % where its own sessions counted for the suite too.
"""
MOST_PRIOR_FREEDOM = 20
"""A suite counts as so many further sessions of a test, at most: one may differ from all others."""
POWER = 0.9
"""The chance with which a decidable change is decided."""


@dataclass(frozen=True)
class ProcessSpread:
    """The standard deviation between processes as a share, and the degrees of freedom that it is known with."""

    std: float
    freedom: int

    def half_width(self, alpha: float, old: int, new: int = 1) -> float:
        """Return the excess of `new` sessions over `old` ones that the same code reaches with chance alpha."""
        return _quantile(alpha, self.freedom) * self._error(old, new)

    def decidable(self, alpha: float, old: int, new: int = 1) -> float:
        """Return the share beyond a tolerance that is called FAIL with a chance of 0.9 if samples leave nothing open.

        The same code passes a tolerance of this share with the same chance.
        """
        return math.expm1(self.half_width(alpha, old, new) + _quantile(1 - POWER, self.freedom) * self._error(old, new))

    def _error(self, old: int, new: int) -> float:
        return self.std * math.sqrt(1 / old + 1 / new)


UNKNOWN_TIME = ProcessSpread(0.003, MOST_PRIOR_FREEDOM)
"""The spread of a time where nothing was saved twice."""
UNKNOWN_SPEEDUP = ProcessSpread(0.003 * math.sqrt(2), MOST_PRIOR_FREEDOM)
"""The spread of a speedup: both of its arms differ."""


def spread_of(*groups: Sequence[float]) -> ProcessSpread | None:
    """Return the spread of logarithms within groups of sessions; None where no group has two."""
    freedom = sum(len(group) - 1 for group in groups if group)
    if not freedom:
        return None
    squares = sum(statistics.variance(group) * (len(group) - 1) for group in groups if len(group) > 1)
    return ProcessSpread(max(math.sqrt(squares / freedom), LEAST_STD), freedom)


def spread_of_suite(tests: Sequence[ProcessSpread], unknown: ProcessSpread) -> ProcessSpread:
    """Return the spread that a further test of the suite is expected to have; unknown: what counts as one more test.

    Its degrees of freedom are fewer the more the tests differ from each other.
    """
    if not tests:
        return unknown
    logs = [_unbiased_log(test) for test in (*tests, unknown)]
    by_chance = statistics.fmean(_trigamma(test.freedom / 2) for test in tests) * len(tests) / len(logs)
    between = statistics.variance(logs) - by_chance
    own = max(test.freedom for test in tests)
    others = sum(test.freedom for test in tests) - own
    known = max(1, LEAST_FREEDOM - own, min(MOST_PRIOR_FREEDOM, others))
    freedom = max((each for each in range(1, known + 1) if _trigamma(each / 2) >= between), default=1)
    variance = math.exp(statistics.fmean(logs) + _log_bias(freedom))
    return ProcessSpread(math.sqrt(variance), freedom)


def shrunk(own: ProcessSpread | None, suite: ProcessSpread) -> ProcessSpread:
    """Return a test's spread by its own sessions, as far as it has some, and by its suite."""
    if own is None:
        return suite
    freedom = own.freedom + suite.freedom
    return ProcessSpread(math.sqrt((own.freedom * own.std**2 + suite.freedom * suite.std**2) / freedom), freedom)


def change_across(changes: Sequence[Change], half: float) -> Change:
    """Return the change over all pairs of an old and a new session, with an interval that holds for further processes.

    changes: one for each pair, of one metric. half: what processes alone leave undecided, as a share. The distances of
    an end by the samples and by the processes do not depend on each other, and are added as squares (Zou and Donner
    2008, "Construction of confidence limits about effect measures").
    """
    if len(changes) == 1 and not half:
        return changes[0]
    old, new = (_geometric_mean([getattr(each, which) for each in changes]) for which in ("old", "new"))
    ratio = _geometric_mean([each.ratio for each in changes])
    logs = _widened([each.interval for each in changes], math.log, math.log(ratio), half)
    differences = _widened([each.difference for each in changes], float, new - old, half * max(old, new))
    interval = None if logs is None else Interval(math.exp(logs.low), math.exp(logs.high))
    return replace(changes[0], ratio=ratio, interval=interval, old=old, new=new, difference=differences)


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def _widened(
    found: Sequence[Interval | None], scale: Callable[[float], float], middle: float, half: float
) -> Interval | None:
    """Return the mean of intervals on a scale, each end further from the middle; None where one is missing."""
    intervals = [each for each in found if each is not None]
    if len(intervals) < len(found):
        return None
    low, high = (statistics.fmean(scale(each[end]) for each in intervals) for end in (0, 1))
    return Interval(middle - math.hypot(middle - low, half), middle + math.hypot(high - middle, half))


def _unbiased_log(spread: ProcessSpread) -> float:
    return 2 * math.log(spread.std) - _log_bias(spread.freedom)


@lru_cache(maxsize=256)
def _log_bias(freedom: int) -> float:
    """Return the expected difference of the logarithm of a variance from that of the true one: below 0."""
    half, step = freedom / 2, 1e-4
    return (math.lgamma(half + step) - math.lgamma(half - step)) / (2 * step) - math.log(half)


@lru_cache(maxsize=256)
def _trigamma(x: float) -> float:
    """Return the variance of the logarithm of a variance with 2 x degrees of freedom."""
    step = 1e-3
    return (math.lgamma(x + step) - 2 * math.lgamma(x) + math.lgamma(x - step)) / step**2


_quantile = lru_cache(maxsize=1024)(student_t)
