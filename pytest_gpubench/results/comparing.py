"""Two whole runs, one held against the other."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pytest_gpubench.results.baseline import Baseline, torch_version
from pytest_gpubench.results.change import change_between, outcome_of, regression_sentence, stale_note
from pytest_gpubench.results.counterpart import Key, Missing, PastTest, keys_of
from pytest_gpubench.results.model import Measurement, Outcome, SavedRun, TestRecord
from pytest_gpubench.stats.regression import Change
from pytest_gpubench.stats.tolerance import Tolerance
from pytest_gpubench.units import printable, round_to_digits

__tracebackhide__ = True


@dataclass(frozen=True)
class Finding:
    """What has become of one measurement from one run to another."""

    nodeid: str
    label: str
    old: Measurement | None
    """None where there is none to compare with."""
    new: Measurement | None
    """None where it is gone."""
    change: Change | None
    """None where nothing was compared."""
    outcome: Outcome
    sentence: str
    note: str = ""
    """What else there is to know: a stale baseline, another driver, a reference that has changed too."""
    missing: Missing | None = None
    """Why nothing was compared; None where it was, or where the new run has no number or no longer the test."""


def compare_runs(
    old: SavedRun, new: SavedRun, tolerance: Tolerance, alpha: float, old_name: str = "", new_name: str = ""
) -> list[Finding]:
    """Return what has become of every measurement, in the order of the new run; what is gone comes last.

    Each FAIL is wrong with probability at most alpha. A reference is compared but not judged: it is what others are
    judged by. Nothing is raised for runs of different GPUs: their findings say so (`Finding.missing`).
    """
    baseline = Baseline([(old_name or old.name or old.datetime, old)])
    comparing = _Comparing(baseline, baseline.names[0], new_name or new.name or "the new run", tolerance, alpha)
    torch, others = torch_version(new.machine_info), {record.nodeid for record in new.records}
    findings: list[Finding] = []
    renamed: set[str] = set()
    for record in new.records:
        past = baseline.find(record.nodeid, record.source, record.device, record.params, torch, others)
        if isinstance(past, Missing):
            renamed.update(past.nodeids if past.kind == "renamed" else ())
            findings += comparing.without_past(record, past)
        else:
            findings += comparing.with_past(record, past)
    gone = (past for past in baseline.tests() if past.nodeid not in others and past.nodeid not in renamed)
    return findings + [comparing.gone(past, item) for past in gone for item in past.measurements]


@dataclass(frozen=True)
class _Comparing:
    baseline: Baseline
    old_name: str
    new_name: str
    tolerance: Tolerance
    alpha: float

    def without_past(self, record: TestRecord, missing: Missing) -> Iterator[Finding]:
        """Give a finding for each measurement of a test that nothing can be compared with."""
        for item in record.measurements:
            found = Finding(record.nodeid, item.timing.label, None, item, None, Outcome.NOT_JUDGED, missing.sentence)
            yield replace(found, missing=missing)

    def with_past(self, record: TestRecord, past: PastTest) -> Iterator[Finding]:
        """Give a finding for each measurement of a test that is in both runs, and for those that it no longer makes."""
        keys, slower = keys_of(record.measurements), {}
        for key, item in zip(keys, record.measurements, strict=True):
            finding = self._finding(record.nodeid, key, item, past)
            if key.role == "reference":
                slower[key.label, key.example] = _slower_reference(finding)
            is_fail_of_time = finding.outcome is Outcome.FAIL and finding.change and finding.change.metric != "speedup"
            drift = slower.get((key.reference, key.example), "") if is_fail_of_time else ""
            notes = [note for note in (finding.note, drift, *past.caveats) if note]
            yield replace(finding, note="; ".join(notes)) if notes else finding
        there = set(keys)
        for key, item in past.by_key.items():
            if key not in there:
                yield self.gone(past, item)

    def gone(self, past: PastTest, item: Measurement) -> Finding:
        """Return that the new run lacks a measurement."""
        label = item.timing.label
        sentence = (
            f"{printable(label)} of {printable(past.nodeid)} is in {self.old_name!r} but not in {self.new_name}: "
            "it was removed, renamed or not run"
        )
        return Finding(past.nodeid, label, item, None, None, Outcome.NOT_JUDGED, sentence)

    def _finding(self, nodeid: str, key: Key, item: Measurement, past: PastTest) -> Finding:
        found = Finding(nodeid, key.label, None, item, None, Outcome.NOT_JUDGED, "")
        old = past.counterpart(item, key)
        if not item.timing.measured:
            invalid = any(verdict.outcome is Outcome.INVALID for verdict in item.verdicts)
            kept = None if isinstance(old, Missing) else old
            sentence = f"{printable(key.label)} was not measured: {item.timing.unmeasured}"
            return replace(found, old=kept, outcome=Outcome.INVALID if invalid else found.outcome, sentence=sentence)
        if isinstance(old, Missing):
            return replace(found, sentence=old.sentence, missing=old)
        try:
            change = change_between(old, item, self.tolerance, self.alpha)
        except ValueError as error:
            sentence = f"{printable(key.label)} cannot be compared: {error}"
            return replace(found, old=old, outcome=Outcome.INVALID, sentence=sentence)
        return self._judged(replace(found, old=old, change=change), old, item)

    def _judged(self, found: Finding, old: Measurement, new: Measurement) -> Finding:
        assert found.change is not None
        medians = found.change.old, found.change.new
        if found.change.metric == "speedup":
            medians = old.timing.median_us, new.timing.median_us
        sentence = regression_sentence(found.label, found.change, self.tolerance, *medians, self.old_name)
        notes = [stale_note(found.label, found.change, self.tolerance, self.old_name), *_throttled(old, new)]
        outcome = outcome_of(found.change, self.tolerance)
        if new.role == "reference":
            sentence, outcome = f"the reference is not judged: {sentence}", Outcome.NOT_JUDGED
        return replace(found, outcome=outcome, sentence=sentence, note="; ".join(filter(None, notes)))


def _slower_reference(finding: Finding) -> str:
    change = finding.change
    if change is None or change.interval is None or change.interval.low <= 1:
        return ""
    return (
        f"its reference {printable(finding.label)} is slower too, {round_to_digits(change.ratio, 4)}x of its "
        f"{change.metric}: where clocks or drivers have drifted, a tolerance of the speedup is not misled"
    )


def _throttled(old: Measurement, new: Measurement) -> Iterator[str]:
    for when, timing in (("in the baseline", old.timing), ("now", new.timing)):
        if timing.throttle_reasons:
            yield f"the GPU was throttled {when} ({', '.join(timing.throttle_reasons)})"
