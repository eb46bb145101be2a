"""The measurements of a running test, compared with those of a saved run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from pytest_gpubench.counters import is_changed_by_others
from pytest_gpubench.results.counterpart import MeasurementKey, Missing, PastTest, by_key
from pytest_gpubench.results.model import SAME_CODE, Measurement, Outcome, PastChange, TestRecord, Timing, Verdict
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import printable
from pytest_gpubench.verdict.reasons import explained
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.replays import REPLAYED, Replay, replayed_change
from pytest_gpubench.verdict.sessions import compare_with_saved
from pytest_gpubench.verdict.throttling import what_made_slower

SHOWN = RegressionTolerance("speedup", margin=0.05)
"""The comparison that is shown where no limit is set."""


@dataclass(frozen=True)
class BaselineLimit:
    """The saved test that a running one is compared with, and its tolerance."""

    found: PastTest | Missing
    tolerance: RegressionTolerance | None
    """None where the change is shown, and not judged."""
    kind: str = ""
    """The limit or option that set the tolerance: `max_regression` or `compare_fail`."""
    asked: str = ""
    """The tolerance as it was asked for: `0.05`."""
    earlier: Sequence[TestRecord] = ()
    """The test in the earlier sessions of the running run, each a process of its own."""
    replays: Mapping[MeasurementKey, Replay | str] = field(default_factory=dict)
    """The results of replays of the saved calls, or the reason why one is not replayed."""

    @cached_property
    def sessions(self) -> list[dict[MeasurementKey, Measurement]]:
        """Its measurements in each of these sessions."""
        return [by_key(each.measurements) for each in self.earlier]

    @property
    def is_on_counter(self) -> bool:
        """True if the tolerance is a counter's."""
        return self.tolerance is not None and self.tolerance.is_on_counter

    def with_session(self, record: TestRecord | str, keys: Sequence[MeasurementKey]) -> "BaselineLimit | str":
        """Return it with a further session of the running run, or why that has no numbers for these measurements.

        record: of the test in a fresh process, or why there is none.
        """
        if isinstance(record, str):
            return record
        there, tolerance = by_key(record.measurements), self.tolerance
        is_same_beside = tolerance and not is_changed_by_others(tolerance.metric)
        for key in keys:
            item = there.get(key)
            if item is None:
                return f"{printable(key.label)} was not measured in it"
            if self.is_on_counter:
                if item.timing.counts is None or item.timing.counts.untaken:
                    return f"{printable(key.label)}: {item.timing.counts and item.timing.counts.untaken}"
            elif not item.timing.measured or item.why_invalid:
                return f"{printable(key.label)}: {item.why_invalid or item.timing.unmeasured}"
            if item.timing.neighbours and not is_same_beside:
                return f"{printable(key.label)}: {item.timing.neighbours}"
        return replace(self, earlier=(*self.earlier, record))


def compare_with_baseline(
    limit: BaselineLimit,
    keys: Sequence[MeasurementKey],
    new: Sequence[Measurement],
    alpha: float,
    enforced: bool,
    throttled: str = "warn",
) -> list[Change]:
    """Compare a test's latest measurements with a saved run; each comes back with its change and its verdict.

    keys: of the new ones. throttled: "fail" calls INVALID what was slower while the GPU was throttled. NOT_JUDGED where
    the change is only shown.
    """
    reference, changes = None, list[Change]()
    for key, item in zip(keys, new, strict=True):  # candidates follow their reference
        reference = item.timing if item.role == "reference" else reference
        found = _change_of(limit, key, item, alpha)
        changes.append(
            _with_verdict(limit, found, item, reference, enforced, throttled) if item.timing.measured else found
        )
    return changes


def _change_of(limit: BaselineLimit, key: MeasurementKey, item: Measurement, alpha: float) -> Change:
    past = limit.found
    if isinstance(past, Missing):
        return Change("", key.label, Outcome.NOT_JUDGED, past.sentence, new=item, missing=past)
    tolerance, replay = limit.tolerance or SHOWN, limit.replays.get(key, "")
    old = past.counterpart(item, key)
    if not isinstance(replay, str) and not isinstance(old, Missing):
        found = Change(past.nodeid, key.label, Outcome.NOT_JUDGED, "", old=old, new=item)
        change = replayed_change(found, replay, tolerance, alpha, f"the baseline {past.baseline!r}")
        return replace(change, notes=(*past.caveats, *change.notes))
    before = [session[key] for session in limit.sessions if key in session]
    change = compare_with_saved(past.nodeid, key, item, past, tolerance, alpha, before)
    if not replay or change.estimate is None:
        return change
    return replace(change, notes=(*change.notes, f"{printable(key.label)} is judged by saved numbers: {replay}"))


def _with_verdict(
    limit: BaselineLimit, found: Change, item: Measurement, reference: Timing | None, enforced: bool, throttled: str
) -> Change:
    """Return a change whose measurement has it, and a verdict where it is judged."""
    past, changed = limit.found, () if isinstance(limit.found, Missing) else limit.found.changed
    if not isinstance(past, Missing):
        item = with_change(item, found, past.baseline)
    if limit.tolerance is None or item.role == "reference":
        notes = found.notes if found.estimate or found.missing else (found.sentence,)
        item = explained(item, found.old, versions=changed)
        return replace(found, outcome=Outcome.NOT_JUDGED, notes=notes, new=item)
    found = invalidated(found, limit.tolerance, item.timing, reference, throttled)
    told, outcome = found.sentence, found.outcome
    verdict = Verdict(kind=limit.kind, asked=limit.asked, outcome=outcome, sentence=told, enforced=enforced)
    item = msgspec.structs.replace(item, verdicts=(*item.verdicts, verdict))
    return replace(found, new=explained(item, found.old, versions=changed))


def with_change(item: Measurement, found: Change, baseline: str) -> Measurement:
    """Return a measurement with the change that was found, if any, and if that is a number: files hold no other."""
    if found.estimate is None or found.old is None or not math.isfinite(sum(found.estimate.interval or (1.0,))):
        return item
    metric, ratio, interval = found.estimate.metric, found.estimate.ratio, found.estimate.interval
    old_us = found.old.timing.median_us
    change = PastChange(baseline=baseline, metric=metric, ratio=ratio, interval=interval, old_us=old_us)
    return msgspec.structs.replace(item, change=change)


def invalidated(
    found: Change, tolerance: RegressionTolerance, timing: Timing, reference: Timing | None, throttled: str
) -> Change:
    """Return a change, INVALID where a slower GPU may be its cause: that shortens no time, and slows replays alike."""
    is_speedup = found.estimate is not None and found.estimate.metric == "speedup"
    is_replayed = found.estimate is None or found.estimate.metric in (REPLAYED, SAME_CODE)
    is_kept = found.outcome is Outcome.NOT_JUDGED or (found.outcome is Outcome.PASS and not is_speedup)
    if is_replayed or is_kept or not is_changed_by_others(tolerance.metric):
        return found
    timings = [timing, reference] if is_speedup and reference is not None else [timing]
    slowed = what_made_slower(timings, "warn" if tolerance.is_on_counter else throttled)
    return replace(found, outcome=slowed.outcome, sentence=slowed.sentence(found.sentence)) if slowed else found
