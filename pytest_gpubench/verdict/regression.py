"""The change of a measurement since an older one, and its verdict.

Everything that compares old with new asks here: a running test, `pytest-gpubench compare`, `ab`, and the page.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from pytest_gpubench.results.model import Measurement, Outcome, Timing
from pytest_gpubench.stats.process_spread import (
    UNKNOWN_SPEEDUP,
    UNKNOWN_TIME,
    ProcessSpread,
    change_across,
    shrunk,
    spread_of,
)
from pytest_gpubench.stats.regression import (
    Change,
    Metric,
    change_of_samples,
    change_of_speedups,
    decide,
    decide_difference,
    from_fastest,
    least_samples,
)
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import (
    bracketed,
    choose_time_unit,
    count,
    format_share,
    format_time,
    printable,
    ratio_text,
)
from pytest_gpubench.verdict.decision import OUTCOMES, judged_by, was_held_up

__tracebackhide__ = True

PROFILER_TICK_US = 0.032
"""The tick of the clock that kernels are timed with; `needed_batch` says why it matters."""
ROUNDED_US = 0.0015
"""The distance of whole nanoseconds from a multiple of the tick, at most."""
OTHER_REGIME = 10.0
"""Where both arms differ from the older run by so many times, not the candidate has changed but its surroundings."""
ENOUGH_TO_SEE_TICKS = 6
"""Samples of each run: of a clock without ticks, twelve would fit by chance less than once in 10^11."""


@dataclass(frozen=True)
class JudgedChange:
    """The change of a measurement, with its verdict."""

    change: Change | None
    """None where a sample is no time."""
    outcome: Outcome
    """FAIL where the whole interval is beyond the tolerance, PASS where none of it is; INVALID without a change."""
    sentence: str
    stale: str = ""
    """A sentence where the older one is slower by more than is tolerated, and guards nothing; else empty."""


@dataclass(frozen=True)
class Sessions:
    """The sessions of a measurement in other processes."""

    old: Sequence[Measurement] = ()
    """The same measurement in the earlier sessions of the old run."""
    new: Sequence[Measurement] = ()
    """Likewise of the new run."""
    suite: Mapping[str, ProcessSpread] = field(default_factory=dict)
    """The expected spread of a test of the old run, for `speedup` and for `time`."""


def compare_measurements(
    old: Measurement,
    new: Measurement,
    tolerance: RegressionTolerance,
    alpha: float,
    where: str,
    sessions: Sessions = Sessions(),
) -> JudgedChange:
    """Compare a measurement with the same one of an older run; where: the older run, as in `the baseline 'main'`."""
    label = new.timing.label
    try:
        change, remedy = _change_over_sessions(old, new, tolerance, alpha, sessions)
    except ValueError as error:
        return JudgedChange(None, Outcome.INVALID, f"{printable(label)} cannot be compared: {error}")
    old_us, new_us = change.old, change.new
    if change.metric == "speedup":
        old_us, new_us = old.timing.median_us, new.timing.median_us
    judged = judge_change(change, tolerance, label, where, old_us, new_us, remedy=remedy)
    if judged.outcome is Outcome.FAIL and (regime := _other_regime(old, new, change, where)):
        return replace(judged, outcome=Outcome.INCONCLUSIVE, sentence=f"{printable(label)} {regime}; {judged.sentence}")
    return judged


def judge_change(
    change: Change,
    tolerance: RegressionTolerance,
    label: str,
    where: str,
    old_us: float,
    new_us: float,
    counts: str = "",
    remedy: str = "",
) -> JudgedChange:
    """Judge a change by what is tolerated.

    old_us, new_us: the times to show. counts: what the change was found by; empty for its samples. remedy: what to do
    where it is INCONCLUSIVE.
    """
    outcome = outcome_of(change, tolerance)
    against, whose = (" against its reference", "relative time") if change.metric == "speedup" else ("", change.metric)
    what, relation, remark = _comparison(change, outcome)
    sentence = (
        f"{printable(label)} {what}{against} {relation} in {where}{remark}: "
        f"{_ratio(change)} of its {whose}{_wanted(change, tolerance)} "
        f"({_values(change, old_us, new_us)}, {judged_by(counts, change.alpha) if counts else _judged_by(change)})"
    )
    if remedy and outcome is Outcome.INCONCLUSIVE:
        sentence += f"; {remedy}"
    return JudgedChange(change, outcome, sentence, _stale_note(change, tolerance, label, where))


# the change


def change_between(old: Measurement, new: Measurement, tolerance: RegressionTolerance, alpha: float) -> Change:
    """Return the change of the metric of the tolerance; of the median where that is a speedup and one has none.

    Raises ValueError where a sample is no time.
    """
    if tolerance.metric == "speedup" and old.speedup is not None and new.speedup is not None:
        kept = old.speedup.log_ratios, new.speedup.log_ratios
        if all(kept) and old.speedup.reference == new.speedup.reference:
            return change_of_speedups(*kept, alpha)
    metric = cast(Metric, "median" if tolerance.metric == "speedup" else tolerance.metric)
    tick_us = tick_between(old.timing, new.timing)
    change = change_of_samples(old.timing.samples_us, new.timing.samples_us, metric, alpha, tick_us)
    held_up_now = was_held_up(new.timing) and not was_held_up(old.timing)
    return from_fastest(change, new.timing.min_us) if held_up_now else change


def _change_over_sessions(
    old: Measurement, new: Measurement, tolerance: RegressionTolerance, alpha: float, sessions: Sessions
) -> tuple[Change, str]:
    """Return the change of a measurement over all sessions, and the remedy if the spread of processes hides it."""
    olds, news = (
        [*(each for each in earlier if _is_alike(each, item)), item]
        for earlier, item in ((sessions.old, old), (sessions.new, new))
    )
    pairs = [[change_between(one, other, tolerance, alpha) for other in news] for one in olds]
    changes, counts = [change for row in pairs for change in row], (len(olds), len(news))
    by_samples = change_across(changes, 0.0)
    own = spread_of([math.log(row[0].old) for row in pairs], [math.log(change.new) for change in pairs[0]])
    if own is None and new.timing.timer == "scripted":
        return by_samples, ""  # the samples of every process are the same
    kind, unknown = ("speedup", UNKNOWN_SPEEDUP) if by_samples.metric == "speedup" else ("time", UNKNOWN_TIME)
    spread = shrunk(own, sessions.suite.get(kind, unknown))
    change = replace(change_across(changes, spread.half_width(alpha, *counts)), sessions=counts)
    decidable = spread.decidable(alpha, *counts)
    allowed = tolerance.margin if tolerance.margin is not None else (tolerance.absolute_us or 0.0) / change.old
    is_due_to_processes = allowed < decidable or outcome_of(by_samples, tolerance) is not Outcome.INCONCLUSIVE
    return change, _more_sessions(spread, counts[0], decidable) if is_due_to_processes and change.interval else ""


def _is_alike(earlier: Measurement, latest: Measurement) -> bool:
    """Tell whether two sessions of a test measured the same in the same way."""
    one, other = earlier.timing, latest.timing
    have_quads = [bool(each.speedup and each.speedup.log_ratios) for each in (earlier, latest)]
    same = (one.timer, one.cache) == (other.timer, other.cache) and have_quads[0] == have_quads[1]
    return same and one.measured and not earlier.why_invalid


def tick_between(old: Timing, new: Timing) -> float:
    """Return the tick of the profiler's clock in microseconds where the samples show it, else 0."""
    if old.timer != "profiler" or new.timer != "profiler":
        return 0.0
    shown = old.samples_us[:ENOUGH_TO_SEE_TICKS] + new.samples_us[:ENOUGH_TO_SEE_TICKS]
    ticks = all(
        math.isfinite(sample) and abs(math.remainder(sample, PROFILER_TICK_US)) <= ROUNDED_US for sample in shown
    )
    return PROFILER_TICK_US if ticks else 0.0


