"""A setting: its default, its help, how it is parsed, and where it may be given."""

from collections.abc import Callable
from dataclasses import Field, dataclass, field
from typing import Any, Literal, get_args, get_origin

from pytest_gpubench.settings.parsers import choice, switch


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
