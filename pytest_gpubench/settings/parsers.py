"""Rows of settings, and parsers of their texts; each raises ValueError with what would be legal."""

import os
from collections.abc import Callable, Collection
from dataclasses import Field, dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar, get_args, get_origin

from pytest_gpubench import bounds
from pytest_gpubench.counters import raw_metrics
from pytest_gpubench.stats.tolerance import parse_tolerance
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


def positive_count(given: object, least: int = 1, most: int = bounds.MOST_CALLS) -> int:
    """Parse a whole number, by default of at least 1."""
    return bounds.whole_number(_as_number(given, int, "a whole number"), least, most)


whole_number_or_zero = partial(positive_count, least=0)
seed_number = partial(positive_count, least=0, most=bounds.MOST_COUNTED)


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

GROUP_KEYS = ("none", "file", "class", "function", "label", "device", "param")
COUNTER_WISHES = ("no", "limits", "on-fail", "all")
ON = ("1", "true", "yes", "on")


def switch(text: str) -> bool:
    """Parse yes or no in the spellings of ini files."""
    if text.lower() in ON:
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("it must be true or false")


def group_key(text: str) -> str:
    """Parse what to group a table by: a fixed key, or param:NAME; pytest-benchmark's `func` and `fullfunc` too."""
    if text.startswith("param:") and text.removeprefix("param:").isidentifier():
        return text
    return "function" if text in ("func", "fullfunc") else choice(*GROUP_KEYS, "param:NAME")(text)


def saved_name(text: str) -> str:
    """Refuse an empty name, and latest, which finds the newest run of any name."""
    if not text.strip():
        raise ValueError("it must not be empty")
    if text.strip() == "latest":
        raise ValueError("latest means the newest run of any name: choose another name")
    return text.strip()


def tolerance(text: str) -> str:
    """Refuse what is no tolerance of a change."""
    parse_tolerance(text)
    return text


def counter_names(text: str) -> str:
    """Refuse what is no list of counters."""
    raw_metrics(map(str.strip, text.split(",")))
    return text


def megahertz(text: str) -> int:
    """Parse a clock."""
    try:
        return positive_count(text)
    except ValueError:
        raise ValueError("it must be a whole number of MHz above 0") from None


def file_path(text: str) -> str:
    """Refuse a folder before the first test: after the last one, the results would be lost.

    Refuses a folder that is not there, too: it may be misspelled, and is not made.
    """
    if os.path.isdir(text):
        raise ValueError("it must be the path of a file, and is a folder")
    if text == "-":
        raise ValueError("it must be the path of a file: standard output has the table (./- is a file of this name)")
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
    folder_path(text)
    return text if text == "-" or os.path.isdir(text) else file_path(text)  # - draws plots in the terminal


OUTPUTS = (file_path, output_folder)
"""The parsers of paths that a run writes to."""


@dataclass(frozen=True)
class SettingRow:
    """A setting: its default, its help, and how its text is parsed."""

    default: Any
    help: str
    parse: Callable[[Any], Any]
    """Takes text, and the parsers of NUMBERS numbers too."""
    metavar: str
    in_marker: bool
    """True if the `perf` marker and the measuring calls may set it too."""
    optional: str | None
    """The value of the flag alone; None where the flag needs a value."""


def setting(
    default: Any,
    help: str,
    parse: Callable[[str], Any] | None = None,
    metavar: str = "",
    in_marker: bool = False,
    optional: str | None = None,
) -> Any:
    """Declare a row; the type of a switch, a choice and a text says how it is parsed."""
    return field(default=default, metadata={"row": (help, parse, metavar, in_marker, optional)})


def row_of(declared: "Field[Any]") -> SettingRow:
    """Return the row that a field declares."""
    help, parse, metavar, in_marker, optional = declared.metadata["row"]
    names = get_args(declared.type) if get_origin(declared.type) is Literal else ()
    derived = choice(*names) if names else switch if declared.type is bool else str
    return SettingRow(declared.default, help, parse or derived, metavar or "|".join(names), in_marker, optional)
