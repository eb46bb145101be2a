"""`pytest-gpubench history`: a test over all saved runs, and where it changed."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_gpubench.cli.arguments import Commands, add_parser, add_storage, chance, checked
from pytest_gpubench.cli.output import complain, table, write
from pytest_gpubench.cli.saved import commit_text, list_stored, nothing_saved, read_each
from pytest_gpubench.cli.show import matches
from pytest_gpubench.report.cells import interval_cell, speedup_text, time_cell
from pytest_gpubench.report.layout import Column
from pytest_gpubench.results.counterpart import keys_of
from pytest_gpubench.results.model import Measurement, SavedRun, TestRecord
from pytest_gpubench.results.provenance import minute_text
from pytest_gpubench.stats.changepoints import ChangePoint, change_points, least_runs
from pytest_gpubench.units import choose_time_unit, count, printable, round_to_digits

EXAMPLES = """history test_rms_norm
history 'test_softmax[*-float16]' --device h200
history softmax --metric speedup --alpha 0.001"""
BAR_WIDTHS = (24, 12)
NOTE_WIDTH = 36
EIGHTHS = " ▏▎▍▌▋▊▉"
METRICS: dict[str, Callable[[Measurement], float | None]] = {
    "median": lambda item: item.timing.median_us,
    "mean": lambda item: item.timing.mean_us,
    "q1": lambda item: item.timing.quartiles_us[0],
    "q3": lambda item: item.timing.quartiles_us[2],
    "speedup": lambda item: None if item.speedup is None else item.speedup.ratio,
}


class Key(NamedTuple):
    """The identity of a measurement over several runs; series are shown in the order of keys."""

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
class RunPoint:
    """A measurement in one run."""

    number: int
    date: str
    commit: str
    measurement: Measurement
    source: str
    value: float | None
    """The metric's value; None if there is no valid one."""


def add(commands: Commands) -> None:
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
    errors: list[str] = []
    series: dict[Key, list[RunPoint]] = {}
    for stored, saved in read_each(found, errors):
        for key, record, item in _measurements(saved, arguments.pattern):
            value = METRICS[arguments.metric](item) if not item.why_invalid else None
            point = RunPoint(
                stored.number, minute_text(saved.datetime), commit_text(saved) or "-", item, record.source, value
            )
            series.setdefault(key, []).append(point)
    if not series:
        nothing = f"no saved run has a test with {arguments.pattern!r} in its id" if found else nothing_saved(arguments)
        complain("history", [*errors, nothing])
        return 2 if errors else 1
    complain("history", errors)
    write("\n".join(_lines(series, arguments.metric, arguments.alpha)))
    return 2 if errors else 0


def _measurements(run: SavedRun, pattern: str) -> Iterator[tuple[Key, TestRecord, Measurement]]:
    """Yield what a run measured in the tests that are meant, without references."""
    for record in run.records:
        if matches(record.nodeid, pattern):
            for known, item in zip(keys_of(record.measurements), record.measurements, strict=True):
                if item.role != "reference" and item.timing.measured:
                    key = Key(record.device.name, record.nodeid, *known, item.timing.timer, item.timing.cache)
                    yield key, record, item


def _lines(series: dict[Key, list[RunPoint]], metric: str, alpha: float) -> Iterator[str]:
    """Yield the lines of all series but examples of hypothesis that only one run has."""
    shown = {key: points for key, points in sorted(series.items()) if not key.example or len(points) > 1}
    for key, points in shown.items():
        yield from (printable(_title(key)), *_series_lines(points, metric, alpha), "")
    if len(shown) < len(series):
        yield f"{count(len(series) - len(shown), 'example')} of hypothesis not shown: only one run had each"


def _title(key: Key) -> str:
    parts = [key.nodeid, key.label + (f" at {key.example}" if key.example else "")]
    parts.append(f"{key.device}, {key.timer} timer, {key.cache} cache")
    return ": ".join(parts) + (f" (call {key.occurrence + 1})" if key.occurrence else "")


def _series_lines(points: Sequence[RunPoint], metric: str, alpha: float) -> list[str]:
    """Return a table of a measurement's runs, and a line that says where it changed."""
    drawn = [at for at, point in enumerate(points) if point.value is not None and point.value > 0]
    values = [points[at].value or 0.0 for at in drawn]
    changes = {drawn[found.index]: found for found in change_points(values, alpha)}
    notes = [_note(point, points[at - 1] if at else None, changes.get(at), metric) for at, point in enumerate(points)]
    styles = ["yellow" if at in changes else "" for at in range(len(points))]
    return [*table(_columns(points, styles, notes)), _summary(len(values), changes, points, metric, alpha)]


def _columns(points: Sequence[RunPoint], styles: Sequence[str], notes: Sequence[str]) -> list[Column]:
    timings = [point.measurement.timing for point in points]
    unit = choose_time_unit(timing.median_us for timing in timings)
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


def _note(point: RunPoint, last: RunPoint | None, change: ChangePoint | None, metric: str) -> str:
    notes = []
    if point.value is None:
        notes.append("INVALID" if point.measurement.why_invalid else f"no {metric}")
    if change is not None:
        notes.append(f"<- {_change_words(change.ratio, metric)}")
    if last is not None and point.source and last.source and point.source != last.source:
        notes.append("the test's source changed")
    return ", ".join(notes)


def _change_words(ratio: float, metric: str) -> str:
    slower = ratio if metric != "speedup" else 1 / ratio
    return f"{'slower' if slower > 1 else 'faster'}: {round_to_digits(ratio, 4)} x the {metric} before"


def _summary(runs: int, changes: dict[int, ChangePoint], points: Sequence[RunPoint], metric: str, alpha: float) -> str:
    """Return where the series changed, in a sentence."""
    if not changes and runs < least_runs(alpha):
        return f"{count(runs, 'run')}: a change can be found from {least_runs(alpha)} runs on (alpha {alpha:g})"
    if not changes:
        return f"{count(runs, 'run')}: no change found (alpha {alpha:g})"
    words = [f"from run {points[at].number:04} on {_change_words(each.ratio, metric)}" for at, each in changes.items()]
    return f"{count(runs, 'run')}, {count(len(changes), 'change')} (alpha {alpha:g}): {'; '.join(words)}"
