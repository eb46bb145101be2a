"""What a test may demand of its measurements."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.stats.tolerance import Tolerance, parse_tolerance

__tracebackhide__ = True


def positive_number(value: object) -> float:
    """Return a finite number above 0, or raise ValueError saying what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("it must be a number")
    if not 0 < value < math.inf:
        raise ValueError("it must be above 0 and finite")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("it is too large for a number") from None


def number_by_name(named: str, example: str) -> Callable[[object], float | Mapping[str, float]]:
    """Return a check that accepts a positive number, or a mapping of names of such things to positive numbers."""

    def check(value: object) -> float | Mapping[str, float]:
        if not isinstance(value, Mapping):
            return positive_number(value)
        if not value or not all(isinstance(name, str) and name for name in value):
            raise ValueError(f"a mapping must name {named}, as in {example}")
        return {name: positive_number(limit) for name, limit in value.items()}

    return check


def regression_tolerance(value: object) -> Tolerance:
    """Return by how much a test may be slower than in a saved run: a share of its speedup, or a text that says it."""
    if isinstance(value, str):
        return parse_tolerance(value)
    return Tolerance("speedup", margin=positive_number(value))


def limit(check: Callable[[object], Any], help: str) -> Any:
    """Declare a limit: its default is None, `check` refuses impossible values with ValueError."""
    return field(default=None, metadata={"check": check, "help": help})


@dataclass(frozen=True)
class Limits:
    """What a test demands of each of its measurements; None stands for no demand."""

    max_rel_std: float | None = limit(
        positive_number, "standard deviation of the reps over their mean, at most: 0.02 is 2 %"
    )
    max_time_us: float | Mapping[str, float] | None = limit(
        number_by_name("GPUs", "{'H200': 40, 'A100': 75}"),
        "median time of one call in microseconds, at most: a number, or one per GPU name {'H200': 40}",
    )

    min_speedup: float | Mapping[str, float] | None = limit(
        number_by_name("variants", "{'triton': 1.5, 'compiled': 1.2}"),
        "the reference's time over the candidate's in gpu_bench.compare, at least: a number, or one per variant",
    )
    max_regression: float | str | None = limit(
        regression_tolerance,
        "how much slower than in the saved run of --gpu-bench-compare, at most: 0.05 is 5 % of the speedup, or of the "
        "median time where there is no reference; or as --gpu-bench-compare-fail, 'median:5%'",
    )

    def __post_init__(self) -> None:
        for row in fields(self):
            value = getattr(self, row.name)
            if value is None:
                continue
            try:
                row.metadata["check"](value)
            except ValueError as error:
                raise BadRequest(f"perf({row.name}={value!r}): {error}") from None

    def __bool__(self) -> bool:
        return any(getattr(self, row.name) is not None for row in fields(self))

    def __str__(self) -> str:
        asked = {row.name: getattr(self, row.name) for row in fields(self)}
        return ", ".join(f"{name}={value!r}" for name, value in asked.items() if value is not None)
