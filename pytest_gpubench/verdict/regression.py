"""A test held against a saved run: what becomes of each of its measurements, and what to do where there is none."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pytest_gpubench.results.change import change_between, outcome_of, regression_sentence, stale_note
from pytest_gpubench.results.counterpart import Missing, PastTest, keys_of
from pytest_gpubench.results.model import Measurement, Outcome, PastChange, Timing, Verdict
from pytest_gpubench.stats.regression import Change
from pytest_gpubench.stats.tolerance import Tolerance
from pytest_gpubench.units import printable
from pytest_gpubench.verdict.throttling import distrust_throttled

__tracebackhide__ = True

SHOWN = Tolerance("speedup", margin=0.05)
"""What is compared where nothing is demanded."""


@dataclass(frozen=True)
class Past:
    """What one test is held against."""

    found: PastTest | Missing
    tolerance: Tolerance | None
    """None where the change is shown, and not judged."""
    kind: str = ""
    """Who asked for the tolerance: `max_regression` or `compare_fail`."""
    asked: str = ""
    """The tolerance as it was asked for: `0.05`."""


@dataclass(frozen=True)
class Held:
    """What has become of measurements."""

    measurements: tuple[Measurement, ...]
    """With their changes and verdicts."""
    missing: tuple[Missing, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The worst of the verdicts; PASS where there is none."""
        outcomes = {verdict.outcome for item in self.measurements for verdict in item.verdicts if verdict.is_of_past}
        return next((each for each in (Outcome.FAIL, Outcome.INCONCLUSIVE) if each in outcomes), Outcome.PASS)


def hold(
    past: Past,
    before: Sequence[Measurement],
    new: Sequence[Measurement],
    alpha: float,
    enforced: bool,
    throttled: str = "warn",
) -> Held:
    """Hold a test's latest measurements against a saved run.

    before: what the test measured before them, by which equal ones are told apart. throttled: "fail" calls INVALID what
    was slower while the GPU was throttled. A reference is compared, but not judged: it is what others are judged by.
    """
    if isinstance(past.found, Missing):
        return Held(tuple(new), (past.found,))
    judge = _Judge(past, past.found, alpha, enforced, throttled)
    kept, missing, notes = [], [], []
    for key, item in zip(keys_of([*before, *new])[len(before) :], new, strict=True):
        old = past.found.counterpart(item, key)
        if not item.timing.measured:
            kept.append(item)
        elif isinstance(old, Missing):
            kept.append(item)
            missing.append(old)
        else:
            reference = next((each.timing for each in new if each.role == "reference"), item.timing)
            found, told = judge.hold(old, item, reference)
            kept.append(found)
            notes += told
    return Held(tuple(kept), tuple(missing), tuple(dict.fromkeys(notes)))


@dataclass(frozen=True)
class _Judge:
    past: Past
    test: PastTest
    alpha: float
    enforced: bool
    throttled: str

    def hold(self, old: Measurement, new: Measurement, reference: Timing) -> tuple[Measurement, list[str]]:
        """Return a measurement with its change, its verdict where it is judged, and what else there is to know."""
        tolerance = self.past.tolerance or SHOWN
        try:
            change = change_between(old, new, tolerance, self.alpha)
        except ValueError as error:
            return self._incomparable(new, f"{printable(new.timing.label)} cannot be compared: {error}")
        told = PastChange(
            baseline=self.test.baseline,
            metric=change.metric,
            ratio=change.ratio,
            interval=change.interval,
            old_us=old.timing.median_us,
        )
        new = msgspec.structs.replace(new, change=told)
        notes = [*self.test.caveats, *throttled_note(old, self.test.baseline)]
        if new.role == "reference":
            return new, notes
        notes += filter(None, [stale_note(new.timing.label, change, tolerance, self.test.baseline)])
        if self.past.tolerance is None:
            return new, notes
        verdict = self._verdict(old, new, change, tolerance)
        timings = [new.timing, reference] if change.metric == "speedup" else [new.timing]
        if change.metric == "speedup" or verdict.outcome is not Outcome.PASS:  # throttling makes nothing faster
            (verdict,) = distrust_throttled([verdict], timings, self.throttled)
        return msgspec.structs.replace(new, verdicts=(*new.verdicts, verdict)), notes

    def _verdict(self, old: Measurement, new: Measurement, change: Change, tolerance: Tolerance) -> Verdict:
        times_us = (change.old, change.new)
        if change.metric == "speedup":
            times_us = (old.timing.median_us, new.timing.median_us)
        return Verdict(
            kind=self.past.kind,
            asked=self.past.asked,
            outcome=outcome_of(change, tolerance),
            sentence=regression_sentence(new.timing.label, change, tolerance, *times_us, self.test.baseline),
            enforced=self.enforced,
        )

    def _incomparable(self, new: Measurement, sentence: str) -> tuple[Measurement, list[str]]:
        """Return a measurement whose samples are no times: INVALID where it is to be judged."""
        if self.past.tolerance is None or new.role == "reference":
            return new, [sentence]
        verdict = Verdict(
            kind=self.past.kind,
            asked=self.past.asked,
            outcome=Outcome.INVALID,
            sentence=sentence,
            enforced=self.enforced,
        )
        return msgspec.structs.replace(new, verdicts=(*new.verdicts, verdict)), []


def throttled_note(old: Measurement, baseline: str) -> list[str]:
    """Return that a measurement of a saved run was slowed down, and by what; nothing where it was not."""
    reasons = ", ".join(old.timing.throttle_reasons)
    return [f"the GPU was throttled in the baseline {baseline!r} ({reasons}); save a new one"] if reasons else []
