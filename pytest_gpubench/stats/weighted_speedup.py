"""The speedup over several shapes: the ratio of the total times of all calls, and its interval."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from pytest_gpubench.stats.summary import Interval


class ShapeSpeedup(NamedTuple):
    """The speedup of one shape, and the total time of the reference's calls with it."""

    ratio: float
    ratios: Interval | None
    """The ratio's interval; None if there are too few quads."""
    total_us: float
    totals_us: Interval


def weighted_speedup(shapes: Sequence[ShapeSpeedup]) -> tuple[float, Interval | None]:
    """Return the reference's total time over the candidate's, and an interval of it; None where a shape has none.

    The ratio of the true totals is in it whenever all intervals of shapes hold. There are two for each shape, and no
    independence is assumed (Bonferroni): if each of n shapes has both at alpha / 2n, an end is on the wrong side of the
    truth with a chance of alpha at most.
    """
    ratio = math.fsum(each.total_us for each in shapes) / math.fsum(each.total_us / each.ratio for each in shapes)
    ratios = [each.ratios for each in shapes]
    known = [each for each in ratios if each is not None]
    if len(known) < len(ratios):
        return ratio, None
    totals_us = [each.totals_us for each in shapes]
    slowest = _largest_mean([1 / each.low for each in known], totals_us)
    fastest = _largest_mean([-1 / each.high for each in known], totals_us)
    return ratio, Interval(1 / slowest, -1 / fastest)


def _largest_mean(values: Sequence[float], weights: Sequence[Interval]) -> float:
    """Return the largest weighted mean of values over all weights within their intervals.

    It has the highest weights for all values above some value, and the lowest for the others.
    """
    ordered = sorted(zip(values, weights, strict=True), reverse=True)
    means = []
    for heavy in range(1, len(ordered) + 1):
        chosen = [(value, each.high if place < heavy else each.low) for place, (value, each) in enumerate(ordered)]
        means.append(math.fsum(value * weight for value, weight in chosen) / math.fsum(weight for _, weight in chosen))
    return max(means)
