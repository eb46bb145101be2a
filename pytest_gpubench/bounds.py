"""The numbers that users give: counts, amounts and times, of whatever kind of number, each within its bounds."""

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import TypeVar

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.units import repr_of

T = TypeVar("T")

MOST_COUNTED = 2**63
"""No call moves more bytes, does more operations or works through more elements, and files hold no larger number."""
MOST_CALLS = 10**6
"""No function is called more often in a measurement, and no run has more tests, sessions or rounds."""
LONGEST_S = 1e6
"""Eleven days: nothing is waited for longer."""


def whole_number(given: object, least: int = 1, most: int = MOST_COUNTED) -> int:
    """Return a whole number as an int, or raise ValueError saying what is wrong with it."""
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise ValueError("it must be a whole number")
    number = int(given)
    if number < least:
        raise ValueError(f"it must be at least {least}")
    if number > most:
        raise ValueError(f"it must be at most {most}")
    return number


def real_number(given: object) -> float:
    """Return a number as a float, infinite where it is too large for one; raise ValueError for what is none."""
    if isinstance(given, bool) or not isinstance(given, Real):
        raise ValueError("it must be a number")
    try:
        return float(given)
    except OverflowError:
        return math.inf


def positive_number(given: object) -> float:
    """Return a finite number above 0 as a float, or raise ValueError saying what is wrong with it."""
    number = real_number(given)
    if not 0 < number < math.inf:
        raise ValueError("it must be above 0 and finite")
    return number


def at_least(least: float) -> Callable[[object], float]:
    """Return a reader of finite numbers of at least this one, which raises ValueError for anything else."""

    def read(given: object) -> float:
        number = real_number(given)
        if not least <= number < math.inf:
            raise ValueError(f"it must be a finite number of at least {least:g}")
        return number

    return read


def duration_s(given: object) -> float:
    """Return a time in seconds above 0 that can be waited for, or raise ValueError saying what is wrong with it."""
    number = positive_number(given)
    if number > LONGEST_S:
        raise ValueError(f"it must be at most {LONGEST_S:,.0f} s")
    return number


def true_or_false(given: object) -> bool:
    """Return a bool, or raise ValueError for anything else."""
    if not isinstance(given, bool):
        raise ValueError("it must be True or False")
    return given


def argument(asked: str, given: object, parse: Callable[[object], T]) -> T:
    """Return what `parse` makes of a number, or raise BadRequest with what is wrong with it.

    asked: as it was given, `bytes={}`.
    """
    try:
        return parse(given)
    except ValueError as error:
        raise BadRequest(f"{asked.format(repr_of(given))} is not valid: {error}") from None


def checked_count(asked: str, given: object, least: int = 1, most: int = MOST_COUNTED) -> int:
    """Return a whole number as an int, or raise BadRequest; asked: as in `argument`."""
    return argument(asked, given, lambda number: whole_number(number, least, most))


def optional_count(asked: str, given: object, least: int = 1) -> int | None:
    """Return a whole number as an int, or None; raise BadRequest for anything else."""
    return None if given is None else checked_count(asked, given, least)
