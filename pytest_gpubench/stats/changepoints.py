"""Changes of level in a series of runs, for good or for a while."""

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import mul, sub

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.stats.summary import POWER_Z, detectable_errors, student_t

LEAST_RUNS = 3
"""A level has at least so many runs: one or two slow nights are no change."""
LEAST_SERIES = 2 * LEAST_RUNS
"""In fewer runs no change is looked for."""
SHORT_SERIES = 15
"""Fewer runs have too few random orders, so that nothing stands out from them: Student's t decides."""
LARGEST_TICK = 0.03
"""The tick of the profiler's clock as a share of the shortest kernels' times."""
PERMUTATIONS = 399
SHUFFLE_SEED = 20200325
FARTHEST = 4.0
"""Robust standard deviations from the middle of a segment beyond which a value counts as that far, and no farther."""
THIRD_OF_NORMAL = 0.861
"""The length, in standard deviations, of the middle third of a normal distribution."""
GROWTH = 1.1


@dataclass(frozen=True)
class ChangePoint:
    """A change of level between two runs of a series."""

    index: int
    """The index of the first value at the new level."""
    ratio: float
    """The median of the new level over that of the one before: above 1 where values grew."""


def change_points(values: Sequence[float], alpha: float = 0.01, least: float = 0.0) -> list[ChangePoint]:
    """Return the changes of a series' level, in order; values are positive, such as medians in microseconds.

    The series is halved as in e-divisive (Matteson and James, A nonparametric approach for multiple change point
    analysis of multivariate data, Journal of the American Statistical Association 109, 2014), which MongoDB looks for
    regressions with (Daly et al., The use of change point detection to identify software performance regressions in a
    continuous integration system, ICPE 2020): the best place is accepted where random orders of the same values seldom
    have one as good, and both sides are searched in their turn. Instead of their energy distance, which takes the
    square of the length for each order, it is the difference of means of logarithms, far values drawn in; and where no
    single place is accepted, a stretch against all around it is looked for, as in circular binary segmentation
    (Olshen et al., Circular binary segmentation for the analysis of array-based DNA copy number data, Biostatistics 5,
    2004), without which a regression that was repaired hides itself.

    Of fewer than 15 values Student's two-sample t is compared with its quantile for all places together (Bonferroni's).

    alpha: the chance, at most, that anything is found in a series of exchangeable values, whatever their distribution;
    of a short series, if they are spread normally. Values that drift or depend on the one before are not exchangeable:
    slow drift is found as steps, and so are levels that runs of one day share. least: therefore the smallest logarithm
    of a ratio of levels that is a change, such as what two sessions of the same code differ by.
    Raises BadRequest for values that are not positive and finite.
    """
    if not all(math.isfinite(value) and value > 0 for value in values):
        raise BadRequest("change points are looked for in positive, finite values")
    logs = [math.log(value) for value in values]
    found = _large_ones(logs, _settle(logs, sorted(_search_changes(logs, 0, alpha))), least)
    steps = pairwise(_levels(logs, found))
    return [ChangePoint(index, math.exp(after - before)) for index, (before, after) in zip(found, steps, strict=False)]


def smallest_step(values: Sequence[float], alpha: float, least: float = 0.0) -> float | None:
    """Return by what share the last three of these values must differ from the others to be found 9 times in 10.

    values: a series without a change. least: as for `change_points`. None where it is too short for any, or so long
    that random orders decide.
    """
    if not LEAST_SERIES <= len(values) < SHORT_SERIES:
        return None
    spread = statistics.stdev(map(math.log, values))
    error = spread * math.sqrt(1 / LEAST_RUNS + 1 / (len(values) - LEAST_RUNS))
    errors = detectable_errors(_least_t(len(values), alpha), len(values) - 2)
    return math.expm1(max(errors * error, least + POWER_Z * error))


def _search_changes(logs: Sequence[float], offset: int, alpha: float) -> list[int]:
    """Return the places, counted with the offset, that divide a segment, and those that divide its parts."""
    places = _divide(logs, alpha) if len(logs) >= LEAST_SERIES else []
    parts = pairwise([0, *places, len(logs)]) if places else ()
    inner = [place for begin, end in parts for place in _search_changes(logs[begin:end], offset + begin, alpha)]
    return [offset + place for place in places] + inner


def _levels(logs: Sequence[float], places: Sequence[int]) -> list[float]:
    """Return the median between each two places, and at both ends."""
    return [statistics.median(logs[begin:end]) for begin, end in pairwise([0, *places, len(logs)]) if end > begin]


def _settle(logs: Sequence[float], places: Sequence[int]) -> list[int]:
    """Return the places, each moved past values that are clearly of its other side: drawing in blurs large changes."""
    ends, levels = [0, *places, len(logs)], _levels(logs, places)
    for at in range(1, len(ends) - 1):
        before, after = levels[at - 1], levels[at]
        while ends[at] - ends[at - 1] > LEAST_RUNS and _is_clearly_at(logs[ends[at] - 1], after, before):
            ends[at] -= 1
        while ends[at + 1] - ends[at] > LEAST_RUNS and _is_clearly_at(logs[ends[at]], before, after):
            ends[at] += 1
    return ends[1:-1]


def _large_ones(logs: Sequence[float], places: Sequence[int], least: float) -> Sequence[int]:
    """Return the places but those, from the smallest on, where the level changes by less."""
    while places:
        size, at = min((abs(two - one), at) for at, (one, two) in enumerate(pairwise(_levels(logs, places))))
        if size >= least:
            break
        places = [*places[:at], *places[at + 1 :]]
    return places


