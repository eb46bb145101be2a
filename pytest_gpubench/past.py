"""A test held against a saved run: what becomes of each of its measurements, and what to do where there is none."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pytest_gpubench.results.baseline import (
    Missing,
    PastTest,
    change_between,
    keys_of,
    outcome_of,
    regression_sentence,
    stale_note,
)
from pytest_gpubench.results.model import Measurement, Outcome, PastChange, Verdict
from pytest_gpubench.stats.tolerance import Tolerance

__tracebackhide__ = True

SHOWN = Tolerance("speedup", margin=0.05)
"""What is compared where nothing is demanded."""


@dataclass(frozen=True)
class Past:
    """What one test is held against."""

    found: PastTest | Missing
    tolerance: Tolerance | None
    """None where the change is shown, and not judged."""
    limit: str = ""
    """The tolerance as it was asked for: `max_regression=0.05`."""


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
        outcomes = {verdict.outcome for item in self.measurements for verdict in item.verdicts if is_of_past(verdict)}
        return next((each for each in (Outcome.FAIL, Outcome.INCONCLUSIVE) if each in outcomes), Outcome.PASS)


def is_of_past(verdict: Verdict) -> bool:
    """Tell whether a verdict is about a saved run."""
    return verdict.limit.startswith(("max_regression=", "compare_fail="))


def hold(past: Past, before: Sequence[Measurement], new: Sequence[Measurement], alpha: float, enforced: bool) -> Held:
    """Hold a test's latest measurements against a saved run.

    before: what the test measured before them, by which equal ones are told apart. A reference is compared, but not
    judged: it is what others are judged by.
    """
    if isinstance(past.found, Missing):
        return Held(tuple(new), (past.found,))
    kept, missing, notes = [], [], []
    for key, item in zip(keys_of([*before, *new])[len(before) :], new, strict=True):
        old = past.found.counterpart(item, key)
        if not item.timing.measured:
            kept.append(item)
        elif isinstance(old, Missing):
            kept.append(item)
            missing.append(old)
        else:
            kept.append(held(past, past.found.baseline, old, item, alpha, enforced))
            notes += notes_on(past, past.found, old, item, alpha)
    return Held(tuple(kept), tuple(missing), tuple(dict.fromkeys(notes)))


def held(past: Past, name: str, old: Measurement, new: Measurement, alpha: float, enforced: bool) -> Measurement:
    """Return a measurement with its change, and its verdict where it is judged."""
    tolerance = past.tolerance or SHOWN
    change = change_between(old, new, tolerance, alpha)
    told = PastChange(
        baseline=name,
        metric=change.metric,
        ratio=change.ratio,
        interval=change.interval,
        old_us=old.timing.median_us,
    )
    new = msgspec.structs.replace(new, change=told)
    if past.tolerance is None or new.role == "reference":
        return new
    times_us = (change.old, change.new)
    if change.metric == "speedup":
        times_us = (old.timing.median_us, new.timing.median_us)
    verdict = Verdict(
        limit=past.limit,
        outcome=outcome_of(change, tolerance),
        sentence=regression_sentence(new.timing.label, change, tolerance, *times_us, name),
        enforced=enforced,
    )
    return msgspec.structs.replace(new, verdicts=(*new.verdicts, verdict))


def notes_on(past: Past, test: PastTest, old: Measurement, new: Measurement, alpha: float) -> list[str]:
    """Return what else there is to know about a change: another driver, a baseline that guards nothing any more."""
    if new.role == "reference":
        return list(test.caveats)
    tolerance = past.tolerance or SHOWN
    stale = stale_note(new.timing.label, change_between(old, new, tolerance, alpha), tolerance, test.baseline)
    return [*test.caveats, *([stale] if stale else [])]
