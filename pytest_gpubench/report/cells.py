"""Table cells and phrases for one timing, comparison, verdict, phase or region."""

from collections.abc import Callable, Iterable, Sequence

from pytest_gpubench.report.layout import Column, Screen, lay_out
from pytest_gpubench.report.rows import Row, reference_label
from pytest_gpubench.results.kernels import breakdown, longest
from pytest_gpubench.results.model import Measurement, Outcome, Resources, Speedup, Timing, Verdict
from pytest_gpubench.results.phases import OUTSIDE, Phase, Phases, Region
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import (
    MICROSECONDS_PER_UNIT,
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

STYLES = {
    Outcome.PASS: "green",
    Outcome.FAIL: "bold red",
    Outcome.INVALID: "bold red",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.NOT_JUDGED: "yellow",
}
MOST_KERNELS = 20
"""Kernels of one call that are listed; the shortest of more are summed up."""
WORTH_TELLING = 0.01
"""Changes of less are not counted, however certain they are, unless they break a limit."""


# times


def time_cell(value_us: float | None, unit: str) -> str:
    """Return a time in the table's unit with four significant digits."""
    return "-" if value_us is None else round_to_digits(value_us / MICROSECONDS_PER_UNIT[unit], 4)


def interval_cell(interval: Interval | None, unit: str) -> str:
    """Return an interval of times in the table's unit."""
    return f"[{time_cell(interval.low, unit)}, {time_cell(interval.high, unit)}]" if interval else "-"


def notes_of(timing: Timing) -> list[str]:
    """Return a timing's flags, and its numbers of discarded reps and repeated measurements."""
    notes = list(timing.flags)
    if timing.discarded:
        notes.append(f"{timing.discarded} discarded")
    if timing.remeasured:
        notes.append(f"measured {timing.remeasured + 1} times")
    return notes


def kernel_lines(timing: Timing) -> list[str]:
    """Return a line for each kernel of a call, the longest first, and one for the rest of very many."""
    return [
        f"  {format_time(each.median_us):>10} {100 * each.share:5.1f} % {each.launches} x {printable(each.name)}"
        + (f": {resources_text(each.resources)}" if each.resources else "")
        for each in longest(breakdown(timing), MOST_KERNELS)
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


# comparisons


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
    return "" if label is None else f"{time_cell(reference_us(row), unit)} {written(label)}"


def times_us(rows: Iterable[Row]) -> list[float]:
    """Return the times that a table shows: medians, and those of references."""
    times = [(row.timing.median_us if row.timing.measured else None, reference_us(row)) for row in rows]
    return [value_us for both in times for value_us in both if value_us is not None]


# verdicts, and changes against a saved run


def outcome_text(verdict: Verdict, brief: bool = False) -> str:
    """Return a verdict's outcome; "(not enforced)" follows it, or parentheses enclose it if brief."""
    word = verdict.outcome.value.upper()
    if verdict.enforced or verdict.outcome in (Outcome.PASS, Outcome.NOT_JUDGED):
        return word
    return f"({word})" if brief else f"{word} (not enforced)"


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
    if verdict is not None and verdict.outcome is Outcome.FAIL:
        return "slower"
    if interval is None:
        return ""
    if interval.low > 1 + WORTH_TELLING:
        return "slower"
    return "faster" if interval.high < 1 / (1 + WORTH_TELLING) else ""


def phases_block(title: str, found: Phases, time_unit: str, screen: Screen) -> str:
    """Return the table of one call of `phases`, and how the sum of its phases compares with the whole."""
    table = lay_out(title, _phase_columns(found, time_unit), screen)
    return "\n".join([table, *map(screen.encoded, screen.wrapped(found.sentence))])


def _phase_columns(found: Phases, time_unit: str) -> list[Column]:
    """Return the columns with a cell for each phase, their sum where there are several, and the whole."""
    timed = [*found.phases, *([found.whole] if found.whole else [])]
    unit = choose_time_unit(phase.median_us for phase in timed) if time_unit == "auto" else time_unit
    lines = [_phase_cells(phase, unit, format_share(phase.share, 3)) for phase in found.phases]
    if len(found.phases) > 1:
        times = [time_cell(found.sum_us, unit), interval_cell(found.sum_interval, unit)]
        lines.append(["sum of phases", *times, "100 %", rate_text(found.sum_elements_per_s), ""])
    if found.whole is not None:
        lines.append(_phase_cells(found.whole, unit, "-"))
    names, medians, intervals, shares, rates, flags = zip(*lines, strict=True)
    return [
        Column("Phase", names, least=16),
        Column(f"Median ({unit})", medians, right=True),
        Column("95 % interval", intervals, right=True, rank=2),
        Column("Share", shares, right=True),
        *([] if found.elements is None else [Column("Elements/s", rates, right=True, rank=3)]),
        *([Column("Flags", flags, rank=1)] if any(flags) else []),
    ]


def _phase_cells(phase: Phase, unit: str, share: str) -> list[str]:
    times = [time_cell(phase.median_us, unit), interval_cell(phase.interval, unit)]
    return [phase.name, *times, share, rate_text(phase.elements_per_s), ", ".join(phase.flags)]


def rate_text(per_s: float | None) -> str:
    """Write a rate per second to four digits with its prefix; a dash for None."""
    return "-" if per_s is None else format_decimal(per_s, "", digits=4).rstrip()


def region_lines(regions: Sequence[Region]) -> list[str]:
    """Return a line for each region of a call, indented by how it is nested, with its time and its share."""
    if not regions:
        return []
    names = [f"{'  ' * region.depth}{region.name}" for region in regions]
    width = max(map(len, names))
    lines = []
    for name, region in zip(names, regions, strict=True):
        calls = "" if region.path == OUTSIDE else f"  {region.calls} x"
        lines.append(f"  {name:<{width}}  {format_time(region.median_us):>10} {100 * region.share:5.1f} %{calls}")
    return ["  regions:", *(f"  {line}" for line in lines)]
