"""Reps of a call in a session of their own, with nothing between two launches."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pytest_gpubench.timing.base import Call, Rep, Session

PROBE_REPS = 5


def reps_of(session: Session, call: Call, number: int, idle_s: float = 0.0) -> Sequence[Rep]:
    """Return so many reps of a call from a session of their own, throttled or not."""
    with collection_off(), session:
        for _ in range(number):
            session.take(call, idle_s)
    return session.reps()


@contextmanager
def collection_off() -> Iterator[None]:
    """Keep Python's garbage collector from running between two launches."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
