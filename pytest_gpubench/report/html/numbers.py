"""Numbers as the page keeps them: five digits, as many samples as a page has room for."""

import math
from collections.abc import Iterable, Sequence


def five_digits(value: float | None) -> float | int | None:
    """Return a number with five significant digits; None for None, nan and infinity."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def rounded(values: Iterable[float | None]) -> list[float | int | None]:
    """Return numbers with five significant digits each."""
    return [five_digits(value) for value in values]


def thin(values: Sequence[float], most: int) -> tuple[list[float | int | None], int]:
    """Return evenly spaced values of a series, at most so many, and the distance between two that are kept."""
    step = math.ceil(len(values) / most) or 1
    return rounded(values[::step]), step
