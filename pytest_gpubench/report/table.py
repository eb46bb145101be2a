"""The tables at the end of a run; here, that of the measurements."""

import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from pytest_gpubench.report import comparison
from pytest_gpubench.report.cells import (
    against_title,
    change_cell,
    coloured_lines,
    interval_cell,
    kernel_lines,
    notes_of,
    outcome_text,
    speedup_text,
    time_cell,
)
from pytest_gpubench.report.layout import lay_out
from pytest_gpubench.report.phases import print_phases, region_lines
from pytest_gpubench.report.rows import Row, choose_comparisons, choose_measurements, group, names_of_tests, sort
from pytest_gpubench.results.model import TestRecord, Timing
from pytest_gpubench.settings import Settings
from pytest_gpubench.units import choose_time_unit, format_share

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

MAX_WIDTH = 1000
"""Wider than any table: a line that the terminal has to break is better than numbers broken into cells."""
MAX_NAME_WIDTH = 60

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
LAST = ("limit", "flags")
AGAINST = "against"
"""The column of changes against a saved run, which is there where there are any."""


def render(records: Sequence[TestRecord], settings: Settings, color: bool) -> str:
    """Return the tables as text, with terminal colours if asked for; empty where nothing was measured."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(),
        width=MAX_WIDTH,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
    )
    for title, rows in group(choose_measurements(records, settings.verbose), settings.group_by):
        print_table(console, build(title, sort(rows, settings.sort), settings))
        if settings.verbose:
            print_kernels(console, rows)
    for title, rows in group(choose_comparisons(records, settings.verbose), settings.group_by):
        print_table(console, comparison.build(title, sort(rows, settings.sort), settings.time_unit, MAX_NAME_WIDTH))
    for record in records:
        for found in record.phases:
            print_phases(console, record.nodeid.split("::", 1)[-1], found, settings.time_unit, MAX_NAME_WIDTH)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue().rstrip("\n")


def print_table(console: "Console", table: "Table") -> None:
    """Write a table."""
    console.file.write(f"{lay_out(table, console)}\n")


def build(title: str, rows: Sequence[Row], settings: Settings) -> "Table":
    """Return one table of measurements."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    unit: str = settings.time_unit
    if unit == "auto":
        unit = choose_time_unit(row.timing.median_us for row in rows if row.timing.measured)
    columns = [name for name in settings.columns if name not in ("speedup", "limit", "flags") or has_any(name, rows)]
    against = against_title(row.measurement for row in rows)
    if against:
        columns.insert(next((at for at, name in enumerate(columns) if name in LAST), len(columns)), AGAINST)
    table = Table(title=Text(f"gpu_bench{': ' if title else ''}{title}", style="bold"), box=box.SIMPLE_HEAD)
    table.title_justify = "left"
    table.add_column("Test", overflow="fold", max_width=MAX_NAME_WIDTH)
    table.add_column("Function", overflow="fold", max_width=MAX_NAME_WIDTH)
    for name in columns:
        header = f"{TIME_COLUMNS[name][0]} ({unit})" if name in TIME_COLUMNS else OTHER_COLUMNS.get(name, against)
        table.add_column(header, justify="left" if name in LAST else "right", no_wrap=True)
    for name, row in zip(names_of_tests(rows), rows, strict=True):
        label = row.timing.label + (f" (slowest of {row.hidden + 1})" if row.hidden else "")
        table.add_row(Text(name), Text(label), *(cell(column, row, unit) for column in columns))
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
        return coloured_lines((f"{each.limit} {outcome_text(each)}", each.outcome) for each in row.measurement.verdicts)
    if column == AGAINST:
        return change_cell(row.measurement)
    if column == "speedup":
        return Text(speedup_text(row.measurement.speedup))
    if column == "flags":
        return Text(", ".join(notes_of(row.timing)), style="yellow")
    return Text(plain_cell(column, row.timing, unit) if row.timing.measured else "-")


def plain_cell(column: str, timing: Timing, unit: str) -> str:
    """Return a number of a timing as the table prints it."""
    if column in TIME_COLUMNS:
        return time_cell(TIME_COLUMNS[column][1](timing), unit)
    if column == "interval":
        return interval_cell(timing.median_interval_us, unit)
    if column == "rel_std":
        return format_share(timing.rel_std) if timing.reps > 1 else "-"
    if column == "kernels":
        return str(timing.launches) if timing.kernels else "-"
    if column == "clock":
        clock_mhz = timing.median_sm_clock_mhz
        return "-" if clock_mhz is None else f"{clock_mhz:.0f}"
    return str(timing.reps)


def print_kernels(console: "Console", rows: Iterable[Row]) -> None:
    """Write the kernels and regions of every row that has some."""
    for row in rows:
        lines = [*kernel_lines(row.timing), *region_lines(row.timing.regions)]
        if lines:
            console.print(f"{row.name} {row.timing.label}", markup=False)
        for line in lines:
            console.print(line, markup=False, soft_wrap=True)
