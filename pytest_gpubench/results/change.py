"""How a measurement has changed since a saved run: judged by what is tolerated, and told in a sentence."""

import math
from collections.abc import Sequence
from typing import cast

from pytest_gpubench.results.model import Measurement, Outcome, Timing
from pytest_gpubench.stats.regression import (
    Change,
    Metric,
    change_of_samples,
    change_of_speedups,
    decide,
    decide_difference,
    least_samples,
)
from pytest_gpubench.stats.tolerance import Tolerance
from pytest_gpubench.units import choose_time_unit, count, format_time, printable, round_to_digits

__tracebackhide__ = True

OUTCOMES = {"pass": Outcome.PASS, "fail": Outcome.FAIL, "open": Outcome.INCONCLUSIVE}
PROFILER_TICK_US = 0.032
"""Of the clock that kernels are timed with; `needed_batch` says why it matters."""
ROUNDED_US = 0.0015
"""By how much whole nanoseconds may miss a multiple of the tick."""
ENOUGH_TO_SEE_TICKS = 6
"""Samples of each run: of a clock without ticks, twelve would fit by chance less than once in 10^11."""


def change_between(old: Measurement, new: Measurement, tolerance: Tolerance, alpha: float) -> Change:
    """Return how what the tolerance asks for has changed; the median where it asks for a speedup and one has none.

    Raises ValueError where a sample is no time.
    """
    if tolerance.metric == "speedup" and old.speedup is not None and new.speedup is not None:
        kept = old.speedup.log_ratios, new.speedup.log_ratios
        if all(kept) and old.speedup.reference == new.speedup.reference:
            return change_of_speedups(*kept, alpha)
    metric = cast(Metric, "median" if tolerance.metric == "speedup" else tolerance.metric)
    tick_us = tick_between(old.timing, new.timing)
    return change_of_samples(old.timing.samples_us, new.timing.samples_us, metric, alpha, tick_us)


def tick_between(old: Timing, new: Timing) -> float:
    """Return the tick of the profiler's clock in microseconds where the samples show it, else 0."""
    if old.timer != "profiler" or new.timer != "profiler":
        return 0.0
    shown = old.samples_us[:ENOUGH_TO_SEE_TICKS] + new.samples_us[:ENOUGH_TO_SEE_TICKS]
    ticks = all(
        math.isfinite(sample) and abs(math.remainder(sample, PROFILER_TICK_US)) <= ROUNDED_US for sample in shown
    )
    return PROFILER_TICK_US if ticks else 0.0


def outcome_of(change: Change, tolerance: Tolerance) -> Outcome:
    """Return FAIL where all that a change may be is more than is tolerated, PASS where none of it is."""
    if tolerance.margin is not None:
        return OUTCOMES[decide(change, tolerance.margin)]
    assert tolerance.absolute_us is not None
    return OUTCOMES[decide_difference(change, tolerance.absolute_us)]


def is_stale(change: Change, tolerance: Tolerance) -> bool:
    """Tell whether all that a change may be is as far on the fast side as is tolerated on the slow side."""
    if tolerance.margin is not None:
        return change.interval is not None and change.interval.high < 1 - tolerance.margin
    assert tolerance.absolute_us is not None
    return change.difference is not None and change.difference.high < -tolerance.absolute_us


def stale_note(label: str, change: Change, tolerance: Tolerance, baseline_name: str) -> str:
    """Return that a baseline is too slow to guard what is much faster now; empty where it is not."""
    if not is_stale(change, tolerance):
        return ""
    faster = f"{round_to_digits(1 / change.ratio, 4)}x as fast as in the baseline {baseline_name!r}"
    against = " against its reference" if change.metric == "speedup" else ""
    return f"baseline stale: {printable(label)} is faster than the baseline, {faster}{against}; save a new one"


def regression_sentence(
    label: str, change: Change, tolerance: Tolerance, old_us: float, new_us: float, baseline_name: str
) -> str:
    """Return what a change is, next to what is tolerated.

    old_us, new_us: the medians, told next to a speedup; a statistic of times is told itself.
    """
    against, whose = (" against its reference", "relative time") if change.metric == "speedup" else ("", change.metric)
    what, relation, remark = _comparison(change, outcome_of(change, tolerance))
    ratio, *ends = (round_to_digits(number, 4) for number in (change.ratio, *(change.interval or ())))
    return (
        f"{printable(label)} {what}{against} {relation} in the baseline {baseline_name!r}{remark}: "
        f"{ratio}x{_between(ends)} of its {whose}{_wanted(change, tolerance)} "
        f"({_values(change, old_us, new_us)}, {_counts(change)}, alpha {change.alpha:g})"
    )


def _comparison(change: Change, outcome: Outcome) -> tuple[str, str, str]:
    """Return what a change is, the word between that and the baseline, and what follows them."""
    interval = change.interval
    if outcome is Outcome.INCONCLUSIVE:
        return "cannot be judged" if interval is None else "is too close to tell", "from what it was", ""
    if interval is not None and interval.low > 1:
        return "is slower", "than", ", within what is tolerated" if outcome is Outcome.PASS else ""
    if outcome is Outcome.FAIL:
        return "is slower", "than", ""
    if interval is not None and interval.high < 1:
        return "is faster", "than", ""
    return "is as fast", "as", ""


def _between(ends: Sequence[str]) -> str:
    return f" [{', '.join(ends)}]" if ends else ""


def _wanted(change: Change, tolerance: Tolerance) -> str:
    if tolerance.margin is not None:
        return f", wanted at most {1 + tolerance.margin:.12g}x"
    assert tolerance.absolute_us is not None
    unit = choose_time_unit([tolerance.absolute_us])
    more = format_time(change.new - change.old, unit)
    ends = [format_time(end, unit) for end in change.difference or ()]
    return f", by {more}{_between(ends)}, wanted at most {format_time(tolerance.absolute_us, unit)} more"


def _values(change: Change, old_us: float, new_us: float) -> str:
    speedups = ""
    if change.metric == "speedup":
        speedups = f"speedup {round_to_digits(change.new, 4)}x against {round_to_digits(change.old, 4)}x, "
    else:
        old_us, new_us = change.old, change.new
    unit = choose_time_unit([old_us])
    return f"{speedups}{format_time(new_us, unit)} against {format_time(old_us, unit)}"


def _counts(change: Change) -> str:
    old, new = change.counts
    noun, least = "quad" if change.metric == "speedup" else "rep", least_samples(change.metric, change.alpha)
    too_few = f", too few to decide: take at least {count(least, noun)} in both" if min(old, new) < least else ""
    return f"{new} and {count(old, noun)}{too_few}"