def outcome_of(change: Change, tolerance: RegressionTolerance) -> Outcome:
    """Return FAIL where all that a change may be is more than is tolerated, PASS where none of it is."""
    if tolerance.margin is not None:
        return OUTCOMES[decide(change, tolerance.margin)]
    assert tolerance.absolute_us is not None
    return OUTCOMES[decide_difference(change, tolerance.absolute_us)]


def _other_regime(old: Measurement, new: Measurement, change: Change, where: str) -> str:
    """Return the words for two arms that run in another regime than in the older run; empty where they do not."""
    if change.metric != "speedup" or old.speedup is None or new.speedup is None:
        return ""
    factors = (new.timing.median_us / old.timing.median_us, new.speedup.reference_us / old.speedup.reference_us)
    if min(factors) < OTHER_REGIME and max(factors) > 1 / OTHER_REGIME:
        return ""
    own, other = map(ratio_text, factors)
    return (
        f"cannot be judged, as it takes {own} and its reference {other} of the time in {where}, which no change of "
        "the candidate explains: look for other threads, clocks or libraries, or save a new one"
    )


def _is_stale(change: Change, tolerance: RegressionTolerance) -> bool:
    if tolerance.margin is not None:
        return change.interval is not None and change.interval.high < 1 - tolerance.margin
    assert tolerance.absolute_us is not None
    return change.difference is not None and change.difference.high < -tolerance.absolute_us


