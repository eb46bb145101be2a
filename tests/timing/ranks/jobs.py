"""A plan, functions and timings for tests of ranks."""

from typing import Any

from pytest_gpubench import Timing
from pytest_gpubench.timing.measurement import Plan
from tests.results.measured import timing_of

PLAN = Plan(cache="hot", reps=20, warmup=1, precision=0.02, max_time_s=5)


def nothing() -> None:
    pass


def timing(*samples_us: float, **others: Any) -> Timing:
    return timing_of(samples_us, "f", **others)


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))
