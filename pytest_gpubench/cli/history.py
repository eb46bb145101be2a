"""`pytest-gpubench history`: a test over all saved runs, and where it changed."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_gpubench.cli.arguments import chance, checked
from pytest_gpubench.cli.output import table, write
from pytest_gpubench.cli.saved import add_parser, add_storage, commit_text, list_stored, nothing_saved, when
from pytest_gpubench.cli.show import matches
from pytest_gpubench.errors import BadFile
from pytest_gpubench.units import choose_time_unit, count, printable, round_to_digits

if TYPE_CHECKING:
    from pytest_gpubench.report.layout import Column
    from pytest_gpubench.results.model import Measurement, SavedRun, TestRecord
    from pytest_gpubench.results.store import Stored
    from pytest_gpubench.stats.changepoints import ChangePoint

EXAMPLES = """history test_rms_norm
history 'test_softmax[*-float16]' --device h200
history softmax --metric speedup --alpha 0.001"""
BAR_WIDTHS = (24, 12)
NOTE_WIDTH = 36
EIGHTHS = " ▏▎▍▌▋▊▉"
METRICS: "dict[str, Callable[[Measurement], float | None]]" = {
    "median": lambda item: item.timing.median_us,
    "mean": lambda item: item.timing.mean_us,
    "q1": lambda item: item.timing.quartiles_us[0],
    "q3": lambda item: item.timing.quartiles_us[2],
    "speedup": lambda item: None if item.speedup is None else item.speedup.ratio,
}


class Key(NamedTuple):
    """What makes measurements of several runs the same one, in the order in which they are shown."""

    device: str
    nodeid: str
    label: str
    role: str
    reference: str
    example: str
    occurrence: int
    timer: str
    cache: str


@dataclass(frozen=True)
class Point:
    """What one run says of a measurement."""

    number: int
    date: str
    commit: str
    measurement: "Measurement"
    source: str
    value: float | None
    """Of the metric; None where there is none that is known to be right."""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command to the parser of all."""
    parser = add_parser(commands, "history", "show a test over all saved runs, and where it changed", EXAMPLES)
    parser.add_argument("pattern", metavar="TEST_PATTERN", help="a part of the test's id; * and ? stand for others")
    parser.add_argument("--metric", choices=tuple(METRICS), default="median", help="what is drawn, and may change")
    parser.add_argument(
        "--alpha",
        type=checked(chance),
        default=0.01,
        metavar="FRACTION",
        help="the chance that a series without a change is said to have one (default: 0.01)",
    )
    add_storage(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write a table for each measurement of the tests; 1 where no run has any, 2 where a run cannot be read."""
    found = list_stored(arguments)
    series, errors = gather(found, arguments.pattern, METRICS[arguments.metric])
    for sentence in errors:
        print(f"pytest-gpubench history: {sentence}", file=sys.stderr)
    if not series:
        nothing = f"no saved run has a test with {arguments.pattern!r} in its id" if found else nothing_saved(arguments)
        print(f"pytest-gpubench history: {nothing}", file=sys.stderr)
        return 2 if errors else 1
    lines = list(write_series(series, arguments.metric, arguments.alpha))
    write("\n".join(lines))
    return 2 if errors else 0


def gather(
    found: "Iterable[Stored]", pattern: str, metric: "Callable[[Measurement], float | None]"
) -> tuple[dict[Key, list[Point]], list[str]]:
    """Return the points of each measurement, oldest first, and what is wrong with runs that cannot be read."""
    from pytest_gpubench.results.store import read_run

    series: dict[Key, list[Point]] = {}
    errors = []
    for stored in found:
        try:
            run = read_run(stored.path)
        except BadFile as error:
            errors.append(str(error))
            continue
        for key, record, item in measurements(run, pattern):
            value = metric(item) if is_right(item) else None
            point = Point(stored.number, when(run), commit_text(run) or "-", item, record.source, value)
            series.setdefault(key, []).append(point)
    return series, errors


def measurements(run: "SavedRun", pattern: str) -> "Iterator[tuple[Key, TestRecord, Measurement]]":
    """Yield what a run measured in the tests that are meant; of arms, the candidates only."""
    from pytest_gpubench.results.counterpart import keys_of

    for record in run.records:
        if matches(record.nodeid, pattern):
            for known, item in zip(keys_of(record.measurements), record.measurements, strict=True):
                if item.role != "reference" and item.timing.measured:
                    key = Key(record.device.name, record.nodeid, *known, item.timing.timer, item.timing.cache)
                    yield key, record, item


def is_right(measurement: "Measurement") -> bool:
    """Tell whether there is a number that is known to be right."""
    from pytest_gpubench.results.model import Outcome

    return all(verdict.outcome is not Outcome.INVALID for verdict in measurement.verdicts)


def write_series(series: dict[Key, list[Point]], metric: str, alpha: float) -> Iterator[str]:
    """Yield the lines of all series but examples of hypothesis that only one run has."""
    shown = {key: points for key, points in sorted(series.items()) if not key.example or len(points) > 1}
    for key, points in shown.items():
        yield from (printable(title(key)), *series_lines(points, metric, alpha), "")
    if len(shown) < len(series):
        yield f"{count(len(series) - len(shown), 'example')} of hypothesis not shown: only one run had each"


def title(key: Key) -> str:
    """Return a line that says whose history follows."""
    parts = [key.nodeid, key.label + (f" at {key.example}" if key.example else "")]
    parts.append(f"{key.device}, {key.timer} timer, {key.cache} cache")
    return ": ".join(parts) + (f" (call {key.occurrence + 1})" if key.occurrence else "")


def series_lines(points: Sequence[Point], metric: str, alpha: float) -> list[str]:
    """Return a table of a measurement's runs, and a line that says where it changed."""
    from pytest_gpubench.stats.changepoints import change_points

    drawn = [at for at, point in enumerate(points) if point.value is not None and point.value > 0]
    values = [points[at].value or 0.0 for at in drawn]
    changes = {drawn[found.index]: found for found in change_points(values, alpha)}
    unit = choose_time_unit(point.measurement.timing.median_us for point in points)
    notes = [note_of(point, points[at - 1] if at else None, changes.get(at), metric) for at, point in enumerate(points)]
    styles = ["yellow" if at in changes else "" for at in range(len(points))]
    columns = columns_of(points, unit, styles, notes)
    return [*table(columns), summary(values, changes, points, metric, alpha)]


def columns_of(points: Sequence[Point], unit: str, styles: Sequence[str], notes: Sequence[str]) -> "list[Column]":
    """Return the columns of the table."""
    from pytest_gpubench.report.cells import interval_cell, speedup_text, time_cell
    from pytest_gpubench.report.layout import Column

    timings = [point.measurement.timing for point in points]
    speedups = [speedup_text(point.measurement.speedup) for point in points]
    longest = max((point.value for point in points if point.value is not None), default=0.0)
    long, short = ([bar(point.value, longest, width) for point in points] for width in BAR_WIDTHS)
    columns = [
        Column("Run", [f"{point.number:04}" for point in points], styles),
        Column("Date", [point.date for point in points], styles),
        Column("Commit", [point.commit for point in points], styles, rank=2),
        Column(f"Median ({unit})", [time_cell(timing.median_us, unit) for timing in timings], styles, right=True),
        Column("95 % interval", [interval_cell(timing.median_interval_us, unit) for timing in timings], styles, rank=4),
    ]
    columns += [Column("Speedup", [text or "-" for text in speedups], styles, rank=1)] if any(speedups) else []
    columns.append(Column("", long, styles, rank=5, short=Column("", short, styles, rank=3)))
    return [*columns, Column("", notes, styles, least=NOTE_WIDTH)]


def bar(value: float | None, longest: float, width: int) -> str:
    """Return a bar from 0, so many letters long at most, to an eighth of one."""
    if value is None or not 0 < value <= longest:
        return ""
    eighths = max(1, round(8 * width * value / longest))
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def note_of(point: Point, last: Point | None, change: "ChangePoint | None", metric: str) -> str:
    """Return what to mind at a run."""
    notes = []
    if point.value is None:
        notes.append("no number that is known to be right" if not is_right(point.measurement) else f"no {metric}")
    if change is not None:
        notes.append(f"<- {change_words(change.ratio, metric)}")
    if last is not None and point.source and last.source and point.source != last.source:
        notes.append("the test's source changed")
    return ", ".join(notes)


def change_words(ratio: float, metric: str) -> str:
    """Return a change in words: how much slower or faster."""
    slower = ratio if metric != "speedup" else 1 / ratio
    word = "slower" if slower > 1 else "faster"
    return f"{word}: {round_to_digits(ratio, 4)} x the {metric} before"


def summary(
    values: Sequence[float], changes: "dict[int, ChangePoint]", points: Sequence[Point], metric: str, alpha: float
) -> str:
    """Return where the series changed, in a sentence."""
    from pytest_gpubench.stats.changepoints import LEAST_RUNS

    if len(values) < 2 * LEAST_RUNS:
        return f"{count(len(values), 'run')}: changes are looked for from {2 * LEAST_RUNS} runs on"
    if not changes:
        return f"{count(len(values), 'run')}: no change found (alpha {alpha:g})"
    words = [f"from run {points[at].number:04} on {change_words(found.ratio, metric)}" for at, found in changes.items()]
    return f"{count(len(values), 'run')}, {count(len(changes), 'change')} (alpha {alpha:g}): {'; '.join(words)}"
