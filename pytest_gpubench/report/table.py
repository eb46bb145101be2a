"""The tables at the end of a run."""

import io
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_gpubench.results.model import Measurement, Outcome, Speedup, TestRecord, Timing, Verdict
from pytest_gpubench.settings import Settings
from pytest_gpubench.units import MICROSECONDS_PER_UNIT, choose_time_unit, format_share, format_time, round_to_digits

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

MOST_ROWS_PER_FUNCTION = 8
"""Measurements of one function in one test that are shown without --gpu-bench-verbose; the slowest are."""

MAX_WIDTH = 1000
"""Wider than any table: a line that the terminal has to break is better than numbers broken into cells."""
MAX_NAME_WIDTH = 60

STYLES = {
    Outcome.PASS: "green",
    Outcome.FAIL: "bold red",
    Outcome.INVALID: "bold red",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.NOT_JUDGED: "yellow",
}


@dataclass(frozen=True)
class Row:
    """One measurement and where it comes from."""

    record: TestRecord
    measurement: Measurement
    hidden: int = 0
    """Faster measurements of the same function in the same test that this row stands for."""

    @property
    def timing(self) -> Timing:
        """The timing."""
        return self.measurement.timing

    @property
    def name(self) -> str:
        """The test's name, without its file."""
        return self.record.nodeid.split("::", 1)[-1]

    @property
    def path_name(self) -> str:
        """The test's name with its file's, without folders."""
        path, _, name = self.record.nodeid.partition("::")
        return f"{path.rpartition('/')[2]}::{name}"


TIME_COLUMNS: dict[str, tuple[str, Callable[[Timing], float | None]]] = {
    "median": ("Median", lambda timing: timing.median_us),
    "mean": ("Mean", lambda timing: timing.mean_us),
    "std": ("Std", lambda timing: timing.std_us if timing.reps > 1 else None),
    "min": ("Min", lambda timing: timing.min_us),
    "q1": ("Q1", lambda timing: timing.quartiles_us[0]),
    "q3": ("Q3", lambda timing: timing.quartiles_us[2]),
    "max": ("Max", lambda timing: timing.max_us),
    "busy": ("Busy", lambda timing: timing.median_busy_us),
    "span": ("Span", lambda timing: timing.median_span_us),
}
OTHER_COLUMNS: dict[str, str] = {
    "interval": "95 % interval",
    "rel_std": "Rel. std",
    "reps": "Reps",
    "kernels": "Kernels",
    "clock": "SM MHz",
    "speedup": "Speedup",
    "limit": "Limit",
    "flags": "Flags",
}
SORT_VALUES: dict[str, Callable[[Timing], float]] = {
    "median": lambda timing: timing.median_us,
    "mean": lambda timing: timing.mean_us,
    "std": lambda timing: timing.std_us,
    "rel_std": lambda timing: timing.rel_std,
    "min": lambda timing: timing.min_us,
    "max": lambda timing: timing.max_us,
}


def render(records: Sequence[TestRecord], settings: Settings, color: bool) -> str:
    """Return the tables as text, with terminal colours if asked for; empty where nothing was measured."""
    from rich.console import Console

    rows = choose_rows(records, settings.verbose)
    console = Console(
        file=io.StringIO(),
        width=MAX_WIDTH,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
    )
    for title, members in group(rows, settings.group_by):
        console.print(build(title, sort(members, settings.sort), settings))
        if settings.verbose:
            print_kernels(console, members)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue().rstrip("\n")


def choose_rows(records: Iterable[TestRecord], everything: bool) -> list[Row]:
    """Return the measured rows; of a function measured very often in one test only the slowest, unless everything."""
    rows = []
    for record in records:
        measured = [item for item in record.measurements if item.timing.measured]
        by_label: dict[str, list[Measurement]] = {}
        for item in measured:
            by_label.setdefault(item.timing.label, []).append(item)
        for items in by_label.values():
            if everything or len(items) <= MOST_ROWS_PER_FUNCTION:
                rows += [Row(record, item) for item in items]
            else:
                slowest = max(items, key=lambda item: item.timing.median_us)
                rows.append(Row(record, slowest, hidden=len(items) - 1))
    return rows


