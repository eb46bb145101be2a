"""Measure again: at once where records are not complete, after a pause where the GPU was throttled."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pytest_gpubench.errors import IncompleteRecords, KernelsDiffer, MeasurementError
from pytest_gpubench.units import count

ATTEMPTS = 3
"""Measurements of a session with incomplete records, before giving up."""
NOT_COMPLETE = (IncompleteRecords, KernelsDiffer)
MAX_PAUSE_S = 1.0

T = TypeVar("T")


def until_complete(
    take: Callable[[], T],
    attempts: int = ATTEMPTS,
    again: Callable[[], object] = lambda: None,
    errors: tuple[type[MeasurementError], ...] = NOT_COMPLETE,
    what: str = "",
) -> T:
    """Return what `take` returns; call it again where it raises one of the errors, and raise after so many attempts.

    again: called before each attempt but the first.
    """
    for attempt in range(1, attempts + 1):
        try:
            return take()
        except errors as error:
            if attempt == attempts:
                raise type(error)(f"{error} ({what}measured {count(attempts, 'time')})") from None
        again()
    raise AssertionError("the last attempt returns or raises")


@dataclass
class Pauses:
    """Pauses after throttled reps, each twice as long as the one before, up to a second."""

    deadline_s: float = math.inf
    next_s: float = 0.1
    """NVML renews its reasons for throttling about ten times a second."""

    def rest(self) -> bool:
        """Pause; return False at once where that would take too long."""
        if time.perf_counter() + self.next_s > self.deadline_s:
            return False
        time.sleep(self.next_s)
        self.next_s = min(2 * self.next_s, MAX_PAUSE_S)
        return True
