"""`pytest-gpubench history`: a test over all saved runs, and where it changed."""

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pytest_gpubench.cli.arguments import add_alpha, add_storage
from pytest_gpubench.cli.output import complain, table, write
from pytest_gpubench.cli.saved import commit_text, matches, nothing_saved, read_each, storage_of
from pytest_gpubench.metrics import BY_NAME
from pytest_gpubench.report.layout import Column
from pytest_gpubench.report.rows import speedup_text
from pytest_gpubench.results.baseline import differences, toolchain
from pytest_gpubench.results.counterpart import MeasurementKey, by_key
from pytest_gpubench.results.model import Measurement, TestRecord
from pytest_gpubench.results.provenance import minute_text
from pytest_gpubench.settings.cache import cache_words
from pytest_gpubench.stats.changepoints import LEAST_SERIES, ChangePoint, change_points, smallest_step
from pytest_gpubench.stats.process_spread import sessions_differ_by
from pytest_gpubench.stats.tolerance import COMPARED_METRICS
from pytest_gpubench.units import choose_time_unit, count, format_share, printable, round_to_digits
from pytest_gpubench.verdict.decision import tick_shares
from pytest_gpubench.verdict.reasons import reasons

ABOUT = "show a test over all saved runs, and where it changed"
EXAMPLES = """history test_rms_norm
history 'test_softmax[*-float16]' --device h200
history softmax --metric median --alpha 0.001
history '*' --brief"""
NOTE_WIDTH = 36
BLOCKS = "▁▂▃▄▅▆▇█"
MOST_DRAWN = 60
LEAST_RANGE = 0.06
"""The height of a line as a share of its value, at least: noise is no mountain."""


class SeriesKey(NamedTuple):
    """The identity of a measurement over several runs; series are shown in the order of keys."""

    device: str
    nodeid: str
    known: MeasurementKey
    timer: str
    cache: str


