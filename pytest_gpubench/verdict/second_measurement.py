"""The second measurement of a test that did not PASS against a saved run: what it takes from the first."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from pytest_gpubench.limits import BROKEN_BY_NOISE
from pytest_gpubench.results.counterpart import MeasurementKey, by_key
from pytest_gpubench.results.model import Measurement, Outcome, TestRecord, Verdict
from pytest_gpubench.units import printable
from pytest_gpubench.verdict.saved_runs import Compared

__tracebackhide__ = True


def same_measurements(record: TestRecord | str, keys: Sequence[MeasurementKey]) -> list[Measurement] | str:
    """Return the measurements of a fresh process by their keys, or the reason why one of them is no number to judge.

    record: of the test in that process, or the reason why there is none.
    """
    if isinstance(record, str):
        return record
    there = by_key(record.measurements)
    for key in keys:
        item = there.get(key)
        if item is None:
            return f"{printable(key.label)} was not measured in it"
        if not item.timing.measured or item.why_invalid:
            return f"{printable(key.label)}: {item.why_invalid or item.timing.unmeasured}"
    return [there[key] for key in keys]


def confirmed(again: Compared) -> Compared:
    """Return a second comparison whose FAILs say that they are those of a fresh process."""
    return replace(again, measurements=tuple(map(_confirmed, again.measurements)))


def _confirmed(item: Measurement) -> Measurement:
    verdicts = tuple(
        msgspec.structs.replace(each, sentence=f"{each.sentence}; confirmed in a fresh process")
        if each.is_of_past and each.outcome is Outcome.FAIL
        else each
        for each in item.verdicts
    )
    return msgspec.structs.replace(item, verdicts=verdicts)


def as_judged_before(before: Sequence[Measurement], again: Sequence[Measurement]) -> list[Measurement]:
    """Return the second measurements, with the first verdicts on limits that noise can break."""
    return [
        msgspec.structs.replace(new, verdicts=tuple(_before(old.verdicts, verdict) for verdict in new.verdicts))
        for old, new in zip(before, again, strict=True)
    ]


def _before(verdicts: Sequence[Verdict], now: Verdict) -> Verdict:
    """Return the verdict on the same limit among these, which says so; the one of now where the limit is exact."""
    old = next((each for each in verdicts if each.kind == now.kind), now)
    if old is now or now.kind not in BROKEN_BY_NOISE:
        return now
    return msgspec.structs.replace(old, sentence=f"{old.sentence} (in the first of two measurements)")
