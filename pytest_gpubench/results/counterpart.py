"""The measurement of a saved test that a new one is compared with, or the reason why there is none."""

import copy
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from pytest_gpubench.results.model import DeviceFacts, Measurement, SavedRun, TestRecord
from pytest_gpubench.stats.process_spread import ProcessSpread
from pytest_gpubench.units import first_few, printable


class MeasurementKey(NamedTuple):
    """The identity of a measurement within its test."""

    label: str
    role: str
    reference: str
    """The label of what it is compared with; empty for what is compared with nothing."""
    example: str
    occurrence: int
    """The number of equal ones before it."""


class KeyReader:
    """Name the measurements of one test by their keys, in the order in which they were taken.

    by_reference: False leaves the label of the reference out of the keys.
    """

    def __init__(self, by_reference: bool = True) -> None:
        self.by_reference = by_reference
        self._seen: dict[tuple[str, str, str, str], int] = {}
        self._latest: dict[str, str] = {}
        """The label of each example's last reference."""
        self._number = 0

    def read(self, measurements: Iterable[Measurement]) -> list[MeasurementKey]:
        """Return the keys of the next measurements."""
        keys = []
        for item in measurements:
            label, reference = item.timing.label, ""
            if item.role == "reference":
                self._latest[item.example] = label
            elif item.speedup is not None:
                reference = item.speedup.reference
            elif item.role == "candidate":
                reference = self._latest.get(item.example, "")
            known = (label, item.role, reference if self.by_reference else "", item.example)
            self._seen[known] = occurrence = self._seen.get(known, -1) + 1
            keys.append(MeasurementKey(*known, occurrence))
        return keys

    def read_after(self, before: Sequence[Measurement], new: Iterable[Measurement]) -> list[MeasurementKey]:
        """Return the keys of new measurements, which come after those before them and need not stay.

        before: grows from call to call; what was read once is not read again.
        """
        self.read(before[self._number :])
        self._number = len(before)
        return copy.deepcopy(self).read(new)


def keys_of(measurements: Sequence[Measurement], by_reference: bool = True) -> list[MeasurementKey]:
    """Return the key of each measurement of a test; by_reference: False leaves out the reference's label."""
    return KeyReader(by_reference).read(measurements)


def by_key(measurements: Sequence[Measurement]) -> dict[MeasurementKey, Measurement]:
    """Return the measurements of a test by their keys."""
    return dict(zip(keys_of(measurements), measurements, strict=True))


FactChange = tuple[str, str, str]
"""A fact about a toolchain or a machine that differs between two runs: its name, its old value, its new value."""
MOST_CHANGES = 8
"""Changed facts that are named."""
RunKey = tuple[str, str, MeasurementKey]
"""The device's name, the test, and the measurement within it."""


def changes_text(changes: Sequence[FactChange]) -> str:
    """Return changed facts in words: `driver 570 -> 580, torch 2.10 -> 2.11`."""
    return first_few([f"{what} {was} -> {now}" for what, was, now in changes], MOST_CHANGES)


def by_run_key(run: SavedRun) -> dict[RunKey, Measurement]:
    """Return the measurements of a run by device, test and key."""
    return {
        (record.device.name, record.nodeid, key): item
        for record in run.records
        for key, item in by_key(record.measurements).items()
    }


def by_test(records: Iterable[TestRecord]) -> dict[tuple[str, str], list[TestRecord]]:
    """Return the records of each test on each device, by its key."""
    found: dict[tuple[str, str], list[TestRecord]] = defaultdict(list)
    for record in records:
        found[record.key].append(record)
    return found


@dataclass(frozen=True)
class Missing:
    """The reason why there is nothing to compare with."""

    kind: Literal["not asked", "no run", "no test", "renamed", "parameters", "source", "host"]
    sentence: str
    nodeids: tuple[str, ...] = ()
    """The tests of the baseline that may be meant."""


@dataclass(frozen=True)
class PastTest:
    """A test as its baseline has it."""

    nodeid: str
    baseline: str
    """The name of the baseline."""
    device: DeviceFacts
    installed: Mapping[str, str]
    """The versions of its toolchain, as `results.baseline.toolchain` returns them."""
    params: Mapping[str, str]
    source: str
    measurements: tuple[Measurement, ...]
    changed: tuple[FactChange, ...] = ()
    """Differences between the two runs that may be why their times differ."""
    earlier: tuple[tuple[Measurement, ...], ...] = ()
    """Its measurements in each earlier session of the run, oldest first."""
    spreads: Mapping[str, ProcessSpread] = field(default_factory=dict)
    """The expected spread of a test between processes, for `speedup` and for `time`."""

    @property
    def caveats(self) -> list[str]:
        """A sentence with all differences between the two runs, or none."""
        return [f"{changes_text(self.changed)} since the baseline {self.baseline!r}"] if self.changed else []

    @cached_property
    def by_key(self) -> dict[MeasurementKey, Measurement]:
        """Its measurements by their keys."""
        return by_key(self.measurements)

    def earlier_of(self, key: MeasurementKey) -> list[Measurement]:
        """Return the same measurement in the earlier sessions that have it."""
        return [session[key] for session in self._earlier_by_key if key in session]

    @cached_property
    def _earlier_by_key(self) -> list[dict[MeasurementKey, Measurement]]:
        return [by_key(found) for found in self.earlier]

    def measurement(
        self, label: str, role: str = "", reference: str = "", example: str = "", occurrence: int = 0
    ) -> Measurement | Missing:
        """Return the measurement of a key, or why there is none with numbers."""
        key = MeasurementKey(label, role, reference, example, occurrence)
        found, where = self.by_key.get(key), f"the baseline {self.baseline!r}"
        if found is None:
            which = f" ({printable(example)})" if example else ""
            time = f", measured for the {occurrence + 1}th time," if occurrence else ""
            there = list(dict.fromkeys(map(_words, self.by_key)))
            only = f"only {first_few(there, 3)}" if there else "nothing was measured in it"
            sentence = f"{_words(key)}{which}{time} is not in {where} of {printable(self.nodeid)}, {only}"
        elif not found.timing.measured:
            sentence = f"{printable(label)} was not measured in {where}: {found.timing.unmeasured}"
        elif found.why_invalid:
            was = f"{printable(label)} was INVALID in {where} ({found.why_invalid})"
            sentence = f"{was}: there is no number to compare with"
        else:
            return found
        return Missing("no test", f"{sentence}; save a new one")

    def counterpart(self, new: Measurement, key: MeasurementKey) -> Measurement | Missing:
        """Return the measurement to compare a new one with, or why there is none, such as another timer."""
        found = self.measurement(*key)
        if isinstance(found, Missing):
            return found
        told = [
            f"{what} {was} in the baseline {self.baseline!r} and is {now} now"
            for what in ("timer", "cache")
            if (was := getattr(found.timing, what)) != (now := getattr(new.timing, what))
        ]
        if not told:
            return found
        sentence = f"{printable(new.timing.label)} was measured in another way: {', '.join(told)}; measure both alike"
        return Missing("host", sentence)


def _words(key: MeasurementKey) -> str:
    return printable(key.label) + (f" against {printable(key.reference)}" if key.reference else "")
