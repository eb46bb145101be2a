"""The spread of a statistic between processes that run the same code, and the changes that it hides.

The samples of one process share its addresses, clocks and autotuned choices, so their interval says nothing of the next
process. Three things are known of the spread between processes: what a test's own sessions differ by, what those of its
suite do, and what was measured on GPUs before anything is saved (`UNKNOWN_TIME`). They are put together as in the
moderated t (Smyth 2004, "Linear models and empirical Bayes methods"): variances with degrees of freedom are averaged by
these, so that every session adds some and Student's quantile falls. All spreads are of natural logarithms.

No spread describes a kernel with modes, which takes one of two or three times, up to half as long again, by the
addresses of its process. `outliers_allowed` has what is certain then.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile

from pytest_gpubench.stats.regression import ChangeEstimate
from pytest_gpubench.stats.summary import LARGEST_LOG, Interval, detectable_errors, student_t

LEAST_STD = 0.0005
"""Sessions that agree better by chance, or by the ticks of a clock, say nothing more."""
PRIOR_TESTS = 4
"""The facts known of GPUs count as so many tests of a suite."""
MOST_PRIOR_FREEDOM = 20
"""A suite counts as so many further sessions of a test, at most: one may differ from all others."""
UNLIKE = 4.0
"""A test whose variance is more than so many times its suite's is the less like the others (Efron and Morris 1972,
"Limiting the risk of Bayes and empirical Bayes estimators": limited translation)."""
POWER = 0.9
"""The chance with which a decidable change is decided."""
MODES_APART = 1.5
"""The slowest mode of a kernel over its fastest: 133 to 203 us were measured on H200s where atomics contend."""
SHARES = 1000
"""The steps in which the worst share of the slower mode is looked for."""


@dataclass(frozen=True)
class ProcessSpread:
    """The standard deviation between processes as a share, and the degrees of freedom that it is known with."""

    std: float
    freedom: int

    def half_width(self, alpha: float, old: int, new: int = 1) -> float:
        """Return the excess of `new` sessions over `old` ones that the same code reaches with chance alpha."""
        return student_t(alpha, self.freedom) * self.std * math.sqrt(1 / old + 1 / new)

    def decidable(self, alpha: float, old: int, new: int = 1) -> float:
        """Return the smallest tolerance, as a share, that the same code passes with a chance of 0.9.

        Samples are taken to leave nothing open.
        """
        return math.expm1(self.half_width(alpha, old, new) + self.half_width(1 - POWER, old, new))


UNKNOWN_TIME = ProcessSpread(0.003, 8)
"""The spread of a time where nothing was saved twice.

Medians of ordinary kernels in fresh processes had standard deviations of 0.07 to 0.40 % on H200s (tests/on_gpu/README,
"Baselines"; `doctor --noise`). Eight degrees of freedom put 90 % of tests between 0.2 and 0.5 %, and 1 % above 0.65 %.
"""
UNKNOWN_SPEEDUP = replace(UNKNOWN_TIME, std=UNKNOWN_TIME.std * math.sqrt(2))
"""The spread of a speedup: both of its arms differ."""


def spread_of(*groups: Sequence[float]) -> ProcessSpread | None:
    """Return the spread of logarithms within groups of sessions; None where no group has two."""
    freedom = sum(len(group) - 1 for group in groups if group)
    if not freedom:
        return None
    squares = sum(statistics.variance(group) * (len(group) - 1) for group in groups if len(group) > 1)
    return ProcessSpread(max(math.sqrt(squares / freedom), LEAST_STD), freedom)


def spread_of_suite(tests: Sequence[ProcessSpread], unknown: ProcessSpread) -> ProcessSpread:
    """Return the spread that a test of the suite is expected to have; unknown: where nothing is known of it.

    It lies between the tests' own and the unknown one. Its degrees of freedom are the more the less the tests differ
    from each other beyond chance, and never fewer than those of the unknown one.
    """
    if not tests:
        return unknown
    prior = _trigamma(unknown.freedom / 2)
    chances = [_trigamma(test.freedom / 2) for test in tests]
    weights = [*(1 / (prior + chance) for chance in chances), PRIOR_TESTS / prior]
    logs = [2 * math.log(each.std) - _log_bias(each.freedom) for each in (*tests, unknown)]
    level = math.fsum(weight * log for weight, log in zip(weights, logs, strict=True)) / math.fsum(weights)
    between = statistics.fmean((log - level) ** 2 for log in logs[:-1]) - statistics.fmean(chances)
    differing = (len(tests) * max(between, 0.0) + PRIOR_TESTS * prior) / (len(tests) + PRIOR_TESTS)
    ways = range(unknown.freedom + 1, MOST_PRIOR_FREEDOM + 1)  # whose variances differ as much by chance
    freedom = max((each for each in ways if _trigamma(each / 2) >= differing), default=unknown.freedom)
    return ProcessSpread(math.exp((level + _log_bias(freedom)) / 2), freedom)


def shrunk(own: ProcessSpread | None, suite: ProcessSpread) -> ProcessSpread:
    """Return a test's spread by its own sessions, as far as it has some, and by its suite."""
    if own is None:
        return suite
    weight = suite.freedom * min(1.0, UNLIKE * (suite.std / own.std) ** 2)
    variance = (own.freedom * own.std**2 + weight * suite.std**2) / (own.freedom + weight)
    return ProcessSpread(math.sqrt(variance), int(own.freedom + weight))


