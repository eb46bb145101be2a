"""The rows of the tables, their order, and their cells: phrases for a timing, comparison, verdict, phase or region."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_gpubench.metrics import BY_NAME
from pytest_gpubench.report.layout import Column, Screen, lay_out
from pytest_gpubench.results.kernels import breakdown
from pytest_gpubench.results.model import Measurement, Outcome, Resources, Speedup, TestRecord, Timing, Verdict
from pytest_gpubench.results.phases import OUTSIDE, Phase, Phases, Region
from pytest_gpubench.units import (
    choose_time_unit,
    count,
    format_bytes,
    format_decimal,
    format_share,
    format_time,
    printable,
    ratio_text,
    round_to_digits,
)

MOST_ROWS_PER_FUNCTION = 8
"""Measurements of one function in one test that are shown without --gpu-bench-verbose; the worst is."""


@dataclass(frozen=True)
class Row:
    """One measurement, with its test and its reference."""

    record: TestRecord
    measurement: Measurement
    reference: Timing | None = None
    """The timing of a candidate's reference; None for a measurement without one."""
    hidden: int = 0
    """Better measurements of the same function in the same test that this row stands for."""
    usual: float | None = None
    """The median speedup of those that this row stands for, itself included; None where there are none."""
    best: float | None = None

    @property
    def timing(self) -> Timing:
        """The timing."""
        return self.measurement.timing

    @property
    def arms(self) -> list[Timing]:
        """The timing, and that of its reference where it has one."""
        return [self.timing] if self.reference is None else [self.timing, self.reference]

    @property
    def name(self) -> str:
        """The test's name, without its file."""
        return self.record.nodeid.split("::", 1)[-1]

    @property
    def shown(self) -> bool:
        """True if the row has numbers or is INVALID; no other row is printed."""
        return self.timing.measured or bool(self.measurement.why_invalid)


def split(record: TestRecord) -> tuple[list[Row], list[Row]]:
    """Return a test's measurements that belong to no comparison, and the candidates of its comparisons."""
    rows = all_rows(record)
    alone, candidates = ([row for row in rows if row.measurement.role == role] for role in ("", "candidate"))
    return alone, candidates


def reference_index(measurements: Sequence[Measurement], index: int) -> int | None:
    """Return the index of a candidate's reference, the nearest before it; None if there is none."""
    candidate = measurements[index]
    for before in range(index - 1, -1, -1) if candidate.role == "candidate" else ():
        item = measurements[before]
        is_named = candidate.speedup is None or item.timing.label == candidate.speedup.reference
        if item.role == "reference" and item.example == candidate.example and is_named:
            return before
    return None


def all_rows(record: TestRecord) -> list[Row]:
    """Return every measurement of a test, references too, in the order in which they were taken."""
    items, found = record.measurements, []
    for index, item in enumerate(items):
        reference = reference_index(items, index)
        found.append(Row(record, item, None if reference is None else items[reference].timing))
    return found


def rows_of(record: TestRecord) -> list[Row]:
    """Return the rows of a test that have numbers or verdicts: the worst of a function measured very often."""
    return [row for half in split(record) for row in fold(half) if row.shown or row.measurement.verdicts]


def verdicts_of(records: Iterable[TestRecord]) -> list[Verdict]:
    """Return the verdicts on tests; the examples of a search count as one."""
    return [verdict for record in records for row in rows_of(record) for verdict in row.measurement.verdicts]


def fold(rows: Iterable[Row], pick: Callable[[Sequence[Row]], Row] | None = None) -> list[Row]:
    """Return the rows of a test, one row for a function that has very many or was called with examples.

    pick: chooses that row; None takes the worst.
    """
    functions: dict[tuple[str, str | None], list[Row]] = {}
    for row in rows:
        functions.setdefault((row.timing.label, reference_label(row)), []).append(row)
    kept = []
    for members in functions.values():
        of_examples = len(members) > 1 and all(row.measurement.example for row in members)
        if len(members) <= MOST_ROWS_PER_FUNCTION and not of_examples:
            kept += members
        else:
            row = pick(members) if pick else max(members, key=badness)
            ratios = [each.measurement.speedup.ratio for each in members if each.measurement.speedup is not None]
            usual, best = (statistics.median(ratios), max(ratios)) if ratios else (None, None)
            kept.append(replace(row, hidden=len(members) - 1, usual=usual, best=best))
    return kept


def badness(row: Row) -> tuple[bool, int, float, float]:
    """Return the key that sorts rows of one function from best to worst: by the worst verdict, then by slowness.

    Slowness is against the reference, or by time. INVALID without a number is worst.
    """
    time_us = row.timing.median_us if row.timing.measured else math.inf
    without = math.inf if row.reference is not None else -math.inf
    slowness = without if row.measurement.speedup is None else -row.measurement.speedup.ratio
    severity = max((verdict.outcome.badness for verdict in row.measurement.verdicts), default=0)
    return row.shown, severity, slowness, time_us


