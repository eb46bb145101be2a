"""The table at the end of a run: a row for each measurement, its verdicts first."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from pytest_gpubench.metrics import BY_NAME, METRICS
from pytest_gpubench.report.layout import WIDE, Column, Screen, lay_out
from pytest_gpubench.report.rows import (
    STYLES,
    Row,
    against_title,
    all_rows,
    fold,
    group,
    is_loose,
    kernel_lines,
    notes_of,
    outcome_text,
    past_verdict,
    phases_block,
    reference_label,
    reference_text,
    region_lines,
    sort,
    speedup_text,
    split,
    times_us,
    variant_text,
)
from pytest_gpubench.results.model import SAME_CODE, VALIDITY, Measurement, PastChange, TestRecord, Verdict
from pytest_gpubench.settings import Settings
from pytest_gpubench.units import bracketed, choose_time_unit, printable, ratio_text
from pytest_gpubench.verdict.limits import BY_NAME as LIMIT_BY_NAME
from pytest_gpubench.verdict.limits import literal_of

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
GIVEN_UP = (
    *("max", "min", "std", "mean", "kernels", "reps", "test", "wide function", "flags", "reference", "interval"),
    *("speedup", "against", "function", "against without interval", "limit"),
)
"""The columns that narrower screens give up, in this order: for a shorter form, for lines of its own, or altogether."""
NOT_ENFORCED = "Verdicts in parentheses are not enforced."


def render(records: Sequence[TestRecord], settings: Settings, screen: Screen) -> str:
    """Return the tables as text; empty where nothing was measured."""
    rows, blocks = list[Row](), list[str]()
    for record in records:
        folded = [row for half in split(record) for row in fold(row for row in half if row.shown)]
        rows += [row for row in all_rows(record) if row.shown] if settings.verbose else folded
    for title, members in group(rows, settings.group_by):
        members = sort(members, settings.sort)
        blocks.append(_block(title, members, settings, screen))
        if settings.verbose:
            for row in members:
                lines = [*kernel_lines(row.timing), *region_lines(row.timing.regions)]
                head = printable(f"{row.name} {row.timing.label}")
                blocks += [screen.encoded("\n".join([head, *lines]))] if lines else []
    for record in records:
        title = f"gpu_bench phases: {record.nodeid.split('::', 1)[-1]}"
        blocks += [phases_block(title, found, settings.time_unit, screen) for found in record.phases if found.measured]
    return "\n\n".join(blocks)


def _block(title: str, rows: Sequence[Row], settings: Settings, screen: Screen) -> str:
    """Return the table of a group; what the ids of its tests begin with is said once, above it."""
    prefix, names = _names_of_tests(rows)
    where = prefix.removesuffix("::")
    titles = " in ".join(filter(None, [title, "" if title.startswith(where) else where]))
    lines = [
        _Line(row, name if at == 0 and name != before else "", verdict, at == 0)
        for before, name, row in zip(["", *names], names, rows, strict=False)
        for at, verdict in enumerate(row.measurement.verdicts or [None])
    ]
    columns = _columns_of(lines, settings, screen.width)
    table = lay_out(f"gpu_bench{': ' if titles else ''}{titles}", columns, screen)
    has_loose = any(line.verdict and is_loose(line.verdict) for line in lines)
    return "\n".join([table, *([NOT_ENFORCED] if has_loose else [])])


def _names_of_tests(rows: Sequence[Row]) -> tuple[str, list[str]]:
    """Return what the ids of all rows begin with, a file or a folder, and each row's id without it."""
    ids = [row.record.nodeid for row in rows]
    paths = list(dict.fromkeys(nodeid.partition("::")[0] for nodeid in ids))
    if len(paths) == 1 and all("::" in nodeid for nodeid in ids):
        prefix = f"{paths[0]}::"
    else:
        folders = zip(*(path.split("/")[:-1] for path in paths), strict=False)
        prefix = "".join(f"{names[0]}/" for names in takewhile(lambda names: len(set(names)) == 1, folders))
    return prefix, [nodeid.removeprefix(prefix) for nodeid in ids]


@dataclass(frozen=True)
class _Line:
    """One line of the table: a row with its first verdict, or one of its further verdicts."""

    row: Row
    name: str
    """The test's name; empty where the line before has the same."""
    verdict: Verdict | None
    is_first: bool


def _columns_of(lines: Sequence[_Line], settings: Settings, width: int) -> list[Column]:
    unit: str = settings.time_unit
    if unit == "auto":
        unit = choose_time_unit(times_us(line.row for line in lines))
    chosen = list(settings.columns or AUTOMATIC)
    chosen.insert(next((at for at, name in enumerate(chosen) if name in ("limit", "flags")), len(chosen)), "against")
    asked = settings.columns or ()
    columns = [(name, _column(name, lines, unit, name in asked, width)) for name in (*ALWAYS, *chosen)]
    return [each for name, each in columns if set(each.cells) - ({""} if name in asked else {"", "-"})]


