"""What the tables and the reports say of one timing, one speedup, one verdict."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pytest_gpubench.results.model import Outcome, Speedup, Timing, Verdict
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import MICROSECONDS_PER_UNIT, format_time, round_to_digits

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {
    Outcome.PASS: "green",
    Outcome.FAIL: "bold red",
    Outcome.INVALID: "bold red",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.NOT_JUDGED: "yellow",
}


def time_cell(value_us: float | None, unit: str) -> str:
    """Return a time in the table's unit with four significant digits."""
    return "-" if value_us is None else round_to_digits(value_us / MICROSECONDS_PER_UNIT[unit], 4)


def interval_cell(interval: Interval | None, unit: str) -> str:
    """Return an interval of times in the table's unit."""
    return f"[{time_cell(interval.low, unit)}, {time_cell(interval.high, unit)}]" if interval else "-"


def speedup_text(speedup: Speedup | None) -> str:
    """Return a speedup with its interval; nothing for what is compared with nothing."""
    if speedup is None:
        return ""
    ratio, *ends = (round_to_digits(number, 4) for number in (speedup.ratio, *(speedup.interval or ())))
    return f"{ratio}x" + (f" [{', '.join(ends)}]" if ends else "")


def outcome_text(verdict: Verdict) -> str:
    """Return a verdict's outcome in a table's words."""
    suffix = "" if verdict.enforced or verdict.outcome in (Outcome.PASS, Outcome.NOT_JUDGED) else " (not enforced)"
    return f"{verdict.outcome.value.upper()}{suffix}"


def coloured_lines(lines: Iterable[tuple[str, Outcome]]) -> "Text":
    """Return lines, each in the colour of its verdict."""
    from rich.text import Text

    return Text("\n").join([Text(text, style=STYLES[outcome]) for text, outcome in lines])


def notes_of(timing: Timing) -> list[str]:
    """Return what a reader has to know of a timing, in words."""
    notes = list(timing.flags)
    if timing.discarded:
        notes.append(f"{timing.discarded} discarded")
    if timing.remeasured:
        notes.append(f"measured {timing.remeasured + 1} times")
    return notes


def kernel_lines(timing: Timing) -> list[str]:
    """Return a line for each kernel of a call, the longest first."""
    total_us = sum(kernel.median_us for kernel in timing.kernels) or 1.0
    ordered = sorted(timing.kernels, key=lambda kernel: -kernel.median_us)
    shares = [f"{100 * kernel.median_us / total_us:5.1f} %" for kernel in ordered]
    return [
        f"  {format_time(kernel.median_us):>10} {share} {kernel.launches} x {kernel.name}"
        for kernel, share in zip(ordered, shares, strict=True)
    ]