def reference_label(row: Row) -> str | None:
    """Return the name of a row's reference; None if it has none."""
    if row.measurement.speedup is not None:
        return row.measurement.speedup.reference
    return None if row.reference is None else row.reference.label


def group(rows: Sequence[Row], key: str) -> list[tuple[str, list[Row]]]:
    """Return titled groups of rows, in the order in which each group first appears."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        path, _, rest = row.record.nodeid.partition("::")
        name, params, wanted = rest.split("[", 1)[0], row.record.params, key.removeprefix("param:")
        titles = {
            "file": path,
            "class": name.rpartition("::")[0] or path,
            "function": f"{path}::{name}",
            "label": row.timing.label,
            "device": row.timing.device,
            "param": ", ".join(f"{name}={value}" for name, value in params.items()) or "no parameters",
            f"param:{wanted}": f"{wanted}={params[wanted]}" if wanted in params else f"no parameter {wanted}",
        }
        groups.setdefault(titles.get(key, ""), []).append(row)
    return list(groups.items())


def sort(rows: Sequence[Row], key: str) -> list[Row]:
    """Return the rows in the order asked for, those without numbers last; "none" leaves the order of the run."""
    if key == "none":
        return list(rows)
    if key == "name":
        return sorted(rows, key=lambda row: row.name)
    values = {id(row): BY_NAME[key].value(row.measurement) for row in rows}
    return sorted(rows, key=lambda row: (not row.timing.measured, values[id(row)] is None, values[id(row)] or 0.0))


STYLES = dict(zip(Outcome, ("green", "bold red", "yellow", "bold red", "yellow"), strict=True))
MEDIAN = BY_NAME["median"]
MOST_KERNELS = 20
"""Kernels of one call that are listed; the shortest of more are summed up."""
WORTH_TELLING = 0.01
"""Changes of less are not counted, however certain they are, unless they break a limit."""


def notes_of(timing: Timing) -> list[str]:
    """Return a timing's flags, and its numbers of discarded reps and repeated measurements."""
    discarded = [f"{timing.discarded} discarded"] if timing.discarded else []
    return [*timing.flags, *discarded, *([f"measured {timing.remeasured + 1} times"] if timing.remeasured else [])]


def kernel_lines(timing: Timing) -> list[str]:
    """Return a line for each kernel of a call, the longest first, and one for the rest of very many."""
    return [
        f"  {format_time(each.median_us):>10} {100 * each.share:5.1f} % {each.launches} x {printable(each.name)}"
        + (f": {resources_text(each.resources)}" if each.resources else "")
        for each in breakdown(timing, MOST_KERNELS)
    ]


def resources_text(kinds: Sequence[Resources]) -> str:
    """Return what a kernel takes of a multiprocessor, of launches of several kinds the most frequent; empty for none.

    `72 registers, 600 B local, 48 KiB shared, 2 blocks per SM, 1.94 waves`
    """
    if not kinds:
        return ""
    launch = max(kinds, key=lambda each: each.launches)
    words = [count(launch.registers, "register")]
    words += [f"{format_bytes(launch.local_bytes)} local"] if launch.local_bytes else []
    words += [f"{format_bytes(launch.shared_bytes)} shared"] if launch.shared_bytes else []
    words += [f"{count(launch.blocks_per_sm, 'block')} per SM", f"{round_to_digits(launch.waves, 3)} waves"]
    others = f" (1 of {len(kinds)} kinds of launches)" if len(kinds) > 1 else ""
    return ", ".join(words) + others


def speedup_text(speedup: Speedup | None, brief: bool = False) -> str:
    """Return a speedup with its interval, unless brief; empty without a speedup."""
    return "" if speedup is None else ratio_text(speedup.ratio, None if brief else speedup.interval)


def variant_text(row: Row) -> str:
    """Return a function's name; which example it is, and of how many it is the worst, where it stands for many."""
    word = "worst" if reference_label(row) else "slowest"
    example = f" at {row.measurement.example}" if row.measurement.example else ""
    if not row.hidden:
        return f"{row.timing.label}{example}"
    others = ""
    if row.usual is not None and row.best is not None:
        others = f", median {ratio_text(row.usual, digits=3)}, best {ratio_text(row.best, digits=3)}"
    search = f" after {row.record.search}" if row.record.search else ""
    return f"{row.timing.label} ({word} of {row.hidden + 1}{others}){search}{example}"


