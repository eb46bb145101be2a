"""The size, of several, that a number depends on most, and the trend."""

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_POINTS = 5
LEAST_VALUES = 3
"""The fewest examples, and the fewest values of a size among them, for a trend."""
LEAST_STRENGTH = 0.3
"""The weakest rank correlation for a trend."""
MOST_STEPS = 8


@dataclass(frozen=True)
class Point:
    """One example: its sizes by name, and what may go with them, a speedup or a time."""

    sizes: Mapping[str, float]
    value: float


def size_that_matters(points: Sequence[Point]) -> str | None:
    """Return the size whose ranks go best with those of the values (Spearman's); None where there is too little."""
    strengths = dict[str, float]()
    for name in sorted({name for point in points for name in point.sizes}):
        having = [point for point in points if name in point.sizes]
        sizes, values = [point.sizes[name] for point in having], [point.value for point in having]
        if len(sizes) >= LEAST_POINTS and len(set(sizes)) >= LEAST_VALUES and len(set(values)) > 1:
            strengths[name] = abs(statistics.correlation(ranks(sizes), ranks(values)))
    best = max(strengths, key=strengths.__getitem__, default=None)
    return best if best is not None and strengths[best] >= LEAST_STRENGTH else None


def ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value, the mean one for equal values."""
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value) - 1) / 2 for value in values]


def steps(points: Sequence[Point], name: str) -> list[tuple[float, float]]:
    """Return the value along a size, the median of each of at most eight stretches: (largest size in it, value)."""
    values: dict[float, list[float]] = {}
    for point in points:
        if name in point.sizes:
            values.setdefault(point.sizes[name], []).append(point.value)
    sizes = sorted(values)
    length = math.ceil(len(sizes) / MOST_STEPS)
    parts = [sizes[start : start + length] for start in range(0, len(sizes), length or 1)]
    return [(part[-1], statistics.median(value for size in part for value in values[size])) for part in parts]
