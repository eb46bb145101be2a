"""From which size on a candidate is faster: the speedups of a parametrised test along one of its parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from pytest_gpubench.report.sweeps import Series, Sweep
from pytest_gpubench.results.model import Speedup
from pytest_gpubench.units import round_to_digits


@dataclass(frozen=True)
class Step:
    """One value of the parameter, as the test was given it, and the speedup there."""

    value: str
    speedup: Speedup

    @property
    def is_faster(self) -> bool | None:
        """True or False where the interval lies on one side of 1; None where it holds 1, or there is none."""
        interval = self.speedup.interval
        return None if interval is None or interval.low <= 1 <= interval.high else interval.low > 1

    def __str__(self) -> str:
        return f"{self.value} {round_to_digits(self.speedup.ratio, 3)}x{'?' if self.is_faster is None else ''}"


def compared_steps(sweep: Sweep) -> dict[Series, list[Step]]:
    """Return the speedups of each candidate along a sweep, of those that have several."""
    return {
        series: [Step(value, item.speedup) for _, value, _, item in points if item.speedup is not None]
        for series, points in sweep.series.items()
        if sum(point.measurement.speedup is not None for point in points) > 1
    }


def faster_lines(sweep: Sweep) -> list[str]:
    """Return where each candidate is faster than its reference, in words."""
    return [
        f"{series.name} against {series.reference}: {where_faster(steps, sweep.param)}"
        for series, steps in compared_steps(sweep).items()
    ]


def where_faster(steps: Sequence[Step], param: str) -> str:
    """Return at which sizes a candidate is faster, in words; sizes that are not decided belong to no side.

    Undecided sizes between two that are faster do not interrupt; those at an end of a stretch are left out of it.
    """
    decided = [step for step in steps if step.is_faster is not None]
    stretches = [list(group) for is_faster, group in groupby(decided, lambda step: step.is_faster) if is_faster]
    if not decided:
        return "faster or slower is not decided at any size"
    if not stretches or len(stretches[0]) == len(decided):
        everywhere = "everywhere" if len(decided) == len(steps) else "wherever it is decided"
        return f"{'faster' if stretches else 'slower'} {everywhere}"
    told = []
    for first, last in ((stretch[0], stretch[-1]) for stretch in stretches):
        if last is decided[-1]:
            told.append(f"from {param}={first.value} on")
        elif first is decided[0]:
            told.append(f"up to {param}={last.value}")
        else:
            told.append(f"at {param}={first.value}" if first is last else f"from {param}={first.value} to {last.value}")
    return f"faster {' and '.join(told)}"
