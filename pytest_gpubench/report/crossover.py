"""From which size on a candidate is faster: the speedups of a parametrised test along one of its parameters."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from pytest_gpubench.report.rows import Row, reference_label, split
from pytest_gpubench.results.baseline import function_of
from pytest_gpubench.results.model import Speedup, TestRecord
from pytest_gpubench.units import round_to_digits

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


class Side(Enum):
    """On which side of 1 a whole interval is."""

    SLOWER = "slower"
    FASTER = "faster"
    OPEN = "open"
    """It holds 1, or there is none: nothing is decided."""


@dataclass(frozen=True)
class Step:
    """One value of the parameter, as the test was given it, and the speedup there."""

    value: str
    speedup: Speedup

    @property
    def side(self) -> Side:
        """The side of 1 that the interval lies on."""
        interval = self.speedup.interval
        if interval is None or interval.low <= 1 <= interval.high:
            return Side.OPEN
        return Side.FASTER if interval.low > 1 else Side.SLOWER

    def __str__(self) -> str:
        return f"{self.value} {round_to_digits(self.speedup.ratio, 3)}x{'?' if self.side is Side.OPEN else ''}"


@dataclass(frozen=True)
class SpeedupSeries:
    """One candidate along one parameter, all else the same; the steps ascend."""

    test: str
    candidate: str
    reference: str
    param: str
    others: tuple[tuple[str, str], ...]
    where: tuple[str, ...]
    """Device, timer and cache state; of the comparisons of these in one test, which it is."""
    steps: tuple[Step, ...] = ()

    @property
    def crosses(self) -> bool:
        """True if the candidate is faster at some size and slower at another."""
        return {Side.FASTER, Side.SLOWER} <= {step.side for step in self.steps}

    @property
    def title(self) -> str:
        """The functions compared, the parameter along which, and the parameters held fixed."""
        fixed = ", ".join(f"{name}={value}" for name, value in self.others)
        return f"{self.candidate} over {self.reference} by {self.param}{' at ' if fixed else ''}{fixed}"


def crossover_lines(records: Iterable[TestRecord], everything: bool = False, group_by: str = "none") -> list[str]:
    """Return a line for each candidate whose speedup crosses 1 along a numeric parameter of its test.

    `softmax over torch by n, faster from n=2048 on: 512 0.81x, 1024 0.97x?, 2048 1.21x`. The intervals decide; where
    one holds 1, the ratio has a question mark, and the size is neither faster nor slower.

    everything: what crosses nothing too. group_by: as --gpu-bench-group-by; "param:n" leaves out the other parameters.
    """
    wanted = group_by.removeprefix("param:") if group_by.startswith("param:") else None
    found = [each for each in _all_series(records) if wanted in (None, each.param)]
    shown = [each for each in found if everything or each.crosses]
    ambiguous = {each.title for each in shown if sum(other.title == each.title for other in shown) > 1}
    return [_line(each, named=each.title in ambiguous, shown=shown) for each in shown]


def _all_series(records: Iterable[TestRecord]) -> list[SpeedupSeries]:
    """Return every candidate along every numeric parameter that has at least two values, all else the same."""
    steps: dict[SpeedupSeries, dict[float, Step]] = {}
    for record in records:
        for row, occurrence in _compared(record):
            assert row.measurement.speedup is not None
            for param, value in record.params.items():
                if is_number(value):
                    series = _series(row, param, occurrence)
                    of_series = steps.setdefault(series, {})  # a test that was run again stands for itself before
                    of_series[float(value)] = Step(value, row.measurement.speedup)
    return [
        replace(series, steps=tuple(found[value] for value in sorted(found)))
        for series, found in steps.items()
        if len(found) > 1
    ]


def _compared(record: TestRecord) -> list[tuple[Row, int]]:
    """Return a test's candidates that have a speedup, each with how many of its name came before; none of @given."""
    seen: dict[tuple[str, str | None], int] = {}
    found = []
    for row in split(record)[1]:
        if row.measurement.speedup is None or row.measurement.example:
            continue
        names = row.timing.label, reference_label(row)
        found.append((row, seen.setdefault(names, 0)))
        seen[names] += 1
    return found


def _series(row: Row, param: str, occurrence: int) -> SpeedupSeries:
    return SpeedupSeries(
        test=function_of(row.record.nodeid),
        candidate=row.timing.label,
        reference=reference_label(row) or "its reference",
        param=param,
        others=tuple((other, value) for other, value in row.record.params.items() if other != param),
        where=(row.timing.device, row.timing.timer, row.timing.cache, str(occurrence)),
    )


def is_number(text: str) -> bool:
    """Tell whether a parameter's text is a finite number."""
    return NUMBER.fullmatch(text) is not None and math.isfinite(float(text))


def where_faster(steps: Sequence[Step], param: str) -> str:
    """Return at which sizes a candidate is faster, in words; sizes that are not decided belong to no side.

    Undecided sizes between two that are faster do not interrupt; those at an end of a stretch are left out of it.
    """
    decided = [(index, step) for index, step in enumerate(steps) if step.side is not Side.OPEN]
    sides = {step.side for _, step in decided}
    if not sides:
        return "faster or slower is not decided at any size"
    if len(sides) == 1:
        everywhere = "everywhere" if len(decided) == len(steps) else "wherever it is decided"
        return f"{sides.pop().value} {everywhere}"
    stretches = _stretches([step for _, step in decided])
    return "faster " + " and ".join(_stretch_words(stretch, decided, param) for stretch in stretches)


def _stretches(decided: Sequence[Step]) -> list[list[Step]]:
    """Return the stretches of sizes at which it is faster."""
    stretches: list[list[Step]] = []
    before = Side.SLOWER
    for step in decided:
        if step.side is Side.FASTER:
            if before is Side.SLOWER:
                stretches.append([])
            stretches[-1].append(step)
        before = step.side
    return stretches


def _stretch_words(stretch: Sequence[Step], decided: Sequence[tuple[int, Step]], param: str) -> str:
    first, last = stretch[0], stretch[-1]
    if last is decided[-1][1]:
        return f"from {param}={first.value} on"
    if first is decided[0][1]:
        return f"up to {param}={last.value}"
    if first is last:
        return f"at {param}={first.value}"
    return f"from {param}={first.value} to {last.value}"


def _line(series: SpeedupSeries, named: bool, shown: Sequence[SpeedupSeries]) -> str:
    """Return the line of a series; with its test and where it was measured, as far as another's title is the same."""
    steps = ", ".join(map(str, series.steps))
    text = f"{series.title}, {where_faster(series.steps, series.param)}: {steps}"
    if not named:
        return text
    alike = [other for other in shown if other.title == series.title]
    differing = [part for index, part in enumerate(series.where[:-1]) if len({each.where[index] for each in alike}) > 1]
    where = f" ({', '.join(differing)})" if differing else ""
    return f"{series.test.rpartition('/')[2]}{where}: {text}"