def _is_clearly_at(value: float, level: float, other: float) -> bool:
    return abs(value - level) < abs(value - other) / 4


def _divide(logs: Sequence[float], alpha: float) -> list[int]:
    """Return the place, or the two, where a segment divides best; empty where that may be chance."""
    if len(logs) < SHORT_SERIES:
        places = range(LEAST_RUNS, len(logs) - LEAST_RUNS + 1)
        strongest, place = max((_student(logs[:place], logs[place:]), -place) for place in places)
        return [-place] if strongest > _least_t(len(logs), alpha) else []
    centred = _draw_in(logs)
    for best in (_best_step, _best_stretch):
        strength, found = best(_sums(centred))
        if found and strength > 0 and _is_rare(centred, best, strength, alpha / 2):
            return found
    return []


def _least_t(total: int, alpha: float) -> float:
    """Return the t that any place of so many values exceeds, to either side, with chance alpha at most."""
    return student_t(alpha / 2 / (total - LEAST_SERIES + 1), total - 2)


def _student(before: Sequence[float], after: Sequence[float]) -> float:
    """Return Student's t of two samples, above 0; values that are a tick apart may be one."""
    ordered = sorted((*before, *after))
    tick = min((two - one for one, two in pairwise(ordered) if two > one), default=LARGEST_TICK)
    squares = sum(statistics.variance(part) * (len(part) - 1) for part in (before, after))
    variance = max(squares / (len(ordered) - 2), min(tick, LARGEST_TICK) ** 2 / 12)
    error = math.sqrt(variance * (1 / len(before) + 1 / len(after)))
    return abs(statistics.fmean(after) - statistics.fmean(before)) / error


Divided = tuple[float, list[int]]


def _is_rare(logs: Sequence[float], best: Callable[[Sequence[float]], Divided], strength: float, alpha: float) -> bool:
    """Tell whether at most a share alpha of random orders, the given one counted, divides as well.

    It stops at the order that settles it against a change: most series have none, and cost little.
    """
    orders = max(PERMUTATIONS + 1, math.ceil(1 / alpha))
    allowed, as_good = int(alpha * orders + 1e-9) - 1, 0
    least = strength * math.sqrt(LEAST_RUNS * (len(logs) - LEAST_RUNS)) / (1 if best is _best_step else 2)
    chance = random.Random(SHUFFLE_SEED)
    for _ in range(orders - 1):
        sums = _sums(chance.sample(logs, len(logs)))
        if max(sums) < least and min(sums) > -least:  # nor is any part of it as far from the others
            continue
        as_good += best(sums)[0] >= strength * (1 - 1e-12)
        if as_good > allowed:
            return False
    return True


def _draw_in(logs: Sequence[float]) -> list[float]:
    """Return the values less their mean, with those that are far from the middle drawn in.

    Far is by the standard deviation that goes with the closest third of the values, which are of one level mostly: as
    the shortest half (Rousseeuw and Leroy, A robust scale estimator based on the shortest half, Statistica Neerlandica
    42, 1988), but where outliers leave less than half of the values to each of two levels, too: unlike the median of
    absolute deviations it does not grow with the change that is looked for.
    """
    ordered, middle = sorted(logs), statistics.median(logs)
    third = min(after - before for before, after in zip(ordered, ordered[len(logs) // 3 :], strict=False))
    reach = FARTHEST * third / THIRD_OF_NORMAL
    drawn = [min(max(value, middle - reach), middle + reach) for value in logs] if reach > 0 else list(logs)
    mean = statistics.fmean(drawn)
    return [value - mean for value in drawn]


def _sums(values: Sequence[float]) -> list[float]:
    return list(accumulate(values, initial=0.0))


def _best_step(sums: Sequence[float]) -> Divided:
    """Return the largest difference of the means before and after, as a multiple of its error, and its place."""
    total = len(sums) - 1
    inner = sums[LEAST_RUNS : total - LEAST_RUNS + 1]
    strengths = list(map(mul, map(abs, inner), _weights(total)))
    strongest = max(strengths)
    return strongest, [strengths.index(strongest) + LEAST_RUNS]


def _best_stretch(sums: Sequence[float]) -> Divided:
    """Return the largest difference between the mean of a stretch and that of all around it, and its ends."""
    total, strongest, places = len(sums) - 1, 0.0, list[int]()
    inner = sums[LEAST_RUNS : total - LEAST_RUNS + 1]
    for length in _lengths(total - LEAST_SERIES):
        gains = list(map(abs, map(sub, inner[length:], inner)))
        strength = max(gains) / math.sqrt(length * (total - length))
        if strength > strongest:
            begin = gains.index(max(gains)) + LEAST_RUNS
            strongest, places = strength, [begin, begin + length]
    return strongest, places


@lru_cache(maxsize=64)
def _weights(total: int) -> tuple[float, ...]:
    return tuple(1 / math.sqrt(before * (total - before)) for before in range(LEAST_RUNS, total - LEAST_RUNS + 1))


@lru_cache(maxsize=64)
def _lengths(longest: int) -> tuple[int, ...]:
    """Return the lengths of stretches that are tried: all short ones, then each a tenth longer than the last."""
    lengths, length = list[int](), LEAST_RUNS
    while length <= longest:
        lengths.append(length)
        length = max(length + 1, int(length * GROWTH))
    return tuple(lengths)
