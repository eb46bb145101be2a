"""What the tables and the reports say of one timing, one speedup, one verdict."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pytest_gpubench.results.kernels import breakdown, longest
from pytest_gpubench.results.model import Measurement, Outcome, PastChange, Speedup, Timing, Verdict
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import MICROSECONDS_PER_UNIT, format_time, printable, round_to_digits

if TYPE_CHECKING:
    from rich.text import Text

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
    """Return a line for each kernel of a call, the longest first, and one for the rest of very many."""
    return [
        f"  {format_time(each.median_us):>10} {100 * each.share:5.1f} % {each.launches} x {printable(each.name)}"
        for each in longest(breakdown(timing), MOST_KERNELS)
    ]


def past_verdict(item: Measurement) -> Verdict | None:
    """Return the verdict on a measurement's change against a saved run; None where that was not judged."""
    return next((each for each in item.verdicts if each.is_of_past), None)


def change_text(change: PastChange) -> str:
    """Return how many times as long as in a saved run something takes, with its interval."""
    ratio, *ends = (round_to_digits(number, 4) for number in (change.ratio, *(change.interval or ())))
    return f"{ratio}x" + (f" [{', '.join(ends)}]" if ends else "")


def change_cell(item: Measurement) -> "Text":
    """Return a measurement's change, in the colour of its verdict where there is one; nothing where there is none."""
    from rich.text import Text

    if item.change is None:
        return Text("")
    verdict = past_verdict(item)
    return Text(change_text(item.change), style="" if verdict is None else STYLES[verdict.outcome])


def against_title(items: Iterable[Measurement]) -> str:
    """Return the header over changes, by the name of what they are against; empty where there are none."""
    names = {item.change.baseline for item in items if item.change is not None}
    if not names:
        return ""
    return f"Time against {printable(names.pop())}" if len(names) == 1 else "Time against baselines"


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