def group(rows: Sequence[Row], key: str) -> list[tuple[str, list[Row]]]:
    """Return titled groups of rows, in the order in which each group first appears."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(group_title(row, key), []).append(row)
    return list(groups.items())


def group_title(row: Row, key: str) -> str:
    """Return the title of the group a row belongs to."""
    path, _, rest = row.record.nodeid.partition("::")
    name = rest.split("[", 1)[0]
    params = row.record.params
    if key == "param":
        return ", ".join(f"{name}={value}" for name, value in params.items()) or "no parameters"
    if key.startswith("param:"):
        wanted = key.removeprefix("param:")
        return f"{wanted}={params[wanted]}" if wanted in params else f"no parameter {wanted}"
    titles = {"file": path, "class": name.rpartition("::")[0] or path, "function": f"{path}::{name}"}
    return {**titles, "label": row.timing.label, "device": row.timing.device}.get(key, "")


def sort(rows: Sequence[Row], key: str) -> list[Row]:
    """Return the rows in the order asked for; "none" leaves the order of the run."""
    if key == "none":
        return list(rows)
    if key == "name":
        return sorted(rows, key=lambda row: row.name)
    return sorted(rows, key=lambda row: SORT_VALUES[key](row.timing))


def build(title: str, rows: Sequence[Row], settings: Settings) -> "Table":
    """Return one table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    unit = (
        settings.time_unit if settings.time_unit != "auto" else choose_time_unit(row.timing.median_us for row in rows)
    )
    columns = [name for name in settings.columns if name not in ("speedup", "limit", "flags") or has_any(name, rows)]
    table = Table(title=Text(f"gpu_bench{': ' if title else ''}{title}", style="bold"), box=box.SIMPLE_HEAD)
    table.title_justify = "left"
    table.add_column("Test", overflow="fold", max_width=MAX_NAME_WIDTH)
    table.add_column("Function", overflow="fold", max_width=MAX_NAME_WIDTH)
    for name in columns:
        header = f"{TIME_COLUMNS[name][0]} ({unit})" if name in TIME_COLUMNS else OTHER_COLUMNS[name]
        table.add_column(header, justify="left" if name in ("limit", "flags") else "right", no_wrap=True)
    files = {row.record.nodeid.split("::", 1)[0] for row in rows}
    for name, members in itertools.groupby(rows, key=lambda row: row.name if len(files) == 1 else row.path_name):
        for index, row in enumerate(members):
            label = row.timing.label + (f" (slowest of {row.hidden + 1})" if row.hidden else "")
            cells = [cell(column, row, unit) for column in columns]
            table.add_row(Text("" if index else name), Text(label), *cells)
    return table


def has_any(column: str, rows: Iterable[Row]) -> bool:
    """Tell whether a column that is mostly empty has anything to show."""
    if column == "limit":
        return any(row.measurement.verdicts for row in rows)
    if column == "speedup":
        return any(row.measurement.speedup for row in rows)
    return any(notes_of(row.timing) for row in rows)


def cell(column: str, row: Row, unit: str) -> "Text":
    """Return what a column says of a row."""
    from rich.text import Text

    if column == "limit":
        parts = [(outcome_text(item), STYLES[item.outcome]) for item in row.measurement.verdicts]
        return Text("\n").join([Text(text, style=style) for text, style in parts])
    if column == "speedup":
        return Text(speedup_text(row.measurement.speedup))
    if column == "flags":
        return Text(", ".join(notes_of(row.timing)), style="yellow")
    return Text(plain_cell(column, row.timing, unit))


def plain_cell(column: str, timing: Timing, unit: str) -> str:
    """Return a number of a timing as the table prints it."""
    if column in TIME_COLUMNS:
        return time_cell(TIME_COLUMNS[column][1](timing), unit)
    if column == "interval":
        interval = timing.median_interval_us
        return f"[{time_cell(interval.low, unit)}, {time_cell(interval.high, unit)}]" if interval else "-"
    if column == "rel_std":
        return format_share(timing.rel_std) if timing.reps > 1 else "-"
    if column == "kernels":
        return str(timing.launches) if timing.kernels else "-"
    if column == "clock":
        clock_mhz = timing.median_sm_clock_mhz
        return "-" if clock_mhz is None else f"{clock_mhz:.0f}"
    return str(timing.reps)


def speedup_text(speedup: Speedup | None) -> str:
    """Return a speedup with its interval; nothing for what is compared with nothing."""
    if speedup is None:
        return ""
    ratio, *ends = (round_to_digits(number, 4) for number in (speedup.ratio, *(speedup.interval or ())))
    return f"{ratio}x" + (f" [{', '.join(ends)}]" if ends else "")


def time_cell(value_us: float | None, unit: str) -> str:
    """Return a time in the table's unit with four significant digits."""
    return "-" if value_us is None else round_to_digits(value_us / MICROSECONDS_PER_UNIT[unit], 4)


def outcome_text(verdict: Verdict) -> str:
    """Return a verdict in a table's words."""
    failing = verdict.outcome is Outcome.FAIL or verdict.outcome is Outcome.INCONCLUSIVE
    suffix = " (not enforced)" if failing and not verdict.enforced else ""
    return f"{verdict.limit} {verdict.outcome.value.upper()}{suffix}"


def notes_of(timing: Timing) -> list[str]:
    """Return what a reader has to know of a timing, in words."""
    notes = list(timing.flags)
    if timing.discarded:
        notes.append(f"{timing.discarded} discarded")
    if timing.remeasured:
        notes.append(f"measured {timing.remeasured + 1} times")
    return notes


def print_kernels(console: "Console", rows: Iterable[Row]) -> None:
    """Write the kernels of every row."""
    for row in rows:
        console.print(f"{row.name} {row.timing.label}", markup=False)
        for line in kernel_lines(row.timing):
            console.print(line, markup=False, soft_wrap=True)


def kernel_lines(timing: Timing) -> list[str]:
    """Return a line for each kernel of a call, the longest first."""
    total_us = sum(kernel.median_us for kernel in timing.kernels) or 1.0
    ordered = sorted(timing.kernels, key=lambda kernel: -kernel.median_us)
    shares = [f"{100 * kernel.median_us / total_us:5.1f} %" for kernel in ordered]
    return [
        f"  {format_time(kernel.median_us):>10} {share} {kernel.launches} x {kernel.name}"
        for kernel, share in zip(ordered, shares, strict=True)
    ]
