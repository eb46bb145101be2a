"""The change of a measurement since an older run: its verdict, and the sentence on it."""

import math
from dataclasses import dataclass, replace

from pytest_gpubench.results.counterpart import Missing
from pytest_gpubench.results.model import Measurement, Outcome, with_reasons
from pytest_gpubench.stats.regression import LEAST_FOR_MEAN, QUARTERS, ChangeEstimate
from pytest_gpubench.stats.summary import Interval, least_count
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import (
    MICROSECONDS_PER_UNIT,
    choose_time_unit,
    count,
    format_time,
    printable,
    ratio_text,
    with_ends,
)
from pytest_gpubench.verdict.decision import at_most, judged_by


@dataclass(frozen=True)
class Change:
    """The result of comparing one measurement of a test with an older run."""

    nodeid: str
    label: str
    """The measurement's label; empty for a change of the whole test."""
    outcome: Outcome
    sentence: str
    estimate: ChangeEstimate | None = None
    """None where nothing was compared."""
    old: Measurement | None = None
    """None where there is none to compare with."""
    new: Measurement | None = None
    """None where the new run lacks it."""
    notes: tuple[str, ...] = ()
    """Further remarks: a stale baseline, another driver, a reference that has changed too."""
    reasons: tuple[str, ...] = ()
    """The differences, the most telling first: of a FAIL, and of an INVALID change."""
    missing: Missing | None = None
    """The reason why nothing was compared; None if it was, or where the new run has no number or no longer the test."""

    @property
    def lines(self) -> list[str]:
        """The sentence, and a line for each reason."""
        return with_reasons(self.sentence, self.reasons)

    @property
    def further(self) -> int:
        """The sessions of the new run, each of a fresh process, that may yet decide or have to confirm it."""
        return 0 if self.estimate is None or self.outcome is Outcome.NOT_JUDGED else self.estimate.further


def judge_change(
    found: Change,
    estimate: ChangeEstimate,
    tolerance: RegressionTolerance,
    where: str,
    old_us: float,
    new_us: float,
    counts: str = "",
) -> Change:
    """Return a change with its estimate, judged by what is tolerated.

    FAIL where the whole interval is beyond the tolerance, PASS where none of it is.
    old_us, new_us: the times to show. counts: what the change was found by; empty for its samples.
    """
    outcome = outcome_of(estimate, tolerance)
    doubt = estimate.doubt if outcome is Outcome.FAIL else ""
    outcome = Outcome.INCONCLUSIVE if doubt else outcome
    is_speedup = estimate.metric == "speedup"
    against, whose = (" against its reference", "relative time") if is_speedup else ("", estimate.metric)
    speedups = f"speedup {ratio_text(estimate.new)} against {ratio_text(estimate.old)}, " if is_speedup else ""
    what, relation, remark = _comparison(estimate, outcome, doubt)
    unit, most = choose_time_unit([old_us]), math.nan if tolerance.margin is None else 1 + tolerance.margin
    judged = judged_by(counts, estimate.alpha) if counts else _judged_by(estimate)
    sentence = (
        f"{printable(found.label)} {what}{against} {relation} in {where}{remark}: "
        f"{ratio_text(estimate.ratio, estimate.interval, limit=most)} of its {whose}{_wanted(estimate, tolerance)} "
        f"({speedups}{format_time(new_us, unit)} against {format_time(old_us, unit)}, {judged})"
    )
    if estimate.remedy and outcome is Outcome.INCONCLUSIVE:
        sentence += f"; {estimate.remedy}"
    found = replace(found, estimate=estimate, outcome=outcome, sentence=sentence, notes=())
    interval, unchanged, allowed = _judged_interval(estimate, tolerance)
    if interval is None or interval.high >= unchanged - allowed:
        return found
    stale = f"baseline stale: {printable(found.label)} is faster than the baseline, {ratio_text(1 / estimate.ratio)}"
    return replace(found, notes=(f"{stale} as fast as in {where}{against}; save a new one",))


def _comparison(estimate: ChangeEstimate, outcome: Outcome, doubt: str) -> tuple[str, str, str]:
    """Return the words for a change, the word between them and the older run, and a remark."""
    low, high = estimate.interval or (1.0, 1.0)
    if outcome is Outcome.INCONCLUSIVE:
        if estimate.interval is None:
            return "cannot be compared", "with what it was", ""
        open_remark = doubt or "too close to the limit to tell"
        return (
            ("is slower", "than", f", {open_remark}") if low > 1 else ("may be slower", "than", ", too close to tell")
        )
    if low > 1 or outcome is Outcome.FAIL:
        return "is slower", "than", ", within what is tolerated" if outcome is Outcome.PASS else ""
    return ("is faster", "than", "") if high < 1 else ("is as fast", "as", "")


def _wanted(estimate: ChangeEstimate, tolerance: RegressionTolerance) -> str:
    if tolerance.margin is not None:
        return f", wanted at most {1 + tolerance.margin:.12g}x"
    assert tolerance.absolute_us is not None
    unit = choose_time_unit([tolerance.absolute_us])
    difference_us, write = estimate.new - estimate.old, lambda time_us, digits: format_time(time_us, unit, digits)
    more = with_ends(difference_us, estimate.difference, tolerance.absolute_us, write)
    wanted = f"{tolerance.absolute_us / MICROSECONDS_PER_UNIT[unit]:.10g} {unit}"
    return f", by {more}, wanted at most {wanted} more"


def _judged_by(estimate: ChangeEstimate) -> str:
    (old, new), is_speedup = estimate.counts, estimate.metric == "speedup"
    noun, least = "quad" if is_speedup else "rep", least_samples(estimate.metric, estimate.alpha)
    needed = f"{(1 + is_speedup) * least} reps in both" if min(old, new) < least else ""
    saved, now = estimate.sessions
    sessions = f" in each of {now} and {saved} sessions" if max(saved, now) > 1 else ""
    return judged_by(f"{new} and {count(old, noun)}{sessions}", estimate.alpha, needed)


def least_samples(metric: str, alpha: float) -> int:
    """Return the smallest number of samples of each run that gives an interval ("speedup" is a median of quads)."""
    return LEAST_FOR_MEAN if metric == "mean" else least_count(alpha, QUARTERS.get(metric, 2))


def outcome_of(estimate: ChangeEstimate, tolerance: RegressionTolerance) -> Outcome:
    """Return FAIL where all that a change may be is more than is tolerated, PASS where none of it is."""
    interval, unchanged, allowed = _judged_interval(estimate, tolerance)
    return at_most(interval, unchanged + allowed)


def _judged_interval(estimate: ChangeEstimate, tolerance: RegressionTolerance) -> tuple[Interval | None, float, float]:
    """Return an interval, its value without a change, and what is tolerated of one: a ratio, or microseconds."""
    if tolerance.margin is not None:
        return estimate.interval, 1.0, tolerance.margin
    assert tolerance.absolute_us is not None
    return estimate.difference, 0.0, tolerance.absolute_us
