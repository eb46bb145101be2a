"""Whole runs compared: the change of every measurement since an older run."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_gpubench.results.baseline import Baseline, toolchain
from pytest_gpubench.results.counterpart import Missing, PastTest, by_key, by_test, keys_of
from pytest_gpubench.results.model import Measurement, Outcome, SavedRun, TestRecord, Timing
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import printable, ratio_text
from pytest_gpubench.verdict.reasons import explained_change
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.saved_runs import compare_with_saved, invalidated
from pytest_gpubench.verdict.throttling import what_slowed


def compare_runs(
    old: SavedRun,
    new: SavedRun,
    tolerance: RegressionTolerance,
    alpha: float,
    old_name: str = "",
    new_name: str = "",
) -> list[Change]:
    """Return the change of every measurement, in the order of the new run; what that lacks comes last.

    Each FAIL is wrong with probability at most alpha. Nothing is raised for runs of different GPUs: their changes say
    so (`Change.missing`).
    """
    others = {record.nodeid for record in new.records}
    baseline = Baseline([(old_name or old.name or old.datetime, old)], others)
    new_name = new_name or new.name or "the new run"
    installed = toolchain(new.machine_info)
    changes: list[Change] = []
    renamed: set[str] = set()
    earlier = by_test(new.earlier)
    for record in new.records:
        past = baseline.find(record.nodeid, record.source, record.device, record.params, installed)
        if isinstance(past, Missing):
            if past.kind == "renamed" and past.nodeids[0] not in renamed:  # tests of the same content share them
                renamed.update(past.nodeids)
            unjudged = Change(record.nodeid, "", Outcome.NOT_JUDGED, past.sentence, missing=past)
            changes += [replace(unjudged, label=each.timing.label, new=each) for each in record.measurements]
        else:
            before, throttled = earlier.get(record.key, ()), new.settings.get("throttled", "fail")
            changes += _with_past(record, past, tolerance, alpha, before, throttled)
            there = set(keys_of(record.measurements))
            changes += [_gone(past, item, new_name) for key, item in past.by_key.items() if key not in there]
    gone = (past for past in baseline.tests() if past.nodeid not in others and past.nodeid not in renamed)
    return changes + [_gone(past, item, new_name) for past in gone for item in past.measurements]


def _with_past(
    record: TestRecord,
    past: PastTest,
    tolerance: RegressionTolerance,
    alpha: float,
    earlier: Sequence[TestRecord],
    throttled: str,
) -> Iterator[Change]:
    sessions = [by_key(each.measurements) for each in earlier]
    references: dict[tuple[str, str], Timing] = {}
    drifts: dict[tuple[str, str], str] = {}
    """The sentence that a reference is slower too, by its label and example."""
    for key, item in by_key(record.measurements).items():
        before = [session[key] for session in sessions if key in session]
        change = compare_with_saved(record.nodeid, key, item, past, tolerance, alpha, before, can_confirm=False)
        if key.role == "reference":
            drifts[key.label, key.example] = _slower_reference(change)
            references[key.label, key.example] = item.timing
        is_slower_time = change.outcome is Outcome.FAIL and change.estimate and change.estimate.metric != "speedup"
        drift = drifts.get((key.reference, key.example), "") if is_slower_time else ""
        change = invalidated(change, tolerance, item.timing, references.get((key.reference, key.example)), throttled)
        slowed = what_slowed(item.timing, "now") if change.estimate else []
        change = replace(change, notes=(*change.notes, *slowed, *filter(None, [drift])))
        yield explained_change(change, past.changed)


def _slower_reference(change: Change) -> str:
    estimate = change.estimate
    if estimate is None or estimate.interval is None or estimate.interval.low <= 1:
        return ""
    return (
        f"its reference {printable(change.label)} is slower too, {ratio_text(estimate.ratio)} of its "
        f"{estimate.metric}: where clocks or drivers have drifted, a tolerance of the speedup is not misled"
    )


def _gone(past: PastTest, item: Measurement, new_name: str) -> Change:
    label = item.timing.label
    sentence = (
        f"{printable(label)} of {printable(past.nodeid)} is in {past.baseline!r} but not in {new_name}: "
        "it was removed, renamed or not run"
    )
    return Change(past.nodeid, label, Outcome.NOT_JUDGED, sentence, old=item)
