"""The table at the end of a run: a row for each measurement, its verdicts first."""

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_gpubench.metrics import BY_NAME, METRICS
from pytest_gpubench.report.cells import (
    STYLES,
    against_title,
    change_text,
    kernel_lines,
    notes_of_both,
    outcome_text,
    past_verdict,
    reference_text,
    speedup_text,
    times_us,
    variant_text,
)
from pytest_gpubench.report.layout import Column, Screen, lay_out
from pytest_gpubench.report.limits import limit_text
from pytest_gpubench.report.phases import phases_block, region_lines
from pytest_gpubench.report.rows import Row, choose_rows, group, names_of_tests, reference_label, sort
from pytest_gpubench.results.model import TestRecord, Verdict
from pytest_gpubench.settings import Settings
from pytest_gpubench.units import choose_time_unit, printable

HEADERS = {
    "verdict": "Verdict",
    "test": "Test",
    "function": "Function",
    "reference": "Reference ({unit})",
    "limit": "Limit",
    "flags": "Flags",
} | {metric.name: metric.header for metric in METRICS}
ALWAYS = ("verdict", "test", "function")
AUTOMATIC = (
    *("median", "interval", "reference", "speedup", "limit"),
    *("mean", "std", "min", "max", "reps", "kernels", "flags"),
)
"""The columns after those, where there is room for all."""
TO_THE_LEFT = (*ALWAYS, "reference", "limit", "flags")
FORMS = {
    "verdict": ((False, 0), (True, 0)),
    "test": ((False, 24), (True, 16), (True, 8)),
    "function": ((False, 0), (True, 16), (True, 8)),
    "speedup": ((False, 0), (True, 0)),
    "against": ((False, 0), (True, 0)),
    "limit": ((False, 22), (False, 10)),
    "flags": ((False, 12),),
}
"""A column's forms, the longest first: whether its cells are brief, and the width to which they may be shortened."""
GIVEN_UP = (
    *("function", "max", "min", "std", "mean", "kernels", "reps", "reference", "interval"),
    *("speedup", "against", "function", "test", "verdict", "flags", "against", "test", "speedup", "limit", "median"),
)
"""The columns that narrower screens shorten, in this order: each time to the next form, in the end to none."""


def render(records: Sequence[TestRecord], settings: Settings, screen: Screen) -> str:
    """Return the tables as text; empty where nothing was measured."""
    rows = [row for record in records for row in choose_rows(record, settings.verbose)]
    blocks = []
    for title, members in group(rows, settings.group_by):
        members = sort(members, settings.sort)
        blocks.append(lay_out(f"gpu_bench{': ' if title else ''}{title}", _columns_of(members, settings), screen))
        if settings.verbose:
            blocks += [screen.encoded(block) for row in members if (block := _kernels_block(row))]
    for record in records:
        title = f"gpu_bench phases: {record.nodeid.split('::', 1)[-1]}"
        blocks += [phases_block(title, found, settings.time_unit, screen) for found in record.phases if found.measured]
    return "\n\n".join(blocks)


@dataclass(frozen=True)
class _Line:
    """One line of the table: a row with its first verdict, or one of its further verdicts."""

    row: Row
    name: str
    verdict: Verdict | None
    is_first: bool


def _lines_of(rows: Sequence[Row]) -> list[_Line]:
    return [
        _Line(row, name if at == 0 else "", verdict, at == 0)
        for name, row in zip(names_of_tests(rows), rows, strict=True)
        for at, verdict in enumerate(row.measurement.verdicts or [None])
    ]


def _columns_of(rows: Sequence[Row], settings: Settings) -> list[Column]:
    unit: str = settings.time_unit
    if unit == "auto":
        unit = choose_time_unit(times_us(rows))
    lines = _lines_of(rows)
    chosen = list(settings.columns or AUTOMATIC)
    chosen.insert(next((at for at, name in enumerate(chosen) if name in ("limit", "flags")), len(chosen)), "against")
    columns = [_column(name, lines, unit, name in (settings.columns or ())) for name in (*ALWAYS, *chosen)]
    return [each for each in columns if any(each.cells)]


def _column(name: str, lines: Sequence[_Line], unit: str, is_kept: bool) -> Column:
    """Return a column with the shorter forms that replace it on narrow screens; is_kept: it has none."""
    ranks = [] if is_kept else [len(GIVEN_UP) - at for at, each in enumerate(GIVEN_UP) if each == name]
    found: list[Column] = []
    for at, (brief, least) in reversed(list(enumerate(FORMS.get(name, ((False, 0),))))):
        texts = [_cell(name, line, unit, brief) for line in lines]
        styles = [_style(name, line) for line in lines]
        rank = ranks[at] if at < len(ranks) else 0
        right, short = name not in TO_THE_LEFT, found[0] if found else None
        found = [Column(_header(name, lines, unit), texts, styles, right, least, rank, short, name == "flags")]
    return found[0]


def _header(name: str, lines: Sequence[_Line], unit: str) -> str:
    if name == "against":
        return against_title([line.row.measurement for line in lines])
    return HEADERS[name].format(unit=unit)


def _style(name: str, line: _Line) -> str:
    verdict = past_verdict(line.row.measurement) if name == "against" else line.verdict
    if name in ("verdict", "against") and verdict is not None:
        return STYLES[verdict.outcome]
    return "yellow" if name == "flags" else ""


def _cell(name: str, line: _Line, unit: str, brief: bool) -> str:
    if name == "verdict":
        return "" if line.verdict is None else outcome_text(line.verdict, brief)
    if name == "limit":
        return "" if line.verdict is None else limit_text(line.verdict, line.row.measurement)
    if name == "test":
        return line.row.name if brief and line.name else line.name
    return _row_cell(name, line.row, unit, brief) if line.is_first else ""


def _row_cell(name: str, row: Row, unit: str, brief: bool) -> str:
    if name == "function":
        return variant_text(row, brief)
    if name == "reference":
        return reference_text(row, unit)
    if name == "speedup":
        return speedup_text(row.measurement.speedup, brief) or ("-" if reference_label(row) else "")
    if name == "against":
        return change_text(row.measurement.change, brief)
    if name == "flags":
        return notes_of_both(row)
    return BY_NAME[name].text(row.measurement, unit)


def _kernels_block(row: Row) -> str:
    lines = [*kernel_lines(row.timing), *region_lines(row.timing.regions)]
    return "\n".join([printable(f"{row.name} {row.timing.label}"), *lines]) if lines else ""