@dataclass(frozen=True)
class RunPoint:
    """A measurement in one run."""

    number: int
    date: str
    commit: str
    installed: Mapping[str, str]
    measurement: Measurement
    record: TestRecord
    earlier: Sequence[Measurement]
    """The same measurement in the earlier sessions of the run."""

    def values(self, metric: str) -> list[float | None]:
        """Return the metric's value in each session, its own last; None if it is missing, INVALID or not above 0."""
        sessions = [*self.earlier, self.measurement]
        values: list[float | None] = [None if item.why_invalid else BY_NAME[metric].value(item) for item in sessions]
        return [value if value and value > 0 else None for value in values]


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", metavar="TEST_PATTERN", help="a part of the test's id; * and ? stand for others")
    parser.add_argument(
        "--metric",
        choices=COMPARED_METRICS,
        default="speedup",
        help="what is drawn, and may change: the speedup over a test's reference in the same run where it has one, "
        "else its median (default: speedup)",
    )
    parser.add_argument("--brief", action="store_true", help="write a line for each test, and no tables")
    add_alpha(parser, 0.01, "the chance that a series without a change is said to have one")
    add_storage(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the history of each measurement of the tests; 1 where no run has any, 2 where a run cannot be read."""
    found = storage_of(arguments).runs()
    errors: list[str] = []
    series: dict[SeriesKey, list[RunPoint]] = {}
    for stored, saved in read_each(found, errors):
        head = stored.number, minute_text(saved.datetime), commit_text(saved) or "-", toolchain(saved.machine_info)
        for record in saved.records:
            if not matches(record.nodeid, arguments.pattern):
                continue
            before = [by_key(each.measurements) for each in saved.earlier if each.key == record.key]
            for known, item in by_key(record.measurements).items():
                if item.role != "reference" and item.timing.measured:
                    key = SeriesKey(record.device.name, record.nodeid, known, item.timing.timer, item.timing.cache)
                    earlier = [there[known] for there in before if known in there]
                    series.setdefault(key, []).append(RunPoint(*head, item, record, earlier))
    if not series:
        nothing = f"no saved run has a test with {arguments.pattern!r} in its id" if found else nothing_saved(arguments)
        complain("history", [*errors, nothing])
        return 2 if errors else 1
    complain("history", errors)
    write("\n".join(_lines(series, arguments.metric, arguments.alpha, arguments.brief)))
    return 2 if errors else 0


def _lines(series: dict[SeriesKey, list[RunPoint]], wanted: str, alpha: float, brief: bool) -> Iterator[str]:
    """Yield the lines of all series but examples of hypothesis that only one run has."""
    shown = {key: points for key, points in sorted(series.items()) if not key.known.example or len(points) > 1}
    for key, points in shown.items():
        has_speedup = any(point.values("speedup")[-1] for point in points)
        history = History(points, "median" if wanted == "speedup" and not has_speedup else wanted, alpha)
        lines = [history.summary(), *history.reason_lines()]
        lines = lines if brief else [*history.table(), *lines, ""]
        label, _, _, example, occurrence = key.known
        parts = [key.nodeid, label + (f" at {example}" if example else "")]
        parts.append(f"{key.device}, {key.timer} timer, {cache_words(key.cache)}")
        yield printable(": ".join(parts) + (f" (call {occurrence + 1})" if occurrence else ""))
        yield from lines
    if len(shown) < len(series):
        yield f"{count(len(series) - len(shown), 'example')} of hypothesis not shown: only one run had each"


@dataclass(frozen=True)
class History:
    """A measurement over its runs, and where it changed."""

    points: Sequence[RunPoint]
    metric: str
    alpha: float

    @cached_property
    def values(self) -> list[float | None]:
        """The metric in each run."""
        return [point.values(self.metric)[-1] for point in self.points]

    @cached_property
    def changes(self) -> dict[int, ChangePoint]:
        """The changes by the index of the first run at the new level."""
        return self._changes(self.metric)

    @cached_property
    def shared_changes(self) -> dict[int, ChangePoint]:
        """The changes of the median that are not the test's own, as its reference has them too."""
        if self.metric != "speedup":
            return {}
        found = self._changes("median").items()
        return {at: each for at, each in found if not self.changes.keys() & {at - 1, at, at + 1}}

    def _changes(self, metric: str) -> dict[int, ChangePoint]:
        known = {at: value for at, point in enumerate(self.points) if (value := point.values(metric)[-1])}
        found = change_points(list(known.values()), self.alpha, self._least(metric))
        return {list(known)[each.index]: each for each in found}

    def _least(self, metric: str) -> float:
        """Return the smallest logarithm of a ratio that is a change of the metric."""
        known = [point for point in self.points if point.values(metric)[-1]]
        ticks = tick_shares(known[-1].measurement, metric) if known else []
        logs = [[math.log(value) for value in point.values(metric) if value] for point in known]
        return sessions_differ_by(logs, ticks, self.alpha)

    def table(self) -> list[str]:
        """Return a line for each run."""
        points, items = self.points, [point.measurement for point in self.points]
        styles = ["yellow" if at in self.changes else "" for at in range(len(points))]
        unit = choose_time_unit(item.timing.median_us for item in items)
        median, interval = BY_NAME["median"], BY_NAME["interval"]
        speedups = [speedup_text(item.speedup) for item in items]
        columns = [
            Column("Run", [f"{point.number:04}" for point in points], styles),
            Column("Date", [point.date for point in points], styles, rank=2),
            Column("Commit", [point.commit for point in points], styles, rank=3),
            Column(median.header.format(unit=unit), [median.text(item, unit) for item in items], styles, right=True),
            Column(interval.header, [interval.text(item, unit) for item in items], styles, rank=4),
        ]
        columns += [Column("Speedup", [text or "-" for text in speedups], styles, rank=1)] if any(speedups) else []
        return table([*columns, Column("", list(map(self._note, range(len(points)))), styles, least=NOTE_WIDTH)])

    def _note(self, at: int) -> str:
        """Return the notes on a run: why it has no value, a change, and news of its machine."""
        point, notes = self.points[at], []
        if self.values[at] is None:
            notes.append("INVALID" if point.measurement.why_invalid else f"no {self.metric}")
        if at in self.changes:
            notes.append(f"<- {_change_words(self.changes[at].ratio, self.metric)}")
        if at in self.shared_changes:
            notes.append(f"{_change_words(self.shared_changes[at].ratio, 'median')}, as its reference")
        return ", ".join([*notes, *(_news(self.points[at - 1], point) if at else ())])

    def summary(self) -> str:
        """Return the line of its values, and where they changed."""
        runs, least = sum(value is not None for value in self.values), self._least(self.metric)
        words = f"no change by {format_share(math.expm1(least))} or more found"
        if runs < LEAST_SERIES:
            words = f"changes are looked for from {LEAST_SERIES} runs on"
        elif step := smallest_step([value for value in self.values if value], self.alpha, least):
            words += f", and one by {format_share(step)} three runs ago would be, 9 times in 10"
        if self.changes:
            words = "; ".join(self._since(at, each, self.metric) for at, each in self.changes.items())
            words = f"{count(len(self.changes), 'change')}: {words}"
        shared = [f"; with its reference {self._since(*each, 'median')}" for each in self.shared_changes.items()]
        return f"{sparkline(self.values)} {count(runs, 'run')} (alpha {self.alpha:g}): {words}{''.join(shared)}"

    def reason_lines(self) -> Iterator[str]:
        """Yield what differs in each run from which on it is slower."""
        for at, change in self.changes.items():
            if _is_slower(change.ratio, self.metric):
                old, new = (self.points[place].measurement for place in (at - 1, at))
                found = reasons(old, new, metric=self.metric)
                yield from (printable(f"with it, in run {self.points[at].number:04}: {each}") for each in found)

    def _since(self, at: int, change: ChangePoint, metric: str) -> str:
        return f"from run {self.points[at].number:04} on {_change_words(change.ratio, metric)}"


def _news(last: RunPoint, point: RunPoint) -> Iterator[str]:
    if last.record.source and point.record.source and last.record.source != point.record.source:
        yield "the test's source changed"
    one, other = last.record.device, point.record.device
    for what, was, now in (*differences(one, other, last.installed, point.installed), ("host", one.host, other.host)):
        if was and now and was != now:
            yield printable(f"{what} {was} -> {now}")
    if one.uuid and other.uuid and one.uuid != other.uuid:
        yield "another card"


def sparkline(values: Sequence[float | None]) -> str:
    """Return the latest values as a line of blocks, blank where there is none."""
    drawn = values[-MOST_DRAWN:]
    known = [value for value in drawn if value]
    if not known:
        return ""
    low, high = min(known), max(known)
    middle, reach = (low + high) / 2, max(high - low, LEAST_RANGE * high) / 2
    places = [None if not value else (value - middle + reach) / (2 * reach) for value in drawn]
    return "".join(" " if place is None else BLOCKS[min(int(place * len(BLOCKS)), len(BLOCKS) - 1)] for place in places)


def _change_words(ratio: float, metric: str) -> str:
    word = "slower" if _is_slower(ratio, metric) else "faster"
    return f"{word}: {round_to_digits(ratio, 4)} x the {metric} before"


def _is_slower(ratio: float, metric: str) -> bool:
    return ratio < 1 if metric == "speedup" else ratio > 1