# sentences


def _stale_note(change: Change, tolerance: RegressionTolerance, label: str, where: str) -> str:
    if not _is_stale(change, tolerance):
        return ""
    faster = f"{ratio_text(1 / change.ratio)} as fast as in {where}"
    against = " against its reference" if change.metric == "speedup" else ""
    return f"baseline stale: {printable(label)} is faster than the baseline, {faster}{against}; save a new one"


def _comparison(change: Change, outcome: Outcome) -> tuple[str, str, str]:
    """Return the words for a change, the word between them and the older run, and a remark."""
    interval = change.interval
    open_ = outcome is Outcome.INCONCLUSIVE
    if open_ and interval is None:
        return "cannot be judged", "against what it was", ""
    if interval is not None and interval.low > 1:
        remark = {Outcome.PASS: ", within what is tolerated", Outcome.INCONCLUSIVE: ", too close to the limit to tell"}
        return "is slower", "than", remark.get(outcome, "")
    if open_:
        return "may be slower", "than", ", too close to tell"
    if outcome is Outcome.FAIL:
        return "is slower", "than", ""
    if interval is not None and interval.high < 1:
        return "is faster", "than", ""
    return "is as fast", "as", ""


def _ratio(change: Change) -> str:
    """Return the ratio with its interval, unless that says next to nothing, as of two noisy runs."""
    if change.interval and change.interval.high > 100 * change.interval.low:
        return f"{ratio_text(change.ratio)} [not known to a factor of 10]"
    return ratio_text(change.ratio, change.interval)


def _wanted(change: Change, tolerance: RegressionTolerance) -> str:
    if tolerance.margin is not None:
        return f", wanted at most {1 + tolerance.margin:.12g}x"
    assert tolerance.absolute_us is not None
    unit = choose_time_unit([tolerance.absolute_us])
    more = format_time(change.new - change.old, unit)
    ends = bracketed(format_time(end, unit) for end in change.difference or ())
    return f", by {more}{ends}, wanted at most {format_time(tolerance.absolute_us, unit)} more"


def _values(change: Change, old_us: float, new_us: float) -> str:
    speedups = ""
    if change.metric == "speedup":
        speedups = f"speedup {ratio_text(change.new)} against {ratio_text(change.old)}, "
    unit = choose_time_unit([old_us])
    return f"{speedups}{format_time(new_us, unit)} against {format_time(old_us, unit)}"


def _judged_by(change: Change) -> str:
    old, new = change.counts
    noun, least = "quad" if change.metric == "speedup" else "rep", least_samples(change.metric, change.alpha)
    needed = f"{count(least, noun)} in both" if min(old, new) < least else ""
    saved, now = change.sessions
    sessions = f" in each of {now} and {saved} sessions" if max(saved, now) > 1 else ""
    return judged_by(f"{new} and {count(old, noun)}{sessions}", change.alpha, needed)


def _more_sessions(spread: ProcessSpread, saved: int, decidable: float) -> str:
    return (
        f"processes of the same code differ by {format_share(spread.std)}, so {count(saved, 'saved session')} can "
        f"decide {format_share(decidable)} or more: save more with --gpu-bench-sessions=5, or compare with "
        "`pytest-gpubench ab`"
    )