def reference_us(row: Row) -> float | None:
    """Return the reference's time; None where it was not measured."""
    if row.measurement.speedup is not None:
        return row.measurement.speedup.reference_us
    return row.reference.median_us if row.reference is not None and row.reference.measured else None


def reference_text(row: Row, unit: str, written: Callable[[str], str] = str) -> str:
    """Return the reference's time and name, written by a function; empty without a reference."""
    label = reference_label(row)
    return "" if label is None else f"{MEDIAN.written(reference_us(row), unit)} {written(label)}"


def times_us(rows: Iterable[Row]) -> list[float]:
    """Return the times that a table shows: medians, and those of references."""
    times = [(row.timing.median_us if row.timing.measured else None, reference_us(row)) for row in rows]
    return [value_us for both in times for value_us in both if value_us is not None]


def outcome_text(verdict: Verdict, brief: bool = False) -> str:
    """Return a verdict's outcome; "(not enforced)" follows it, or parentheses enclose it if brief."""
    word = verdict.outcome.value.upper()
    if not is_loose(verdict):
        return word
    return f"({word})" if brief else f"{word} (not enforced)"


def is_loose(verdict: Verdict) -> bool:
    """Tell whether a verdict is FAIL, INVALID or INCONCLUSIVE, and not enforced."""
    return not verdict.enforced and verdict.outcome not in (Outcome.PASS, Outcome.NOT_JUDGED)


def past_verdict(item: Measurement) -> Verdict | None:
    """Return the verdict on a measurement's change against a saved run; None where that was not judged."""
    return next((each for each in item.verdicts if each.is_of_past), None)


def against_title(items: Sequence[Measurement]) -> str:
    """Return the header over changes, with the baseline's name; empty without changes."""
    names = {item.change.baseline for item in items if item.change is not None}
    if not names:
        return ""
    return f"Against {names.pop()}" if len(names) == 1 else "Against baselines"


def change_word(item: Measurement) -> str:
    """Return `slower` or `faster` where that is certain and worth telling, else nothing."""
    verdict, interval = past_verdict(item), item.change.interval if item.change is not None else None
    low, high = interval or (1.0, 1.0)
    if (verdict is not None and verdict.outcome is Outcome.FAIL) or low > 1 + WORTH_TELLING:
        return "slower"
    return "faster" if high < 1 / (1 + WORTH_TELLING) else ""


def phases_block(title: str, found: Phases, time_unit: str, screen: Screen) -> str:
    """Return the table of one call of `phases`, and how the sum of its phases compares with the whole."""
    timed = [*found.phases, *([found.whole] if found.whole else [])]
    unit = choose_time_unit(phase.median_us for phase in timed) if time_unit == "auto" else time_unit
    lines = [_phase_cells(phase, unit, format_share(phase.share, 3)) for phase in found.phases]
    if len(found.phases) > 1:
        times = [MEDIAN.written(found.sum_us, unit), MEDIAN.written(found.sum_interval, unit)]
        lines.append(["sum of phases", *times, "100 %", rate_text(found.sum_elements_per_s), ""])
    if found.whole is not None:
        lines.append(_phase_cells(found.whole, unit, "-"))
    names, medians, intervals, shares, rates, flags = zip(*lines, strict=True)
    columns = [
        Column("Phase", names, least=16),
        Column(f"Median ({unit})", medians, right=True),
        Column("95 % interval", intervals, right=True, rank=2),
        Column("Share", shares, right=True),
        *([] if found.elements is None else [Column("Elements/s", rates, right=True, rank=3)]),
        *([Column("Flags", flags, rank=1)] if any(flags) else []),
    ]
    return "\n".join([lay_out(title, columns, screen), *map(screen.encoded, screen.wrapped(found.sentence))])


def _phase_cells(phase: Phase, unit: str, share: str) -> list[str]:
    times = [MEDIAN.written(phase.median_us, unit), MEDIAN.written(phase.interval, unit)]
    return [phase.name, *times, share, rate_text(phase.elements_per_s), ", ".join(phase.flags)]


def rate_text(per_s: float | None) -> str:
    """Write a rate per second to four digits with its prefix; a dash for None."""
    return "-" if per_s is None else format_decimal(per_s, "", digits=4).rstrip()


def region_lines(regions: Sequence[Region]) -> list[str]:
    """Return a line for each region of a call, indented by how it is nested, with its time and its share."""
    width = max((2 * region.depth + len(region.name) for region in regions), default=0)
    lines = ["  regions:"] if regions else []
    for region in regions:
        name, calls = "  " * region.depth + region.name, "" if region.path == OUTSIDE else f"  {region.calls} x"
        lines.append(f"    {name:<{width}}  {format_time(region.median_us):>10} {100 * region.share:5.1f} %{calls}")
    return lines
