"""The speedup of a candidate over its reference: the order of timed calls, and the interval and verdict.

A quad is four calls timed one after the other, two of each arm, in one of six orders, each drawn with the same chance.
What disturbs the calls, a drift, a period, a burst, favours either arm equally often, as it does not know the order.
A quad has five votes on a limit: each of its four pairs of a reference time and a candidate time, and their mean. The
verdict counts votes at planned looks.
"""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar

from pytest_gpubench.stats.stopping import LEAST_COST_S
from pytest_gpubench.stats.summary import Interval, check_alpha

ArmName = TypeVar("ArmName")
Times = tuple[float, ...]

LOOKS = (6, 9, 12, 16, 21, 28, 37, 50, 66, 88, 118, 157, 210, 280, 370, 490, 640)
"""After how many quads to look, unless told otherwise; `critical_ranks` says what each look may decide."""
VOTES = 5
"""The votes of a quad."""
ROUNDED = 0.05
"""The part of a tick by which the median of dithered readings may be off, worked out for the worst of limits."""


class Quad(NamedTuple):
    """The two times of each arm in four calls, in microseconds."""

    reference_us: Times
    candidate_us: Times

    @property
    def votes(self) -> tuple[float, ...]:
        """The logarithms of reference time over candidate time: of each pair, and their mean."""
        ours, theirs = _logs(self.reference_us), _logs(self.candidate_us)
        return (*(our - their for our in ours for their in theirs), (sum(ours) - sum(theirs)) / 2)


def round_orders(arms: Sequence[ArmName], rounds: int, seed: int) -> tuple[tuple[ArmName, ...], ...]:
    """Return the order of the calls in each round: every arm twice, shuffled.

    The four calls of any two arms come in each of the six orders with the same chance, whatever the other rounds are.
    The first rounds are the same however many are asked for.
    """
    shuffler = random.Random(seed)
    return tuple(tuple(shuffler.sample([*arms, *arms], 2 * len(arms))) for _ in range(rounds))


def least_reps(alpha: float) -> int:
    """Return the fewest reps of each arm that decide at one look: quads all on one side are as rare as alpha."""
    return 2 * math.ceil(-math.log(alpha, 4) - 1e-12)


def next_look(looks: Sequence[int], least_more: int, taken: int, cost_s: float, left_s: float) -> int | None:
    """Return after how many quads to look next; None where all looks are done, or no time is left.

    cost_s: what a quad takes. The first look is always taken. Where time is too short for the next planned look, the
    last one is at what it is long enough for, if those are `least_more` or more.
    """
    following = next((look for look in looks if look > taken), None)
    if following is None or not taken:
        return following
    affordable = taken + int(left_s / max(cost_s, LEAST_COST_S))
    return min(following, affordable) if affordable >= taken + least_more else None


def log_ratios(quads: Sequence[Quad], fastest: bool = False) -> tuple[float, ...]:
    """Return the mean log of reference time over candidate time of each quad, or that of its fastest times.

    On a busy host a call waits now and then for longer than it takes: hardly a quad has none of that in its mean, and
    most have none in their fastest calls.
    """
    chosen = [[_logs((min(times),) if fastest else times) for times in quad] for quad in quads]
    return tuple((math.fsum(ours) - math.fsum(theirs)) / len(ours) for ours, theirs in chosen)


def _logs(times_us: Sequence[float]) -> list[float]:
    for elapsed_us in times_us:
        if not 0 < elapsed_us < math.inf:
            raise ValueError(f"a time must be above 0 us and finite to be compared: {elapsed_us!r}")
    return [math.log(elapsed_us) for elapsed_us in times_us]


@dataclass(frozen=True)
class SpeedupEstimate:
    """The speedup of a candidate over the reference, with its interval."""

    ratio: float
    """Reference time over candidate time, the median over the votes; above 1 where the candidate is faster."""
    interval: Interval | None
    """The ratio's interval, as a verdict uses it; None if there are too few quads for alpha."""
    quads: int
    alpha: float
    """The chance that the lower end is ever above the truth, at any look; likewise for the upper end below it."""


def speedup_of(
    quads: Sequence[Quad], alpha: float, looks: tuple[int, ...] | None = None, tick_us: float = 0.0
) -> SpeedupEstimate:
    """Return the speedup that quads show, with its interval at this look.

    tick_us: the step of the clock, of which a part widens the interval: in 1,000 simulated sessions each up to 2 %
    failed at the limit without it, by how the steps of the clock lie to the limit.
    looks: the planned numbers of quads, one of which this must be, None for this one alone. The ends are order
    statistics of the votes, chosen by `critical_ranks`: the repeated confidence interval of Jennison and Turnbull
    (Group Sequential Methods with Applications to Clinical Trials, chapter 9), which holds at all looks together: where
    each look is decided by it until one is decided, a limit that is kept fails with a chance of at most alpha, and one
    that is broken passes with a chance of at most alpha.
    """
    looks = (len(quads),) if looks is None else looks
    rank = critical_ranks(looks, alpha)[looks.index(len(quads))]
    ordered = sorted(vote for quad in quads for vote in quad.votes)
    off = ROUNDED * tick_us / min(time_us for quad in quads for times in quad for time_us in times) if tick_us else 0.0
    interval = None if rank is None else Interval(math.exp(ordered[rank - 1] - off), math.exp(ordered[-rank] + off))
    return SpeedupEstimate(math.exp(statistics.median(ordered)), interval, len(quads), alpha)


@lru_cache(maxsize=256)
def critical_ranks(looks: tuple[int, ...], alpha: float) -> tuple[int | None, ...]:
    """Return for each look the rank whose order statistics of all votes, from both ends, enclose the speedup.

    None: too few quads. If the true speedup is the limit, the votes of a quad that are for the candidate are 0, 1, 2,
    3, 4 or 5 with equal chances where both arms have the same noise, as that is a matter of the order alone; where one
    is steady and the other noisy they are 0, 2, 3 or 5, which spreads more and is assumed here. FAIL at a look means
    that fewer votes than `rank` are for it. Ranks are the largest for which the chance to have failed at one of the
    looks so far, counted path by path, is at most alpha k/(k+1) after the k-th look and alpha after the last: error
    spending (Lan and DeMets, Discrete sequential boundaries for clinical trials, Biometrika 70, 1983). A rank depends
    on the looks before it and on whether it is the last: a session that runs out of time ends its plan with the number
    of quads it has, `(*looks_taken, quads)`, and its last look takes all that is left of alpha.
    """
    check_alpha(alpha)
    ranks: list[int | None] = []
    chances, spent, taken = [1.0], 0.0, 0
    for look, quads in enumerate(looks, 1):
        chances = _walk_on(chances, quads - taken, most=VOTES * looks[-1] // 2)
        taken, rank = quads, 0
        spendable = (alpha if look == len(looks) else alpha * look / (look + 1)) * (1 + 1e-12)
        while rank < len(chances) and spent + chances[rank] <= spendable:
            spent, chances[rank], rank = spent + chances[rank], 0.0, rank + 1
        ranks.append(rank or None)
    return tuple(ranks)


def _walk_on(chances: list[float], quads: int, most: int) -> list[float]:
    """Return the chance of each number of votes up to `most` after more quads: 0, 2, 3 or 5 in each."""
    for _ in range(quads):
        for votes in (2, 3):
            gap = [0.0] * votes
            chances = [(less + more) / 2 for less, more in zip(chances + gap, gap + chances, strict=True)]
        del chances[most + 1 :]
    return chances
