"""Tolerances for slower tests."""

import math
import re
from dataclasses import dataclass

from pytest_gpubench.counters import is_counter
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.units import MICROSECONDS_PER_UNIT

COMPARED_METRICS = ("speedup", "median", "mean", "q1", "q3")
AMOUNT = re.compile(r"(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)\s*(%|ns|us|ms|s|)")


@dataclass(frozen=True)
class RegressionTolerance:
    """The slowdown of a statistic that is tolerated: relative or in microseconds, one of the two."""

    metric: str
    """One of COMPARED_METRICS, or a counter; "speedup" stands for "median" where there is no reference."""
    margin: float | None = None
    """0.05 is 5 %."""
    absolute_us: float | None = None

    @property
    def is_on_counter(self) -> bool:
        """True if it is a counter's, not that of times."""
        return self.metric not in COMPARED_METRICS

    def __str__(self) -> str:
        if self.margin is not None:
            return f"{self.metric}:{100 * self.margin:.12g}%"
        return f"{self.metric}:{self.absolute_us:.12g}us"


def parse_tolerance(text: str) -> RegressionTolerance:
    """Read `median:5%`, `speedup:3%`, `instructions:0.1%`, `mean:5us` or, in seconds, `median:0.000005`.

    Raises BadRequest for what says something else.
    """
    metric, colon, allowed = (part.strip() for part in text.partition(":"))
    if metric in ("min", "max"):
        instead = {"min": "q1", "max": "q3"}[metric]
        raise BadRequest(
            f"{text!r}: nothing certain can be said of the {metric} of a few samples: use {instead} or median"
        )
    if not (metric in COMPARED_METRICS or is_counter(metric)) or not colon or not AMOUNT.fullmatch(allowed):
        raise BadRequest(
            f"{text!r} is no tolerance: write {'|'.join(COMPARED_METRICS)} or a counter, a colon, and a share or a "
            "time, as in median:5%, speedup:3%, mean:5us or instructions:0.1%"
        )
    return tolerance_of(metric, allowed)


def tolerance_of(metric: str, allowed: str) -> RegressionTolerance:
    """Read how much slower a metric may be: `5%`, `5us`; raise BadRequest for what is neither a share nor a time."""
    found = AMOUNT.fullmatch(allowed.strip())
    if not found:
        raise BadRequest(f"{allowed!r} is neither a share nor a time: write one as in 5% or 5us")
    number, unit = float(found[1]), found[2]
    if not 0 < number < math.inf:
        raise BadRequest(
            f"a tolerance of {number!r} is never kept for certain, as two runs of the same code differ by chance: "
            "allow more than 0, as in 3%"
        )
    if unit == "%":
        return RegressionTolerance(metric, margin=number / 100)
    if not unit and number >= 1:
        raise BadRequest(f"{allowed!r} would be {number:g} seconds: write {number:g}% or {number:g}s")
    absolute_us = number * MICROSECONDS_PER_UNIT[unit or "s"]
    if not 0 < absolute_us < math.inf:
        raise BadRequest(f"{allowed!r} is no time that anything takes: write one as in 5us")
    if metric == "speedup" or is_counter(metric):
        what = "a speedup" if metric == "speedup" else f"the counter {metric}"
        raise BadRequest(f"{what} has no unit of time: allow it a share, as in 0.1%")
    return RegressionTolerance(metric, absolute_us=absolute_us)
