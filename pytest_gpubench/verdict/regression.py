"""The change of a measurement since an older run, over all sessions of both, and its verdict.

Two questions have to be answered before a FAIL. Is the mean of the sessions beyond the tolerance by more than processes
differ by (`ProcessSpread`)? And do the sessions of the runs part, or may a kernel with modes have been saved in one and
measured in the other (`Parting`)? The second makes no assumption on the distribution.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

from pytest_gpubench.results.counterpart import Missing
from pytest_gpubench.results.model import Measurement, Outcome, Timing, with_reasons
from pytest_gpubench.settings import SAVED_SESSIONS
from pytest_gpubench.stats.process_spread import (
    MODES_APART,
    UNKNOWN_SPEEDUP,
    UNKNOWN_TIME,
    ProcessSpread,
    change_across,
    outliers_allowed,
    sessions_to_part,
    shrunk,
    spread_of,
)
from pytest_gpubench.stats.regression import (
    ChangeEstimate,
    TimeMetric,
    change_of_samples,
    change_of_speedups,
    least_samples,
)
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import (
    bracketed,
    choose_time_unit,
    count,
    format_share,
    format_time,
    printable,
    ratio_text,
    share_or_more,
)
from pytest_gpubench.verdict.decision import at_most, judged_by, was_held_up

PROFILER_TICK_US = 0.032
"""The tick of the clock that kernels are timed with; `needed_batch` says why it matters."""
ROUNDED_US = 0.0015
"""The distance of whole nanoseconds from a multiple of the tick, at most."""
ENOUGH_TO_SEE_TICKS = 6
"""Samples of each run: of a clock without ticks, twelve would fit by chance less than once in 10^11."""
LEAST_TO_OUTWEIGH = 4
"""The saved sessions of which the slowest may be an outlier; of the new ones at least two have to outweigh one."""
OPTION = f"--gpu-bench-sessions={SAVED_SESSIONS}"


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
    what, relation, remark = _comparison(estimate, outcome, doubt)
    judged = judged_by(counts, estimate.alpha) if counts else _judged_by(estimate)
    sentence = (
        f"{printable(found.label)} {what}{against} {relation} in {where}{remark}: "
        f"{_ratio(estimate)} of its {whose}{_wanted(estimate, tolerance)} "
        f"({_values_told(estimate, old_us, new_us)}, {judged})"
    )
    if estimate.remedy and outcome is Outcome.INCONCLUSIVE:
        sentence += f"; {estimate.remedy}"
    stale = tuple(_stale_notes(estimate, tolerance, found.label, where))
    return replace(found, estimate=estimate, outcome=outcome, sentence=sentence, notes=stale)


# sentences


def _stale_notes(estimate: ChangeEstimate, tolerance: RegressionTolerance, label: str, where: str) -> Iterator[str]:
    """Yield a sentence where the older one is slower by more than is tolerated, and guards nothing."""
    if tolerance.margin is not None:
        is_stale = estimate.interval is not None and estimate.interval.high < 1 - tolerance.margin
    else:
        assert tolerance.absolute_us is not None
        is_stale = estimate.difference is not None and estimate.difference.high < -tolerance.absolute_us
    if not is_stale:
        return
    faster = f"{ratio_text(1 / estimate.ratio)} as fast as in {where}"
    against = " against its reference" if estimate.metric == "speedup" else ""
    yield f"baseline stale: {printable(label)} is faster than the baseline, {faster}{against}; save a new one"


def _comparison(estimate: ChangeEstimate, outcome: Outcome, doubt: str) -> tuple[str, str, str]:
    """Return the words for a change, the word between them and the older run, and a remark."""
    interval = estimate.interval
    open_ = outcome is Outcome.INCONCLUSIVE
    if open_ and interval is None:
        return "cannot be judged", "against what it was", ""
    if interval is not None and interval.low > 1:
        open_remark = f", {doubt}" if doubt else ", too close to the limit to tell"
        remark = {Outcome.PASS: ", within what is tolerated", Outcome.INCONCLUSIVE: open_remark}
        return "is slower", "than", remark.get(outcome, "")
    if open_:
        return "may be slower", "than", ", too close to tell"
    if outcome is Outcome.FAIL:
        return "is slower", "than", ""
    if interval is not None and interval.high < 1:
        return "is faster", "than", ""
    return "is as fast", "as", ""


def _ratio(estimate: ChangeEstimate) -> str:
    """Return the ratio with its interval, unless that says next to nothing, as of two noisy runs."""
    if estimate.interval and estimate.interval.high > 100 * estimate.interval.low:
        return f"{ratio_text(estimate.ratio)} [not known to a factor of 10]"
    return ratio_text(estimate.ratio, estimate.interval)


def _wanted(estimate: ChangeEstimate, tolerance: RegressionTolerance) -> str:
    if tolerance.margin is not None:
        return f", wanted at most {1 + tolerance.margin:.12g}x"
    assert tolerance.absolute_us is not None
    unit = choose_time_unit([tolerance.absolute_us])
    more = format_time(estimate.new - estimate.old, unit)
    ends = bracketed(format_time(end, unit) for end in estimate.difference or ())
    return f", by {more}{ends}, wanted at most {format_time(tolerance.absolute_us, unit)} more"


def _values_told(estimate: ChangeEstimate, old_us: float, new_us: float) -> str:
    speedups = ""
    if estimate.metric == "speedup":
        speedups = f"speedup {ratio_text(estimate.new)} against {ratio_text(estimate.old)}, "
    unit = choose_time_unit([old_us])
    return f"{speedups}{format_time(new_us, unit)} against {format_time(old_us, unit)}"


def _judged_by(estimate: ChangeEstimate) -> str:
    old, new = estimate.counts
    noun, least = "quad" if estimate.metric == "speedup" else "rep", least_samples(estimate.metric, estimate.alpha)
    needed = f"{count(least, noun)} in both" if min(old, new) < least else ""
    saved, now = estimate.sessions
    sessions = f" in each of {now} and {saved} sessions" if max(saved, now) > 1 else ""
    return judged_by(f"{new} and {count(old, noun)}{sessions}", estimate.alpha, needed)


# over all sessions


@dataclass(frozen=True)
class Sessions:
    """The other sessions of a measurement, each a process of its own."""

    old: Sequence[Measurement] = ()
    """The same measurement in the earlier sessions of the old run."""
    new: Sequence[Measurement] = ()
    """Likewise of the new run."""
    suite: Mapping[str, ProcessSpread] = field(default_factory=dict)
    """The expected spread of a test of the old run, for `speedup` and for `time`."""


def estimate_change(
    old: Measurement, new: Measurement, tolerance: RegressionTolerance, alpha: float, sessions: Sessions
) -> ChangeEstimate:
    """Return the change of a measurement over all sessions; raise ValueError where a sample is no time.

    Where these do not PASS, and all but the slowest session of either run do, that counts: a process may be held up.
    """
    olds, news = (
        [*(each for each in earlier if _is_alike(each, item)), item]
        for earlier, item in ((sessions.old, old), (sessions.new, new))
    )
    pairs = [[change_between(one, other, tolerance, alpha) for other in news] for one in olds]
    if len(olds) == len(news) == 1 and new.timing.timer == "scripted":
        return pairs[0][0]  # the samples of every process are the same
    found = _estimate_across(pairs, tolerance, alpha, sessions.suite)
    if outcome_of(found, tolerance) is Outcome.PASS:
        return found
    without = _without_slowest(pairs)
    others = _estimate_across(without, tolerance, alpha, sessions.suite)
    if outcome_of(others, tolerance) is not Outcome.PASS:
        return found
    is_one_against_one = len(news) == 2 and len(without[0]) == 1
    return replace(found, further=max(found.further, 1)) if is_one_against_one else others


def _without_slowest(pairs: Sequence[Sequence[ChangeEstimate]]) -> list[list[ChangeEstimate]]:
    """Return the pairs without the slowest session of each run that has others to outweigh it: it was held up."""
    rows = sorted(map(list, pairs), key=lambda row: row[0].ratio)
    rows = rows[1:] if len(rows) >= LEAST_TO_OUTWEIGH else rows
    slowest = max(range(len(rows[0])), key=lambda place: rows[0][place].ratio)
    return [row[:slowest] + row[slowest + 1 :] if len(row) > 1 else row for row in rows]


def _estimate_across(
    pairs: Sequence[Sequence[ChangeEstimate]],
    tolerance: RegressionTolerance,
    alpha: float,
    suite: Mapping[str, ProcessSpread],
) -> ChangeEstimate:
    """Return the change over pairs of sessions: from each old one, a row, to each new one."""
    estimates, counts = [estimate for row in pairs for estimate in row], (len(pairs), len(pairs[0]))
    by_samples = change_across(estimates, 0.0)
    own = spread_of([math.log(row[0].old) for row in pairs], [math.log(estimate.new) for estimate in pairs[0]])
    kind, unknown = ("speedup", UNKNOWN_SPEEDUP) if by_samples.metric == "speedup" else ("time", UNKNOWN_TIME)
    spread = shrunk(own, suite.get(kind, unknown))
    estimate = replace(change_across(estimates, spread.half_width(alpha, *counts)), sessions=counts)
    parting = Parting(pairs, tolerance, alpha)
    outcome, remedy = outcome_of(estimate, tolerance), ""
    if outcome is Outcome.FAIL:
        remedy = parting.remedy
    elif estimate.interval:
        decidable = spread.decidable(alpha, *counts)
        is_due_to_samples = outcome_of(by_samples, tolerance) is Outcome.INCONCLUSIVE
        if not is_due_to_samples or _allowed(tolerance, estimate) < decidable:
            remedy = (
                f"processes of the same code differ by {format_share(spread.std)}, so "
                f"{count(counts[0], 'saved session')} can decide {share_or_more(decidable)}: save more with {OPTION}, "
                "or compare with `pytest-gpubench ab`"
            )
    at_best = change_across(estimates, spread.half_width(alpha, counts[0], max(parting.needed, counts[1])))
    further = parting.further(outcome, outcome_of(at_best, tolerance))
    return replace(estimate, doubt=parting.doubt, remedy=remedy, further=further)


@dataclass(frozen=True)
class Parting:
    """The distance between the sessions of two runs, whatever their distribution.

    pairs: the changes from each old session, a row, to each new one.
    """

    pairs: Sequence[Sequence[ChangeEstimate]]
    tolerance: RegressionTolerance
    alpha: float

    @property
    def counts(self) -> tuple[int, int]:
        """The sessions of the old and of the new run."""
        return len(self.pairs), len(self.pairs[0])

    @cached_property
    def excess(self) -> float:
        """The least ratio of a new to an old session, over what is tolerated, without as many outliers as may be."""
        rows = sorted([each.ratio / (1 + _allowed(self.tolerance, each)) for each in row] for row in self.pairs)
        outliers = outliers_allowed(*self.counts, self.alpha) or 0
        return min(sorted(row)[outliers] for row in rows[outliers:])

    @property
    def is_beyond_modes(self) -> bool:
        """True if no two modes of a kernel lie so far apart."""
        return self.excess > MODES_APART

    @property
    def needed(self) -> int:
        """The sessions of the new run that decide as much as further ones would."""
        return 2 if self.is_beyond_modes else self._to_part or SAVED_SESSIONS

    @cached_property
    def _to_part(self) -> int | None:
        return sessions_to_part(self.counts[0], self.alpha)

    @property
    def doubt(self) -> str:
        """The reason why the same code may part so; empty where the runs part for certain."""
        old, new = self.counts
        if self.is_beyond_modes:
            return ""
        if outliers_allowed(old, new, self.alpha) is None:
            return f"which {count(old, 'saved session')} and {new} new cannot tell from the mode of a process"
        return "" if self.excess > 1 else "but sessions of both runs overlap"

    @property
    def remedy(self) -> str:
        """The advice against the doubt; empty where there is none."""
        if not self.doubt:
            return ""
        if self._to_part is None:
            return f"save {SAVED_SESSIONS} with {OPTION}, or compare with `pytest-gpubench ab`"
        return f"measure {self._to_part} new ones with --gpu-bench-sessions={self._to_part}"

    def further(self, now: Outcome, at_best: Outcome) -> int:
        """Return how many more sessions of the new run may decide; at_best: the outcome with all that are needed."""
        wanted = self.needed - self.counts[1]
        may_fail = self.is_beyond_modes or (self.excess > 1 and self._to_part is not None)
        is_reachable = at_best is Outcome.PASS or (at_best is Outcome.FAIL and may_fail)
        return max(wanted, 0) if now is not Outcome.PASS and is_reachable else 0


# a pair of sessions


def change_between(old: Measurement, new: Measurement, tolerance: RegressionTolerance, alpha: float) -> ChangeEstimate:
    """Return the change of the metric of the tolerance; of the median where that is a speedup and one has none.

    Raises ValueError where a sample is no time.
    """
    if tolerance.metric == "speedup" and old.speedup is not None and new.speedup is not None:
        kept = old.speedup.log_ratios, new.speedup.log_ratios
        if all(kept) and old.speedup.reference == new.speedup.reference:
            return change_of_speedups(*kept, alpha)
    metric = cast(TimeMetric, "median" if tolerance.metric == "speedup" else tolerance.metric)
    tick_us = tick_between(old.timing, new.timing)
    estimate = change_of_samples(old.timing.samples_us, new.timing.samples_us, metric, alpha, tick_us)
    held_up_now = was_held_up(new.timing) and not was_held_up(old.timing)
    if not held_up_now:
        return estimate
    ratio = _widened_down(new.timing.min_us / estimate.old, estimate.interval)
    difference = _widened_down(new.timing.min_us - estimate.old, estimate.difference)
    return replace(estimate, interval=ratio, difference=difference)


def _widened_down(low: float, interval: Interval | None) -> Interval | None:
    return interval and Interval(min(low, interval.low), interval.high)


def _allowed(tolerance: RegressionTolerance, estimate: ChangeEstimate) -> float:
    """Return the share of the old value that is tolerated."""
    return tolerance.margin if tolerance.margin is not None else (tolerance.absolute_us or 0.0) / estimate.old


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


def outcome_of(estimate: ChangeEstimate, tolerance: RegressionTolerance) -> Outcome:
    """Return FAIL where all that a change may be is more than is tolerated, PASS where none of it is."""
    if tolerance.margin is not None:
        return at_most(estimate.interval, 1 + tolerance.margin)
    assert tolerance.absolute_us is not None
    return at_most(estimate.difference, tolerance.absolute_us)
