"""From which size on a candidate is faster: the speedups of a parametrised test along one of its parameters."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from pytest_gpubench.report.rows import Row, reference_label, split
from pytest_gpubench.results.baseline import function_of
from pytest_gpubench.results.model import Speedup, TestRecord
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


class Series(NamedTuple):
    """One candidate along one parameter, all else the same."""

    title: str
    """The functions compared, the parameter along which, and the parameters held fixed."""
    param: str
    where: str
    """The test, device, timer and cache state."""
    occurrence: int
    """The number of comparisons of the same functions before it in the test."""


def crossover_lines(records: Iterable[TestRecord], everything: bool = False, group_by: str = "none") -> list[str]:
    """Return a line for each candidate whose speedup crosses 1 along a numeric parameter of its test.

    `softmax over torch by n, faster from n=2048 on: 512 0.81x, 1024 0.97x?, 2048 1.21x`. The intervals decide; where
    one holds 1, the ratio has a question mark, and the size is neither faster nor slower.

    everything: what crosses nothing too. group_by: as --gpu-bench-group-by; "param:n" leaves out the other parameters.
    """
    wanted = group_by.removeprefix("param:") if group_by.startswith("param:") else None
    shown = {
        series: steps
        for series, steps in _all_series(records).items()
        if wanted in (None, series.param) and (everything or {True, False} <= {step.is_faster for step in steps})
    }
    titles = Counter(series.title for series in shown)
    lines = []
    for series, steps in shown.items():
        where = f"{series.where}: " if titles[series.title] > 1 else ""
        lines.append(f"{where}{series.title}, {where_faster(steps, series.param)}: {', '.join(map(str, steps))}")
    return lines


def _all_series(records: Iterable[TestRecord]) -> dict[Series, list[Step]]:
    """Return every candidate along every numeric parameter that has at least two values; the steps ascend."""
    found: dict[Series, dict[float, Step]] = {}
    for record in records:
        for row, speedup, occurrence in _compared(record):
            for param, value in record.params.items():
                if (number := _number(value)) is not None:
                    steps = found.setdefault(_series(row, param, occurrence), {})
                    steps[number] = Step(value, speedup)  # a test that was run again replaces itself
    return {series: [steps[number] for number in sorted(steps)] for series, steps in found.items() if len(steps) > 1}


def _compared(record: TestRecord) -> Iterator[tuple[Row, Speedup, int]]:
    """Yield a test's candidates with their speedup, each with how many of its name came before; none of @given."""
    seen: Counter[tuple[str, str | None]] = Counter()
    for row in split(record)[1]:
        if row.measurement.speedup is not None and not row.measurement.example:
            names = row.timing.label, reference_label(row)
            yield row, row.measurement.speedup, seen[names]
            seen[names] += 1


def _series(row: Row, param: str, occurrence: int) -> Series:
    timing, test = row.timing, function_of(row.record.nodeid)
    fixed = ", ".join(f"{name}={value}" for name, value in row.record.params.items() if name != param)
    title = f"{timing.label} over {reference_label(row)} by {param}{' at ' if fixed else ''}{fixed}"
    return Series(title, param, f"{test} ({timing.device}, {timing.timer}, {timing.cache})", occurrence)


def _number(text: str) -> float | None:
    """Return a parameter as a finite number; None where it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


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
    return "faster " + " and ".join(_stretch_words(stretch, decided, param) for stretch in stretches)


def _stretch_words(stretch: Sequence[Step], decided: Sequence[Step], param: str) -> str:
    first, last = stretch[0], stretch[-1]
    if last is decided[-1]:
        return f"from {param}={first.value} on"
    if first is decided[0]:
        return f"up to {param}={last.value}"
    if first is last:
        return f"at {param}={first.value}"
    return f"from {param}={first.value} to {last.value}"
