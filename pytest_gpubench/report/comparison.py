"""The table of comparisons: each candidate, its reference, how many times as fast it is, and what the limits say."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pytest_gpubench.report.cells import (
    against_title,
    change_cell,
    coloured_lines,
    interval_cell,
    notes_of,
    outcome_text,
    speedup_text,
    time_cell,
)
from pytest_gpubench.report.rows import Row, names_of_tests, reference_label
from pytest_gpubench.results.model import Timing
from pytest_gpubench.units import choose_time_unit, round_to_digits

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def build(title: str, rows: Sequence[Row], time_unit: str, max_name_width: int) -> "Table":
    """Return one table of comparisons; the unit "auto" is the one that fits the times of both arms."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    unit = choose_time_unit(times_us(rows)) if time_unit == "auto" else time_unit
    judged = any(row.measurement.verdicts for row in rows)
    noted = any(notes_of_arms(row) for row in rows)
    against = against_title(row.measurement for row in rows)
    text = f"gpu_bench comparisons{': ' if title else ''}{title}"
    table = Table(title=Text(text, style="bold"), title_justify="left", box=box.SIMPLE_HEAD)
    for header in ("Test", "Variant"):
        table.add_column(header, overflow="fold", max_width=max_name_width)
    table.add_column(f"Time ({unit})", justify="right", no_wrap=True)
    table.add_column(f"Reference ({unit})", overflow="fold", max_width=max_name_width)
    table.add_column("Speedup", justify="right", no_wrap=True)
    if against:
        table.add_column(against, justify="right", no_wrap=True)
    if judged:
        table.add_column("Limit", no_wrap=True)
    table.add_column("Quads", justify="right", no_wrap=True)
    for header, wanted in (("Verdict", judged), ("Flags", noted)):
        if wanted:
            table.add_column(header, no_wrap=True)
    for name, row in zip(names_of_tests(rows), rows, strict=True):
        table.add_row(Text(name), *cells(row, unit, bool(against), judged, noted))
    return table


def cells(row: Row, unit: str, changed: bool, judged: bool, noted: bool) -> "list[Text]":
    """Return what the columns after the first say of a candidate; changed, judged and noted say which there are."""
    from rich.text import Text

    speedup, verdicts = row.measurement.speedup, row.measurement.verdicts
    texts = [variant_text(row), timing_cell(row.timing, unit), reference_cell(row, unit), speedup_text(speedup) or "-"]
    found = [Text(text) for text in texts]
    if changed:
        found.append(change_cell(row.measurement))
    if judged:
        found.append(Text("\n".join(verdict.limit for verdict in verdicts)))
    found.append(Text("-" if speedup is None else str(speedup.quads)))
    if judged:
        found.append(coloured_lines((outcome_text(verdict), verdict.outcome) for verdict in verdicts))
    if noted:
        found.append(Text(", ".join(notes_of_arms(row)), style="yellow"))
    return found


def variant_text(row: Row) -> str:
    """Return a candidate's name; which example it is, and of how many it is the worst, where hypothesis made them."""
    text = row.timing.label
    if row.hidden:
        others = f", median {ratio_text(row.usual)}, best {ratio_text(row.best)}" if row.usual and row.best else ""
        text += f" (worst of {row.hidden + 1}{others})"
        text += f" after {row.record.search}" if row.record.search else ""
    return f"{text} at {row.measurement.example}" if row.measurement.example else text


def ratio_text(ratio: float) -> str:
    """Return a speedup to three digits."""
    return f"{round_to_digits(ratio, 3)}x"


def times_us(rows: Iterable[Row]) -> list[float]:
    """Return the times that a table of comparisons shows."""
    times = []
    for row in rows:
        candidate_us = row.timing.median_us if row.timing.measured else None
        times += [value_us for value_us in (candidate_us, reference_us(row)) if value_us is not None]
    return times


def timing_cell(timing: Timing, unit: str) -> str:
    """Return a median with its interval, as far as there are any."""
    if not timing.measured:
        return "-"
    interval = timing.median_interval_us
    return time_cell(timing.median_us, unit) + (f" {interval_cell(interval, unit)}" if interval else "")


def reference_cell(row: Row, unit: str) -> str:
    """Return the reference's time and name."""
    return f"{time_cell(reference_us(row), unit)} {reference_label(row) or ''}".rstrip()


def reference_us(row: Row) -> float | None:
    """Return the reference's time; None where it was not measured."""
    if row.measurement.speedup is not None:
        return row.measurement.speedup.reference_us
    return row.reference.median_us if row.reference is not None and row.reference.measured else None


def notes_of_arms(row: Row) -> list[str]:
    """Return what a reader has to know of the candidate, then of its reference."""
    reference = [] if row.reference is None else notes_of(row.reference)
    return notes_of(row.timing) + [f"reference {note}" for note in reference]