def _column(name: str, lines: Sequence[_Line], unit: str, is_kept: bool, width: int) -> Column:
    """Return a column, with the form that replaces it on narrow screens; is_kept: it is never given up."""
    against = [line.row.measurement for line in lines] if name == "against" else []
    header = against_title(against) if name == "against" else HEADERS[name].format(unit=unit)
    styles = ["yellow" if name == "flags" else ""] * len(lines)
    if name in ("verdict", "against"):
        judged = [past_verdict(line.row.measurement) if name == "against" else line.verdict for line in lines]
        styles = ["" if verdict is None else STYLES[verdict.outcome] for verdict in judged]
    long, brief = ([_cell(name, line, unit, is_brief) for line in lines] for is_brief in (False, True))
    ranks = {} if is_kept else {each: len(GIVEN_UP) - at for at, each in reversed(list(enumerate(GIVEN_UP)))}
    whole = Column(header, long, styles, name not in TO_THE_LEFT, rank=ranks.get(name, 0))
    if not whole.rank:
        return whole
    if brief != long:
        return replace(whole, short=replace(whole, cells=brief, rank=ranks.get(f"{name} without interval", 0)))
    if name == "test":  # as pytest takes it, if all of them fit
        ids = Column("", [line.row.record.nodeid if line.name else "" for line in lines])
        return replace(
            whole, short=(replace(whole, cells=ids.cells) if ids.width <= width else whole).moved(may_wrap=False)
        )
    if name == "function" and whole.width > WIDE:
        narrow = whole.moved(WIDE, rank=whole.rank, short=whole.moved())
        return replace(whole, rank=ranks["wide function"], short=narrow)
    if name in ("flags", "limit"):
        titles = [f"flags of {line.row.timing.label}" if name == "flags" else "limit" for line in lines]
        named = [f"{title}: {cell}" if cell else "" for title, cell in zip(titles, long, strict=True)]
        return replace(whole, short=replace(whole, cells=named).moved())
    return replace(whole, short=whole.moved()) if name == "function" else whole


def _cell(name: str, line: _Line, unit: str, brief: bool) -> str:
    if name == "verdict":
        return "" if line.verdict is None else outcome_text(line.verdict, brief=True)
    if name == "limit":
        return "" if line.verdict is None else limit_text(line.verdict, line.row.measurement)
    row = line.row
    if name == "test" or not line.is_first:
        return line.name if name == "test" else ""
    if name == "function":
        return variant_text(row)
    if name == "reference":
        return reference_text(row, unit)
    if name == "speedup":
        return speedup_text(row.measurement.speedup, brief) or ("-" if reference_label(row) else "")
    if name == "against":
        return _change_cell(row.measurement.change, brief)
    if name == "flags":
        reference = [] if row.reference is None else notes_of(row.reference)
        return ", ".join(notes_of(row.timing) + [f"reference {note}" for note in reference])
    return BY_NAME[name].text(row.measurement, unit)


def _change_cell(change: PastChange | None, brief: bool) -> str:
    """Return the change of the compared metric, `speedup -20.0 % [-21.0, -19.0]`; nothing without a change.

    A factor, `median 0.002105x [0.001904, 0.002326]`, where one of these is ten times as much, or a tenth.
    """
    if change is None:
        return ""
    if change.metric == SAME_CODE:
        return SAME_CODE
    ratios = [change.ratio, *((not brief and change.interval) or ())]
    if change.metric == "speedup":  # whose ratio is old over new
        ratios = [1 / ratio for ratio in ratios[:1] + ratios[:0:-1]]
    if min(ratios) <= 0.1 or max(ratios) >= 10:
        return f"{printable(change.metric)} {ratio_text(ratios[0], ratios[1:] or None)}"
    percents = [100 * (ratio - 1) for ratio in ratios]
    found, *ends = (f"{each:+.1f}" if abs(each) >= 1 else f"{round(each, 2) + 0.0:+.2f}" for each in percents)
    return f"{printable(change.metric)} {found} %" + bracketed(ends)


def limit_text(verdict: Verdict, item: Measurement) -> str:
    """Return a limit as a table writes it: `<= 40 us (H200)`, with the measured value where no other column has it.

    Of a verdict on the test as a whole, all its limits.
    """
    try:
        limits = [(verdict.kind, literal_of(verdict.asked))]
        if verdict.kind == VALIDITY:
            mark = ast.parse(f"perf({verdict.asked})", mode="eval").body
            if not isinstance(mark, ast.Call) or mark.args:
                return verdict.limit
            limits = [(each.arg or "", ast.literal_eval(each.value)) for each in mark.keywords]
        text = ", ".join(LIMIT_BY_NAME[name](asked).cell(item) for name, asked in limits)
    except Exception:  # a limit that another version has written, or a stranger
        return verdict.limit
    return f"{verdict.found} {text}" if verdict.found else text
