"""The lines that only failing examples run, as hypothesis names them: the test's, not those that measure it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__tracebackhide__ = True

FOLLOWER = "hypothesis.internal.scrutineer"
"""Where hypothesis decides, by `should_trace_file`, which files it follows: there is no public way to name some."""
NOT_FOLLOWED = ("pytest_gpubench", "torch", "triton", "statistics")
"""What runs other lines for a failure than for a success is never the reason for it: how an output is looked through,
say, or how a median is taken. The rest of Python's library stays: hypothesis needs a line to begin with where a test
fails before its first."""


@contextmanager
def without_our_lines() -> Iterator[None]:
    """Keep hypothesis from following our files and torch's; does nothing where it decides about files otherwise."""
    follower: Any = sys.modules.get(FOLLOWER)
    original = getattr(follower, "should_trace_file", None)
    if not callable(original):
        yield
        return
    places = places_of(NOT_FOLLOWED)

    def is_followed(name: str) -> bool:
        return not name.startswith(places) and bool(original(name))

    follower.should_trace_file = is_followed
    try:
        yield
    finally:
        follower.should_trace_file = original


def places_of(modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files of those modules that are imported, of packages the folders."""
    files = [getattr(sys.modules.get(name), "__file__", None) for name in modules]
    return tuple(
        f"{Path(file).parent}{os.sep}" if Path(file).stem == "__init__" else str(file) for file in files if file
    )
