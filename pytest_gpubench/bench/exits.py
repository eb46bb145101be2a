"""Ends of a test, of the run and of the process inside measured code: nothing would be measured, and all look green."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from pytest_gpubench.errors import InvalidResult
from pytest_gpubench.units import repr_of, safe_lines

ENDS_OF_PROCESS = ("_exit", "execv", "execve")
"""Functions of `os`, which its others call."""


@contextmanager
def refusing_exit(
    leaving: tuple[type[BaseException], ...] = (), note: Callable[[Exception], object] = lambda error: None
) -> Iterator[None]:
    """Raise InvalidResult where the measured code ends its test without a failure, or the process with status 0.

    leaving: exceptions that end a test without failing it. note: takes a copy of the error, which another thread may
    lose. Processes that were forked may end, and with another status this one may. What ends it in C is not seen.
    """
    process = os.getpid()

    def guarded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def guard(*arguments: Any, **named: Any) -> Any:
            if os.getpid() != process or (name == "_exit" and [*arguments, *named.values()] != [0]):
                return original(*arguments, **named)
            told = f"the measured code called os.{name}, which would end the run as if all tests passed: let it return"
            note(InvalidResult(told))  # without what its frames hold
            raise InvalidResult(told)

        return guard

    guards: dict[str, Any] = {name: guarded(name, getattr(os, name)) for name in ENDS_OF_PROCESS}
    try:
        with patch.multiple(os, **guards):
            yield
    except BaseException as error:
        if _is_leaving(error, leaving):
            raise InvalidResult(
                f"the measured code ended its test: {safe_lines(repr_of(error))} (skip a test before it measures)"
            ) from error
        raise


def _is_leaving(error: BaseException, leaving: tuple[type[BaseException], ...]) -> bool:
    """Tell whether an error, or each in a group, ends a test without failing it."""
    inner = getattr(error, "exceptions", ())
    return isinstance(error, leaving) or (bool(inner) and all(_is_leaving(each, leaving) for each in inner))
