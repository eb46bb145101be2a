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


def shape_alpha(alpha: float, shapes: int) -> float:
    """Return the alpha of each interval of each shape: there are two, and all have to hold."""
    return alpha / (2 * shapes)


def weighted_ratio(shapes: Sequence[ShapeSpeedup]) -> float:
    """Return the reference's total time over the candidate's."""
    return math.fsum(each.total_us for each in shapes) / math.fsum(each.total_us / each.ratio for each in shapes)


def weighted_interval(shapes: Sequence[ShapeSpeedup]) -> Interval | None:
    """Return an interval that has the ratio of the true totals in it whenever all intervals of shapes hold.

    None where one of them has none. No independence is assumed (Bonferroni): if each fails with a chance of
    `shape_alpha` at most, an end is on the wrong side of the truth with a chance of alpha at most.
    """
    ratios = [each.ratios for each in shapes]
    known = [each for each in ratios if each is not None]
    if len(known) < len(ratios):
        return None
    totals_us = [each.totals_us for each in shapes]
    slowest = _largest_mean([1 / each.low for each in known], totals_us)
    fastest = _largest_mean([-1 / each.high for each in known], totals_us)
    return Interval(1 / slowest, -1 / fastest)


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