def sessions_differ_by(sessions: Sequence[Sequence[float]], ticks: Sequence[float], alpha: float) -> float:
    """Return what the logarithms of two sessions of the same code, of different days, differ by with chance alpha.

    sessions: the logarithms in those of each run, which share its day, card and clock: they may differ by more than is
    known of GPUs, and that they differ by less says nothing. ticks: that of the clock as a share of the time, and of
    the reference's for a speedup: a median between two ticks is read as either, which is a deviation of half a tick.
    """
    known = UNKNOWN_SPEEDUP if len(ticks) > 1 else UNKNOWN_TIME
    std = math.hypot(max(shrunk(spread_of(*sessions), known).std, known.std), *(tick / 2 for tick in ticks))
    return -statistics.NormalDist().inv_cdf(alpha / 2) * math.sqrt(2) * std


@lru_cache(maxsize=256)
def outliers_allowed(old: int, new: int, alpha: float) -> int | None:
    """Return how many sessions of either run may lie on the other's side of a gap that the runs still part at.

    The same code with two modes parts like that with a chance of at most alpha, whatever the share of the slower mode:
    of five and five sessions none may, and one of nine and nine. None where even runs that part wholly may do so by
    chance, as one old session does from any number of new ones.
    """
    shares = [each / SHARES for each in range(1, SHARES)]

    def chance(most: int) -> float:
        return max(_at_most(most, old, share) * _at_most(most, new, 1 - share) for share in shares)

    return max(takewhile(lambda most: chance(most) <= alpha, range(min(old, new))), default=None)


def _at_most(most: int, count: int, share: float) -> float:
    """Return the chance that at most so many of `count` have what a share has."""
    return math.fsum(math.comb(count, each) * share**each * (1 - share) ** (count - each) for each in range(most + 1))


def change_across(estimates: Sequence[ChangeEstimate], half: float) -> ChangeEstimate:
    """Return the change over all pairs of an old and a new session, with an interval that holds for further processes.

    estimates: one for each pair, of one metric. half: what processes alone leave undecided, as a share. Distances of an
    end by the samples and by the processes do not depend on each other, and are added as squares (Zou and Donner 2008,
    "Construction of confidence limits about effect measures").
    """
    if len(estimates) == 1 and not half:
        return estimates[0]
    old, new = (statistics.geometric_mean([getattr(each, which) for each in estimates]) for which in ("old", "new"))
    ratio = statistics.geometric_mean([each.ratio for each in estimates])
    logs = _widened([each.interval for each in estimates], math.log, math.log(ratio), half)
    differences = _widened([each.difference for each in estimates], float, new - old, half * max(old, new))
    interval = None if logs is None else Interval(math.exp(logs.low), math.exp(logs.high))
    return replace(estimates[0], ratio=ratio, interval=interval, old=old, new=new, difference=differences)


def _widened(
    found: Sequence[Interval | None], scale: Callable[[float], float], middle: float, half: float
) -> Interval | None:
    """Return the mean of intervals on a scale, each end further from the middle; None where one is missing."""
    intervals = [each for each in found if each is not None]
    if len(intervals) < len(found):
        return None
    low, high = (statistics.fmean(scale(each[end]) for each in intervals) for end in (0, 1))
    return Interval(middle - math.hypot(middle - low, half), middle + math.hypot(high - middle, half))


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


@dataclass(frozen=True)
class RunNoise:
    """The spread between runs of the same code."""

    spread: float
    """The standard deviation of the log-ratio of a pair of runs, in the typical measurement."""

    def smallest_change(self, pairs: int, alpha: float) -> float:
        """Return the smallest slowdown that so many pairs tell from none, 9 times in 10; infinite for a single pair."""
        if pairs < 2:
            return math.inf
        errors = detectable_errors(student_t(alpha, pairs - 1), pairs - 1)
        return math.expm1(min(errors * self.spread / math.sqrt(pairs), LARGEST_LOG))


def noise_of(log_ratios: Iterable[Sequence[float]]) -> RunNoise | None:
    """Estimate the noise from the pairs of each measurement; None where none has two.

    Only deviations from a measurement's own mean count, so a real change adds nothing. The median over the measurements
    is not moved by a few that are noisier than the others; dividing by Wilson and Hilferty's median of chi-squared
    makes it unbiased.
    """
    known = [pairs for pairs in log_ratios if len(pairs) > 1]
    variances = [statistics.variance(pairs) / (1 - 2 / (9 * (len(pairs) - 1))) ** 3 for pairs in known]
    return RunNoise(round(math.sqrt(statistics.median(variances)), 9)) if variances else None
