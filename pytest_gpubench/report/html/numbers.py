"""Numbers as the page keeps them: five digits, as many samples as a page has room for."""

import math
from collections.abc import Iterable, Sequence

MOST_NUMBERS = 1_000_000
"""Samples, clocks and ratios that a page keeps; of more, every series keeps every second one, or third, ..."""


def five_digits(value: float | None) -> float | int | None:
    """Return a number with five significant digits; None for none, and for what JSON has no form for."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def rounded(values: Iterable[float]) -> list[float | int | None]:
    """Return numbers with five significant digits each."""
    return [five_digits(value) for value in values]


def longest_series(lengths: Sequence[int], most: int = MOST_NUMBERS) -> int:
    """Return the length to which every series is cut so that all together have at most so many numbers."""
    left, ordered = most, sorted(lengths)
    for index, length in enumerate(ordered):
        share = left // (len(ordered) - index)
        if length > share:
            return share
        left -= length
    return ordered[-1] if ordered else 0


def thin(values: Sequence[float], longest: int) -> tuple[list[float | int | None], int]:
    """Return evenly spaced values of a series, at most so many, and the distance between two that are kept."""
    if longest < 1 or not values:
        return [], 1
    step = math.ceil(len(values) / longest)
    return rounded(values[::step]), step


def quantiles(values: Sequence[float], count: int) -> list[float | int | None]:
    """Return so many values evenly spread over the sorted ones, both ends included; all where there are no more."""
    ordered = sorted(values)
    if len(ordered) <= count:
        return rounded(ordered)
    return rounded(ordered[round(index * (len(ordered) - 1) / (count - 1))] for index in range(count))
