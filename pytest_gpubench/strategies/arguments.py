"""Check the arguments of strategies: raise InvalidArgument in the caller's words."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis.errors import InvalidArgument

from pytest_gpubench.bounds import whole_number
from pytest_gpubench.units import repr_of

T = TypeVar("T")


def parsed(asked: object, name: str, parse: Callable[[object], T]) -> T:
    """Return what `parse` makes of an argument."""
    try:
        return parse(asked)
    except ValueError as error:
        raise InvalidArgument(f"{name}={repr_of(asked)} is not valid: {error}") from None


def count_at_least(asked: object, name: str, *, least: int = 0) -> int:
    """Return an int of at least `least`."""
    return parsed(asked, name, lambda number: whole_number(number, least))


def check_order(name: str, least: int, most: int | None) -> None:
    """Raise InvalidArgument for a min above its max."""
    if most is not None and least > most:
        raise InvalidArgument(f"min_{name}={least} is larger than max_{name}={most}")


def check_name(asked: object, name: str, known: Sequence[str]) -> str:
    """Return a known name."""
    if not isinstance(asked, str) or asked not in known:
        raise InvalidArgument(f"{name}={asked!r} is not known: choose from {', '.join(known)}")
    return asked
