"""The speedup of a candidate over its reference: the order of timed calls, and the interval and verdict.

A quad is four calls timed one after the other, two of each arm, in the order ABBA or BAAB (A is the reference). Its
sample is one log-ratio: noise that both arms share, and any linear drift, cancel within it, and a drift of any other
shape pushes it up as often as down because the order is drawn at random. The verdict is a sign test on these samples,
repeated at planned looks: it assumes nothing about the shape of their distribution. Pooling neighbouring quads that
resemble each other was simulated and is not done: what both arms share cancels without it, and where the ratio itself
wanders it took up to three times the quads and left the error at the limit 5 to 160 times alpha instead of 6 to 370.
"""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeVar

from pytest_gpubench.stats.summary import Interval

Arm = TypeVar("Arm")
Decision = Literal["pass", "fail", "open"]

LOOKS = (20, 40, 80, 160, 320, 640)
"""After how many quads to look, unless told otherwise; `critical_ranks` says what each look may decide."""
ORDER_BLOCK = 10
"""After so many rounds every order has come as often as its opposite; even, and a divisor of every look."""


# the order of the calls


def round_orders(arms: Sequence[Arm], rounds: int, seed: int) -> tuple[tuple[Arm, ...], ...]:
    """Return the order of the calls in each round: every arm twice, a shuffled order and then its mirror image.

    The two places of an arm add up to the same for all arms, so a linear drift cancels in every pair. Within each
    ORDER_BLOCK rounds every order comes as often as its opposite, so any two arms take the outer places equally often.
    The first rounds are the same however many are asked for.
    """
    if len(arms) < 2:
        raise ValueError(f"there must be two arms or more, not {len(arms)}")
    shuffler = random.Random(seed)
    planned: list[tuple[Arm, ...]] = []
    while len(planned) < rounds:
        halves = [tuple(shuffler.sample(arms, len(arms))) for _ in range(ORDER_BLOCK // 2)]
        block = [half + half[::-1] for half in halves] + [half[::-1] + half for half in halves]
        shuffler.shuffle(block)
        planned += block
    return tuple(planned[:rounds])


def quads_of(reps: int) -> int:
    """Return the quads that so many reps of each arm make: two reps of each in a quad, the last one filled up."""
    return math.ceil(reps / 2)


def least_reps(alpha: float) -> int:
    """Return the fewest reps of each arm that decide at one look: quads all on one side are as rare as alpha."""
    return 2 * math.ceil(-math.log2(alpha))


# the samples


def log_ratio(reference_us: Sequence[float], candidate_us: Sequence[float]) -> float:
    """Return the mean log of reference time over candidate time of one quad; above 0 where the candidate is faster."""
    if len(reference_us) != len(candidate_us) or not reference_us:
        raise ValueError(f"arms must have equally many times: {len(reference_us)} and {len(candidate_us)}")
    return (_sum_of_logs(reference_us) - _sum_of_logs(candidate_us)) / len(reference_us)


def _sum_of_logs(times_us: Sequence[float]) -> float:
    for elapsed_us in times_us:
        if not 0 < elapsed_us < math.inf:
            raise ValueError(f"a time must be above 0 us and finite to be compared: {elapsed_us!r}")
    return math.fsum(map(math.log, times_us))


def needed_batch(tick_us: float, time_us: float, margin: float) -> int:
    """Return how many quads to pool into one sample so that a tick is at most half the margin of so many calls.

    margin: the relative difference that must be seen, 0.01 for 1 %. A clock that ticks too coarsely turns log-ratios
    into a few steps, whose median is not the true ratio: half the margin keeps it within a sixth of the margin (worked
    out for calls without jitter, the worst case), so that beyond it no verdict is the clock's. Larger pools decide no
    sooner what is close to the limit, and cost more calls where it is not. Pooled quads cancel noise that comes and
    goes within a few calls; as many calls of one arm in a row would not.
    """
    if not (0 <= tick_us < math.inf and 0 < time_us < math.inf and 0 < margin < math.inf):
        raise ValueError(f"no batch for a tick of {tick_us!r} us, a time of {time_us!r} us, a margin of {margin!r}")
    return max(1, math.ceil(2 * tick_us / (margin * time_us) - 1e-9))


def pooled(log_ratios: Sequence[float], block: int) -> tuple[float, ...]:
    """Return the means of so many consecutive quads; the last ones are left out where they do not fill a block."""
    if block < 1:
        raise ValueError(f"a block must hold at least one quad, not {block}")
    starts = range(0, len(log_ratios) // block * block, block)
    return tuple(statistics.fmean(log_ratios[start : start + block]) for start in starts)


# the verdict


@dataclass(frozen=True)
class SpeedupEstimate:
    """The speedup of a candidate over the reference, with its interval."""

    ratio: float
    """Reference time over candidate time, the median over the quads; above 1 where the candidate is faster."""
    interval: Interval | None
    """The ratio's interval, as a verdict uses it; None if there are too few quads for alpha."""
    quads: int
    """The samples it is made of: quads, or blocks of them where a coarse clock asks for it."""
    alpha: float
    """The chance that the lower end is ever above the truth, at any look; likewise for the upper end below it."""


def speedup_of(log_ratios: Sequence[float], alpha: float, looks: tuple[int, ...] | None = None) -> SpeedupEstimate:
    """Return the speedup that log-ratios show, with its interval at this look.

    looks: the planned numbers of quads, one of which this must be, None for this one alone. The ends are order
    statistics, chosen by `critical_ranks`: the repeated confidence interval of Jennison and Turnbull (Group Sequential
    Methods with Applications to Clinical Trials, chapter 9) for the median, which holds at all looks together.
    """
    if not log_ratios:
        raise ValueError("there is no speedup without a quad")
    rank = _rank_at(len(log_ratios), alpha, looks)
    ordered = sorted(log_ratios)
    interval = None if rank is None else Interval(math.exp(ordered[rank - 1]), math.exp(ordered[-rank]))
    return SpeedupEstimate(math.exp(statistics.median(ordered)), interval, len(ordered), alpha)


def _rank_at(quads: int, alpha: float, looks: tuple[int, ...] | None) -> int | None:
    looks = (quads,) if looks is None else looks
    if quads not in looks:
        raise ValueError(f"{quads} quads are none of the planned looks {looks}: end the plan with them")
    return critical_ranks(looks, alpha)[looks.index(quads)]


def compare(interval: Interval | None, limit_ratio: float) -> Decision:
    """Return "pass" where the whole interval is at least the limit, "fail" where all of it is below, else "open".

    Where each look is decided like this, by the interval of `speedup_of`, until one is not open, the chance of "fail"
    is at most alpha if the median speedup is at least the limit, and the chance of "pass" is at most alpha if it is
    below.
    """
    if not 0 < limit_ratio < math.inf:
        raise ValueError(f"a limit on the speedup must be above 0 and finite: {limit_ratio!r}")
    if interval is None:
        return "open"
    if interval.low >= limit_ratio:
        return "pass"
    return "fail" if interval.high < limit_ratio else "open"


@lru_cache(maxsize=256)
def critical_ranks(looks: tuple[int, ...], alpha: float) -> tuple[int | None, ...]:
    """Return for each look the rank whose order statistics, from both ends, enclose the median; None: too few quads.

    If the true median is the limit, the number of quads on its good side is a fair binomial walk, and FAIL at a look
    means that fewer than `rank` of them are there. Ranks are the largest for which the chance to have failed at one of
    the looks so far, counted exactly path by path, is at most alpha k/(k+1) after the k-th look and alpha after the
    last: error spending (Lan and DeMets, Discrete sequential boundaries for clinical trials, Biometrika 70, 1983).
    At LOOKS and alpha 0.001 it spends 0.00097, an even Bonferroni split 0.00053. A rank depends on the looks before it
    and on whether it is the last: a session that runs out of time ends its plan with the number of quads it has,
    `(*looks_taken, quads)`, and its last look takes all that is left of alpha.
    """
    if not looks or looks[0] < 1 or any(later <= look for look, later in pairwise(looks)):
        raise ValueError(f"looks must be increasing numbers of quads: {looks}")
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha must be between 0 and 0.5: {alpha!r}")
    ranks: list[int | None] = []
    walks, crossed, taken = [1], 0, 0
    for look, quads in enumerate(looks, 1):
        walks = _walk_on(walks, quads - taken, most=looks[-1] // 2)
        crossed, taken, rank = crossed << (quads - taken), quads, 0
        spendable = alpha if look == len(looks) else alpha * look / (look + 1)
        while rank < len(walks) and (crossed + walks[rank]) / 2**quads <= spendable:
            crossed, walks[rank], rank = crossed + walks[rank], 0, rank + 1
        ranks.append(rank or None)
    return tuple(ranks)


def _walk_on(walks: list[int], steps: int, most: int) -> list[int]:
    """Return how many walks end at each height up to `most` after more steps, each of them up or level."""
    ways = [1]
    for ups in range(min(steps, most)):
        ways.append(ways[-1] * (steps - ups) // (ups + 1))
    ends = [0] * min(len(walks) + len(ways) - 1, most + 1)
    for height, before in enumerate(walks):
        if before:
            for ups, number in enumerate(ways[: len(ends) - height]):
                ends[height + ups] += before * number
    return ends
