"""The change of a measurement since an older run, over all sessions of both.

Two questions have to be answered before a FAIL. Is the mean of the sessions beyond the tolerance by more than processes
differ by (`ProcessSpread`)? And do the sessions of the runs part, or may a kernel with modes have been saved in one and
measured in the other (`Parting`)? The second makes no assumption on the distribution.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

from pytest_gpubench.results.counterpart import MeasurementKey, Missing, PastTest
from pytest_gpubench.results.model import Measurement, Outcome
from pytest_gpubench.settings import SAVED_SESSIONS
from pytest_gpubench.stats.process_spread import (
    MODES_APART,
    UNKNOWN_SPEEDUP,
    UNKNOWN_TIME,
    ProcessSpread,
    change_across,
    outliers_allowed,
    shrunk,
    spread_of,
)
from pytest_gpubench.stats.regression import ChangeEstimate, Statistic, change_of_samples
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import count, format_share, printable, ratio_text, share_or_more
from pytest_gpubench.verdict.counters import CONFIRMED, compare_counters
from pytest_gpubench.verdict.decision import tick_of, was_held_up
from pytest_gpubench.verdict.regression import Change, judge_change, outcome_of
from pytest_gpubench.verdict.throttling import what_slowed

LEAST_TO_OUTWEIGH = 4
"""The saved sessions of which the slowest may be an outlier; of the new ones at least two have to outweigh one."""
MOST_SESSIONS = 10
"""The most sessions of the new run that a FAIL may need."""
OPTION = f"--gpu-bench-sessions={SAVED_SESSIONS}"
OTHER_REGIME = 10.0
"""A change of both arms by so many times is one of their surroundings, not of the candidate."""


@dataclass(frozen=True)
class Sessions:
    """The other sessions of a measurement, each a process of its own."""

    old: Sequence[Measurement] = ()
    """The same measurement in the earlier sessions of the old run."""
    new: Sequence[Measurement] = ()
    """Likewise of the new run."""
    suite: Mapping[str, ProcessSpread] = field(default_factory=dict)
    """The expected spread of a test of the old run, for `speedup` and for `time`."""


def compare_with_saved(
    nodeid: str,
    key: MeasurementKey,
    new: Measurement,
    past: PastTest,
    tolerance: RegressionTolerance,
    alpha: float,
    earlier: Sequence[Measurement],
    can_confirm: bool = True,
) -> Change:
    """Compare a measurement with the one of the same key in a saved run.

    earlier: the same in the earlier sessions of the new run. can_confirm: whether it can be taken again. A reference is
    compared, but not judged: others are judged by it.
    """
    found = Change(nodeid, key.label, Outcome.NOT_JUDGED, "", new=new)
    old = past.counterpart(new, key)
    if not new.timing.measured:
        sentence = f"{printable(key.label)} was not measured: {new.timing.unmeasured}"
        outcome = Outcome.INVALID if new.why_invalid else Outcome.NOT_JUDGED
        return replace(found, outcome=outcome, sentence=sentence, old=None if isinstance(old, Missing) else old)
    if isinstance(old, Missing):
        return replace(found, sentence=old.sentence, missing=old)
    sessions = Sessions(past.earlier_of(key), earlier, past.spreads)
    where = f"the baseline {past.baseline!r}"
    if tolerance.is_on_counter:
        olds, news = [*sessions.old, old], [*earlier, new]
        least = CONFIRMED if can_confirm else 1
        found = compare_counters(replace(found, old=old), tolerance, alpha, where, olds, news, least)
    else:
        found = compare_measurements(old, new, tolerance, alpha, where, sessions, nodeid)
    if found.estimate is None:
        return found
    if new.role == "reference":
        sentence = f"the reference is not judged: {found.sentence}"
        found = replace(found, outcome=Outcome.NOT_JUDGED, sentence=sentence, notes=())
    slowed = (f"{each}; save a new one" for each in what_slowed(old.timing, f"in {where}"))
    return replace(found, notes=(*past.caveats, *slowed, *found.notes))


def compare_measurements(
    old: Measurement,
    new: Measurement,
    tolerance: RegressionTolerance,
    alpha: float,
    where: str,
    sessions: Sessions,
    nodeid: str = "",
) -> Change:
    """Compare a measurement with the same one of an older run; where: the older run, as in `the baseline 'main'`.

    INVALID, without an estimate, where a sample is no time.
    """
    found = Change(nodeid, new.timing.label, Outcome.INVALID, "", old=old, new=new)
    label = printable(found.label)
    try:
        estimate = estimate_change(old, new, tolerance, alpha, sessions)
    except ValueError as error:
        return replace(found, sentence=f"{label} cannot be compared: {error}")
    old_us, new_us = estimate.old, estimate.new
    if estimate.metric == "speedup":
        old_us, new_us = old.timing.median_us, new.timing.median_us
    found = judge_change(found, estimate, tolerance, where, old_us, new_us)
    if outcome_of(estimate, tolerance) is Outcome.FAIL and (regime := _other_regime(old, new, estimate, where)):
        estimate, sentence = replace(estimate, further=0), f"{label} {regime}; {found.sentence}"
        return replace(found, estimate=estimate, outcome=Outcome.INCONCLUSIVE, sentence=sentence)
    return found


def _other_regime(old: Measurement, new: Measurement, estimate: ChangeEstimate, where: str) -> str:
    """Return the words for two arms that run in another regime than in the older run; empty where they do not."""
    if estimate.metric != "speedup" or old.speedup is None or new.speedup is None:
        return ""
    factors = (new.timing.median_us / old.timing.median_us, new.speedup.reference_us / old.speedup.reference_us)
    if min(factors) < OTHER_REGIME and max(factors) > 1 / OTHER_REGIME:
        return ""
    own, other = map(ratio_text, factors)
    return (
        f"cannot be judged, as it takes {own} and its reference {other} of the time in {where}, which no change of "
        "the candidate explains: look for other threads, clocks or libraries, or save a new one"
    )


def estimate_change(
    old: Measurement, new: Measurement, tolerance: RegressionTolerance, alpha: float, sessions: Sessions
) -> ChangeEstimate:
    """Return the change of a measurement over all sessions; raise ValueError where a sample is no time.

    Where these do not PASS, and all but the slowest session of either run do, that counts, if a run has others to
    outweigh it: a process may be held up.
    """
    olds, news = (
        [*(one for one in earlier if one.timing.measured and not one.why_invalid and _way(one) == _way(item)), item]
        for earlier, item in ((sessions.old, old), (sessions.new, new))
    )
    pairs = [[change_between(one, other, tolerance, alpha) for other in news] for one in olds]
    if len(olds) == len(news) == 1 and new.timing.timer == "scripted":
        return pairs[0][0]  # the samples of every process are the same
    found = _estimate_across(pairs, tolerance, alpha, sessions.suite)
    if outcome_of(found, tolerance) is Outcome.PASS:
        return found
    rows = sorted(pairs, key=lambda row: row[0].ratio)
    rows = rows[1:] if len(rows) >= LEAST_TO_OUTWEIGH else rows
    slowest = max(range(len(news)), key=lambda place: rows[0][place].ratio)
    without = [row[:slowest] + row[slowest + 1 :] if len(row) > 1 else row for row in rows]
    others = _estimate_across(without, tolerance, alpha, sessions.suite)
    if outcome_of(others, tolerance) is not Outcome.PASS:
        return found
    is_one_against_one = len(news) == 2 and len(without[0]) == 1
    return replace(found, further=max(found.further, 1)) if is_one_against_one else others


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
        is_due_to_samples = outcome_of(by_samples, tolerance) is Outcome.INCONCLUSIVE
        allowed = _allowed(tolerance, estimate)
        if not is_due_to_samples or allowed < spread.decidable(alpha, *counts):
            remedy = _more_sessions(spread, counts, alpha, 1 + allowed - estimate.ratio)
    needed = 2 if parting.is_beyond_modes else parting.to_part or SAVED_SESSIONS  # which decide as much as more would
    width = spread.half_width(alpha, counts[0], max(needed, counts[1]))
    at_best = outcome_of(change_across(estimates, width), tolerance)
    is_reachable = at_best is Outcome.PASS or (at_best is Outcome.FAIL and parting.may_fail)
    further = max(needed - counts[1], 0) if outcome is not Outcome.PASS and is_reachable else 0
    return replace(estimate, doubt=parting.doubt, remedy=remedy, further=further)


def _more_sessions(spread: ProcessSpread, counts: tuple[int, int], alpha: float, room: float) -> str:
    """Return what these sessions can decide, and the first way that can decide a change with such room to the limit.

    counts: of saved and of new sessions. room: below 0 for a change beyond the limit, whose sessions have to part, too.
    """
    (old, new), many = counts, SAVED_SESSIONS
    ways = {"measure": (old, max(new, many)), "save": (max(old, many), new), "save and measure": (many, many)}
    advice = [
        f"{how} {many} with {OPTION}"
        for how, way in ways.items()
        if way != counts and spread.decidable(alpha, *way) <= abs(room) and (room > 0 or way[0] >= many)
    ]
    return (
        f"processes of the same code differ by {format_share(spread.std)}, so {count(old, 'saved session')} and {new} "
        f"new can decide {share_or_more(spread.decidable(alpha, *counts))}: "
        f"{' or '.join([*advice[:1], 'compare with `pytest-gpubench ab`'])}"
    )


@dataclass(frozen=True)
class Parting:
    """The distance between the sessions of two runs, whatever their distribution.

    pairs: the changes from each old session, a row, to each new one.
    """

    pairs: Sequence[Sequence[ChangeEstimate]]
    tolerance: RegressionTolerance
    alpha: float

    @cached_property
    def excess(self) -> float:
        """The least ratio of a new to an old session, over what is tolerated, without as many outliers as may be."""
        rows = sorted([each.ratio / (1 + _allowed(self.tolerance, each)) for each in row] for row in self.pairs)
        outliers = outliers_allowed(len(self.pairs), len(self.pairs[0]), self.alpha) or 0
        return min(sorted(row)[outliers] for row in rows[outliers:])

    @property
    def is_beyond_modes(self) -> bool:
        """True if no two modes of a kernel lie so far apart."""
        return self.excess > MODES_APART

    @cached_property
    def to_part(self) -> int | None:
        """The new sessions that part from the old ones by no chance; None where too many would have to."""
        ways = range(2, MOST_SESSIONS + 1)
        return next((new for new in ways if outliers_allowed(len(self.pairs), new, self.alpha) is not None), None)

    @property
    def doubt(self) -> str:
        """The reason why the same code may part so; empty where the runs part for certain."""
        old, new = len(self.pairs), len(self.pairs[0])
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
        if self.to_part is None:
            return f"save {SAVED_SESSIONS} with {OPTION}, or compare with `pytest-gpubench ab`"
        return f"measure {self.to_part} new ones with --gpu-bench-sessions={self.to_part}"

    @property
    def may_fail(self) -> bool:
        """True if further sessions of the new run may part from the old ones for certain."""
        return self.is_beyond_modes or (self.excess > 1 and self.to_part is not None)


def change_between(old: Measurement, new: Measurement, tolerance: RegressionTolerance, alpha: float) -> ChangeEstimate:
    """Return the change of the metric of the tolerance; of the median where that is a speedup and one has none.

    Raises ValueError where a sample is no time.
    """
    if tolerance.metric == "speedup" and old.speedup is not None and new.speedup is not None:
        kept = old.speedup.log_ratios, new.speedup.log_ratios
        if all(kept) and old.speedup.reference == new.speedup.reference:
            return change_of_samples(*kept, "speedup", alpha)
    metric = cast(Statistic, "median" if tolerance.metric == "speedup" else tolerance.metric)
    samples_us, tick_us = (old.timing.samples_us, new.timing.samples_us), tick_of(old.timing, new.timing)
    estimate = change_of_samples(*samples_us, metric, alpha, tick_us)
    if was_held_up(old.timing) or not was_held_up(new.timing):
        return estimate
    fastest_us, ratio, difference = new.timing.min_us, estimate.interval, estimate.difference
    ratio = ratio and Interval(min(fastest_us / estimate.old, ratio.low), ratio.high)
    difference = difference and Interval(min(fastest_us - estimate.old, difference.low), difference.high)
    return replace(estimate, interval=ratio, difference=difference)


def _allowed(tolerance: RegressionTolerance, estimate: ChangeEstimate) -> float:
    """Return the share of the old value that is tolerated."""
    return tolerance.margin if tolerance.margin is not None else (tolerance.absolute_us or 0.0) / estimate.old


def _way(item: Measurement) -> tuple[str, str, bool]:
    """Return how a session measured a test, which is the same in sessions that are compared."""
    return item.timing.timer, item.timing.cache, bool(item.speedup and item.speedup.log_ratios)
