"""Check the arguments of strategies: raise InvalidArgument in the caller's words."""

from collections.abc import Sequence

from hypothesis.errors import InvalidArgument

from pytest_gpubench.bounds import whole_number
from pytest_gpubench.limits import memory_size
from pytest_gpubench.units import repr_of


def parse_bytes(asked: object, name: str) -> int:
    """Return a number of bytes given as an int or as text such as `64MiB`."""
    try:
        return memory_size(asked)
    except ValueError as error:
        raise InvalidArgument(f"{name}={repr_of(asked)} is no size: {error}") from None


def count_at_least(asked: object, name: str, *, least: int = 0) -> int:
    """Return an int of at least `least`."""
    try:
        return whole_number(asked, least)
    except ValueError as error:
        raise InvalidArgument(f"{name}={repr_of(asked)} is not valid: {error}") from None


def check_order(name: str, least: int, most: int | None) -> None:
    """Raise InvalidArgument for a min above its max."""
    if most is not None and least > most:
        raise InvalidArgument(f"min_{name}={least} is larger than max_{name}={most}")


def check_flag(asked: object, name: str) -> bool:
    """Return a bool."""
    if not isinstance(asked, bool):
        raise InvalidArgument(f"{name}={asked!r} is neither True nor False")
    return asked


def check_name(asked: object, name: str, known: Sequence[str]) -> str:
    """Return a known name."""
    if not isinstance(asked, str) or asked not in known:
        raise InvalidArgument(f"{name}={asked!r} is not known: choose from {', '.join(known)}")
    return asked
