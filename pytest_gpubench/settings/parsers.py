"""Parsers of settings given as text; each raises ValueError with what would be legal."""

import os
from collections.abc import Callable, Collection
from typing import Any, Literal, TypeVar

from pytest_gpubench import bounds
from pytest_gpubench.bounds import MOST_CALLS
from pytest_gpubench.units import printable

T = TypeVar("T")
ClockWish = int | Literal["base", "max"]
"""The clock to lock: MHz, the base clock or the highest."""


def choice(*names: str) -> Callable[[str], str]:
    """Return a parser that accepts the given names only."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"it must be one of {', '.join(names)}")
        return text

    return parse


def several(what: str, names: Collection[str] | None = None) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of a list with commas; names: the only ones that it may have, None for any."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(name.strip() for name in text.split(",") if name.strip())
        if not found or (names is not None and not set(found) <= set(names)):
            raise ValueError(f"it must be a comma-separated list of {what}")
        return found

    return parse


def word_or(parse: Callable[[Any], T], *words: str) -> Callable[[str], T | str]:
    """Return a parser that takes these words as they are, and anything else by another parser."""

    def parse_either(text: str) -> T | str:
        try:
            return text if text in words else parse(text)
        except ValueError as error:
            others = f"one of {', '.join(words)}" if len(words) > 1 else words[0]
            raise ValueError(f"{error}, or {others}") from None

    return parse_either


def checked_text(check: Callable[[str], object]) -> Callable[[str], str]:
    """Return a parser that keeps a text as it is, once it is checked."""

    def parse(text: str) -> str:
        check(text)
        return text

    return parse


def positive_count(given: object, least: int = 1, most: int = MOST_CALLS) -> int:
    """Parse a count of at least 1."""
    return bounds.whole_number(_as_number(given, int, "a whole number"), least, most)


def whole_number_or_zero(given: object) -> int:
    """Parse a count of at least 0."""
    return positive_count(given, least=0)


def seed_number(given: object) -> int:
    """Parse a seed of at least 0."""
    return positive_count(given, least=0, most=bounds.MOST_COUNTED)


def seconds(given: object) -> float:
    """Parse a time in seconds above 0."""
    return bounds.duration_s(_as_number(given, float, "a number"))


def fraction(given: object) -> float:
    """Parse a fraction between 0 and 1, or a percentage: 0.005 and 0.5% are the same."""
    percent = isinstance(given, str) and given.endswith("%")
    number = given.removesuffix("%").strip() if isinstance(given, str) else given
    value = bounds.positive_number(_as_number(number, float, "a number")) / (100 if percent else 1)
    if value >= 1:
        raise ValueError("it must be below 1 (or 100%)")
    return value


def _as_number(given: object, kind: Callable[[str], object], what: str) -> object:
    """Return the number that a text of an option says; numbers that code gives stay as they are."""
    if not isinstance(given, str):
        return given
    try:
        return kind(given)
    except ValueError:
        raise ValueError(f"it must be {what}") from None


NUMBERS = (positive_count, whole_number_or_zero, seed_number, seconds, fraction)
"""The parsers of numbers: code gives numbers as numbers, only options give them as text."""


COUNTER_WISHES = ("no", "limits", "on-fail", "all")
ON = ("1", "true", "yes", "on")


def switch(text: str) -> bool:
    """Parse yes or no in the spellings of ini files."""
    if text.lower() in ON:
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("it must be true or false")


def file_path(text: str) -> str:
    """Refuse a folder before the first test: after the last one, the results would be lost."""
    if os.path.isdir(text):
        raise ValueError("it must be the path of a file, and is a folder")
    return _in_a_folder(text)


def _in_a_folder(text: str) -> str:
    """Refuse the path of an output in a folder that is not there: it may be misspelled, and is not made."""
    folder = os.path.dirname(os.path.abspath(text))
    if not os.path.isdir(folder):
        raise ValueError(f"there is no folder {printable(folder)}: make it first, or correct the path")
    return text


def folder_path(text: str) -> str:
    """Refuse a file before the first test."""
    if os.path.isfile(text):
        raise ValueError("it must be a folder, and is a file")
    return text


def output_folder(text: str) -> str:
    """Refuse a file, and a folder in one that is not there, before the first test."""
    return _in_a_folder(folder_path(text))


def plots_folder(text: str) -> str:
    """Refuse a folder with other files than plots: the option alone may have taken a path of tests for its value."""
    folder = output_folder(text)
    if os.path.isdir(folder) and any(os.path.splitext(name)[1] != ".svg" for name in os.listdir(folder)):
        raise ValueError("it holds other files than plots: give a folder of its own, or the option alone as the last")
    return text


OUTPUTS = (file_path, output_folder, plots_folder)
"""The parsers of paths that a run writes to."""
