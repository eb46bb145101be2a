"""A saved run to hold a new one against: which measurement is whose, and what the two of them say together."""

import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

import msgspec

from pytest_gpubench.results.model import DeviceFacts, Measurement, Outcome, SavedRun, Timing
from pytest_gpubench.stats.regression import (
    Change,
    Metric,
    change_of_samples,
    change_of_speedups,
    decide,
    decide_difference,
    least_samples,
)
from pytest_gpubench.stats.tolerance import Tolerance
from pytest_gpubench.units import (
    choose_time_unit,
    count,
    format_time,
    printable,
    round_to_digits,
)

__tracebackhide__ = True

OUTCOMES = {"pass": Outcome.PASS, "fail": Outcome.FAIL, "open": Outcome.INCONCLUSIVE}
PROFILER_TICK_US = 0.032
"""Of the clock that kernels are timed with; `needed_batch` says why it matters."""
ROUNDED_US = 0.0015
"""By how much whole nanoseconds may miss a multiple of the tick."""
ENOUGH_TO_SEE_TICKS = 6
"""Samples of each run: of a clock without ticks, twelve would fit by chance less than once in 10^11."""


# which measurement is whose


class Key(NamedTuple):
    """What a measurement is known by within its test."""

    label: str
    role: str
    reference: str
    """The label of what it is compared with; empty for what is compared with nothing."""
    example: str
    occurrence: int
    """How many equal ones come before it."""


def keys_of(measurements: Sequence[Measurement]) -> list[Key]:
    """Return what each measurement of a test is known by."""
    seen: dict[tuple[str, str, str, str], int] = {}
    latest: dict[str, str] = {}
    keys = []
    for item in measurements:
        label, reference = item.timing.label, ""
        if item.role == "reference":
            latest[item.example] = label
        elif item.speedup is not None:
            reference = item.speedup.reference
        elif item.role == "candidate":
            reference = latest.get(item.example, "")
        known = (label, item.role, reference, item.example)
        seen[known] = occurrence = seen.get(known, -1) + 1
        keys.append(Key(*known, occurrence))
    return keys


@dataclass(frozen=True)
class Missing:
    """Why there is nothing to compare with."""

    kind: Literal["no test", "renamed", "parameters", "source", "host"]
    sentence: str
    nodeids: tuple[str, ...] = ()
    """The tests of the baseline that may be meant."""


@dataclass(frozen=True)
class PastTest:
    """What a baseline knows of one test."""

    nodeid: str
    baseline: str
    """The name of the baseline."""
    device: DeviceFacts
    torch: str
    params: Mapping[str, str]
    source: str
    measurements: tuple[Measurement, ...]
    caveats: tuple[str, ...] = ()
    """What differs between the two runs and may be why their times do, a sentence each."""

    @cached_property
    def by_key(self) -> dict[Key, Measurement]:
        """Its measurements by what they are known by."""
        return dict(zip(keys_of(self.measurements), self.measurements, strict=True))

    def measurement(
        self, label: str, role: str = "", reference: str = "", example: str = "", occurrence: int = 0
    ) -> Measurement | Missing:
        """Return the measurement that is known by the same, or why there is none with numbers."""
        found = self.by_key.get(Key(label, role, reference, example, occurrence))
        if found is None:
            return Missing("no test", self._no_such(Key(label, role, reference, example, occurrence)))
        if not found.timing.measured:
            why = found.timing.unmeasured
            return Missing("no test", f"{printable(label)} was not measured in {self._where()}: {why}; save a new one")
        invalid = [verdict.sentence for verdict in found.verdicts if verdict.outcome is Outcome.INVALID]
        if invalid:
            was = f"{printable(label)} was INVALID in {self._where()} ({invalid[0]})"
            return Missing("no test", f"{was}: there is no number to compare with; save a new one")
        return found

    def counterpart(self, new: Measurement, key: Key) -> Measurement | Missing:
        """Return the measurement to compare a new one with, or why there is none: numbers of two kinds are none."""
        found = self.measurement(*key)
        return found if isinstance(found, Missing) else self._unlike(found.timing, new.timing) or found

    def _where(self) -> str:
        return f"the baseline {self.baseline!r}"

    def _no_such(self, key: Key) -> str:
        what = printable(key.label) + (f" against {printable(key.reference)}" if key.reference else "")
        what += f" ({printable(key.example)})" if key.example else ""
        if key.occurrence:
            what += f", measured for the {key.occurrence + 1}th time,"
        there = list(dict.fromkeys(_key_text(each) for each in self.by_key))
        only = f"only {_few(there)}" if there else "nothing was measured in it"
        return f"{what} is not in {self._where()} of {printable(self.nodeid)}, {only}; save a new one"

    def _unlike(self, old: Timing, new: Timing) -> Missing | None:
        told = [
            f"{what} {getattr(old, what)} in {self._where()} and is {getattr(new, what)} now"
            for what in ("timer", "cache")
            if getattr(old, what) != getattr(new, what)
        ]
        if not told:
            return None
        sentence = f"{printable(new.label)} was measured in another way: {', '.join(told)}; measure both alike"
        return Missing("host", sentence)


def _key_text(key: Key) -> str:
    return printable(key.label) + (f" against {printable(key.reference)}" if key.reference else "")


def _few(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


# the baseline


class _Test(msgspec.Struct, array_like=True, frozen=True):
    nodeid: str
    device: int
    """Which of the run's devices."""
    params: dict[str, str]
    source: str
    measurements: tuple[Measurement, ...]


class _Run(msgspec.Struct, array_like=True, frozen=True):
    name: str
    torch: str
    devices: tuple[DeviceFacts, ...]
    tests: tuple[_Test, ...]


@dataclass(frozen=True)
class _Index:
    """The tests of a baseline by what they are looked up by."""

    by_nodeid: dict[str, list[PastTest]] = field(default_factory=dict)
    by_source: dict[str, list[PastTest]] = field(default_factory=dict)
    by_function: dict[str, list[PastTest]] = field(default_factory=dict)
    devices: dict[DeviceFacts, str] = field(default_factory=dict)
    """And the name of the run that was measured on each."""

    def add(self, test: PastTest) -> None:
        self.by_nodeid.setdefault(test.nodeid, []).append(test)
        self.by_source.setdefault(test.source, []).append(test)
        self.by_function.setdefault(function_of(test.nodeid), []).append(test)


class Baseline:
    """Saved runs to compare with, one for each GPU model.

    runs: each with its name, for sentences; where two were measured on the same GPU model, the later one counts.
    """

    def __init__(self, runs: Sequence[tuple[str, SavedRun]]) -> None:
        self._runs = tuple(_slim(name, run) for name, run in runs)

    def encode(self) -> str:
        """Write what is needed to compare as JSON: samples and log-ratios at full precision, no kernels or clocks."""
        return msgspec.json.encode(self._runs).decode()

    @classmethod
    def decode(cls, text: str) -> "Baseline":
        """Read what `encode` wrote."""
        baseline = cls(())
        baseline._runs = msgspec.json.decode(text, type=tuple[_Run, ...])
        return baseline

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its runs."""
        return tuple(run.name for run in self._runs)

    def tests(self) -> Iterator[PastTest]:
        """Give every test, in the order in which they were measured."""
        for run in self._runs:
            for test in run.tests:
                device = run.devices[test.device]
                yield PastTest(test.nodeid, run.name, device, run.torch, test.params, test.source, test.measurements)

    def find(
        self,
        nodeid: str,
        source: str,
        device: DeviceFacts,
        params: Mapping[str, str],
        torch: str = "",
        others: Container[str] = (),
    ) -> PastTest | Missing:
        """Return what is known of a test, or why nothing is that could be compared.

        torch: the version that measures now, empty where it is not known. others: the tests of the new run, which no
        test can have been renamed from.
        """
        here = [facts for facts in self._index.devices if is_same_model(facts, device)]
        if not here:
            return self._other_host(device)
        found = [past for past in self._index.by_nodeid.get(nodeid, ()) if past.device in here]
        if not found:
            return self._unknown(nodeid, source, here, params, others)
        past = found[-1]
        if past.params and params and _comparable(past.params) != _comparable(params):
            was = ", ".join(f"{name}={value}" for name, value in past.params.items())
            sentence = f"{printable(nodeid)} stood for other parameters in the baseline {past.baseline!r}: {was}"
            return Missing("parameters", f"{sentence}; save a new one", (nodeid,))
        if past.source and source and past.source != source:
            sentence = f"{printable(nodeid)}: the test itself has changed since the baseline {past.baseline!r}"
            return Missing("source", f"{sentence}; save a new one", (nodeid,))
        told = tuple(caveats(past, device, torch))
        return replace(past, caveats=told) if told else past

    @cached_property
    def _index(self) -> _Index:
        index = _Index()
        for test in self.tests():
            index.add(test)
            index.devices[test.device] = test.baseline
        return index

    def _other_host(self, device: DeviceFacts) -> Missing:
        if not self._index.devices:
            return Missing("no test", f"nothing was measured in the baseline {_quoted(self.names)}; save a new one")
        there = _few(list(dict.fromkeys(f"{_model(facts)} ({name!r})" for facts, name in self._index.devices.items())))
        sentence = f"no run on {_model(device)} is in the baseline, only on {there}; save one on this GPU"
        return Missing("host", sentence if device.type == "cuda" else sentence.replace("this GPU", "this machine"))

    def _unknown(
        self, nodeid: str, source: str, here: Container[DeviceFacts], params: Mapping[str, str], others: Container[str]
    ) -> Missing:
        index, asked = self._index, printable(nodeid)
        name = _quoted(dict.fromkeys(run for facts, run in index.devices.items() if facts in here))
        moved = [
            past.nodeid
            for past in (index.by_source.get(source, ()) if source else ())
            if past.device in here and past.nodeid not in others and _comparable(past.params) == _comparable(params)
        ]
        if moved:
            was = _few([printable(each) for each in moved])
            sentence = f"{asked} is not in the baseline {name}, but the same test is, as {was}: if it was renamed"
            return Missing("renamed", f"{sentence}, save a new one", tuple(moved))
        alike = [past.nodeid for past in index.by_function.get(function_of(nodeid), ()) if past.device in here]
        if alike:
            there = _few([printable(each) for each in alike])
            sentence = f"{asked} is not in the baseline {name} with these parameters, only {there}; save a new one"
            return Missing("parameters", sentence, tuple(alike))
        return Missing("no test", f"{asked} is not in the baseline {name}: it is new, or was not run; save a new one")


def _slim(name: str, run: SavedRun) -> _Run:
    devices: dict[DeviceFacts, int] = {}
    tests = [
        _Test(
            record.nodeid,
            devices.setdefault(record.device, len(devices)),
            record.params,
            record.source,
            tuple(map(_slim_measurement, record.measurements)),
        )
        for record in run.records
    ]
    return _Run(name, torch_version(run.machine_info), tuple(devices), tuple(tests))


def _slim_measurement(item: Measurement) -> Measurement:
    timing = item.timing
    kept = Timing(
        label=timing.label,
        timer=timing.timer,
        cache=timing.cache,
        device=timing.device,
        samples_us=timing.samples_us,
        throttle_reasons=timing.throttle_reasons,
        unmeasured=timing.unmeasured,
    )
    invalid = tuple(verdict for verdict in item.verdicts if verdict.outcome is Outcome.INVALID)
    return Measurement(timing=kept, verdicts=invalid, speedup=item.speedup, role=item.role, example=item.example)


def slimmed(run: SavedRun) -> SavedRun:
    """Return a run with nothing but what it can be compared by: of thousands of tests, a quarter of the memory."""
    records = [
        msgspec.structs.replace(record, measurements=tuple(map(_slim_measurement, record.measurements)))
        for record in run.records
    ]
    return msgspec.structs.replace(run, records=tuple(records))


def function_of(nodeid: str) -> str:
    """Return a test's node id without its parameters."""
    path, colons, inner = nodeid.partition("::")
    return path + colons + inner.partition("[")[0]


def _comparable(params: Mapping[str, str]) -> dict[str, str]:
    """Return parameters without addresses, which differ from run to run."""
    return {name: re.sub(r" at 0x[0-9a-fA-F]+", "", value) for name, value in params.items()}


def torch_version(machine_info: Mapping[str, Any]) -> str:
    """Return the version of torch that a run was measured with; empty where it is not known."""
    found = machine_info.get("torch")
    if isinstance(found, Mapping):
        found = found.get("version")
    return found if isinstance(found, str) else ""


def is_same_model(one: DeviceFacts, other: DeviceFacts) -> bool:
    """Tell whether times on two devices may be compared: the same model, as large a part of it."""
    if (one.type, one.name) != (other.type, other.name):
        return False
    parts = ((one.multiprocessors, other.multiprocessors), (one.mig, other.mig))
    return all(mine is None or theirs is None or mine == theirs for mine, theirs in parts)


def caveats(past: PastTest, device: DeviceFacts, torch: str = "") -> Iterator[str]:
    """Give a sentence for everything that differs and may be why times do."""
    rows = (
        ("driver", past.device.driver, device.driver, ""),
        ("torch", past.torch or None, torch or None, ""),
        ("CUDA", past.device.cuda, device.cuda, ""),
        ("maximum SM clock", past.device.max_sm_clock_mhz, device.max_sm_clock_mhz, " MHz"),
        ("maximum memory clock", past.device.max_memory_clock_mhz, device.max_memory_clock_mhz, " MHz"),
        ("power limit", past.device.power_limit_w, device.power_limit_w, " W"),
    )
    for what, was, now, unit in rows:
        if was is not None and now is not None and was != now:
            yield f"{what} was {_plain(was)}{unit} in the baseline {past.baseline!r} and is {_plain(now)}{unit} now"


def _plain(value: str | float) -> str:
    return printable(value) if isinstance(value, str) else f"{value:.12g}"


def _model(device: DeviceFacts) -> str:
    part = f" with {device.multiprocessors} multiprocessors" if device.multiprocessors is not None else ""
    return printable(device.name) + part + (" (MIG)" if device.mig else "")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


# what two measurements say together


def change_between(old: Measurement, new: Measurement, tolerance: Tolerance, alpha: float) -> Change:
    """Return how what the tolerance asks for has changed; the median where it asks for a speedup and one has none.

    Raises ValueError where a sample is no time.
    """
    if tolerance.metric == "speedup" and old.speedup is not None and new.speedup is not None:
        kept = old.speedup.log_ratios, new.speedup.log_ratios
        if all(kept) and old.speedup.reference == new.speedup.reference:
            return change_of_speedups(*kept, alpha)
    metric = cast(Metric, "median" if tolerance.metric == "speedup" else tolerance.metric)
    tick_us = tick_between(old.timing, new.timing)
    return change_of_samples(old.timing.samples_us, new.timing.samples_us, metric, alpha, tick_us)


def tick_between(old: Timing, new: Timing) -> float:
    """Return the tick of the profiler's clock in microseconds where the samples show it, else 0."""
    if old.timer != "profiler" or new.timer != "profiler":
        return 0.0
    shown = old.samples_us[:ENOUGH_TO_SEE_TICKS] + new.samples_us[:ENOUGH_TO_SEE_TICKS]
    ticks = all(
        math.isfinite(sample) and abs(math.remainder(sample, PROFILER_TICK_US)) <= ROUNDED_US for sample in shown
    )
    return PROFILER_TICK_US if ticks else 0.0


def outcome_of(change: Change, tolerance: Tolerance) -> Outcome:
    """Return FAIL where all that a change may be is more than is tolerated, PASS where none of it is."""
    if tolerance.margin is not None:
        return OUTCOMES[decide(change, tolerance.margin)]
    assert tolerance.absolute_us is not None
    return OUTCOMES[decide_difference(change, tolerance.absolute_us)]


def is_stale(change: Change, tolerance: Tolerance) -> bool:
    """Tell whether all that a change may be is as far on the fast side as is tolerated on the slow side."""
    if tolerance.margin is not None:
        return change.interval is not None and change.interval.high < 1 - tolerance.margin
    assert tolerance.absolute_us is not None
    return change.difference is not None and change.difference.high < -tolerance.absolute_us


def stale_note(label: str, change: Change, tolerance: Tolerance, baseline_name: str) -> str:
    """Return that a baseline is too slow to guard what is much faster now; empty where it is not."""
    if not is_stale(change, tolerance):
        return ""
    faster = f"{round_to_digits(1 / change.ratio, 4)}x as fast as in the baseline {baseline_name!r}"
    against = " against its reference" if change.metric == "speedup" else ""
    return f"baseline stale: {printable(label)} is faster than the baseline, {faster}{against}; save a new one"


def regression_sentence(
    label: str, change: Change, tolerance: Tolerance, old_us: float, new_us: float, baseline_name: str
) -> str:
    """Return what a change is, next to what is tolerated.

    old_us, new_us: the medians, told next to a speedup; a statistic of times is told itself.
    """
    outcome, is_speedup = outcome_of(change, tolerance), change.metric == "speedup"
    ratio, *ends = (round_to_digits(number, 4) for number in (change.ratio, *(change.interval or ())))
    between = f" [{', '.join(ends)}]" if ends else ""
    against = " against its reference" if is_speedup else ""
    whose = "relative time" if is_speedup else change.metric
    words = f"{_words(change, outcome)}{against} {_relation(change, outcome)} in the baseline {baseline_name!r}"
    if outcome is Outcome.PASS and change.interval is not None and change.interval.low > 1:
        words += ", within what is tolerated"
    return (
        f"{printable(label)} {words}: {ratio}x{between} of its {whose}{_wanted(change, tolerance)} "
        f"({_values(change, old_us, new_us)}, {_counts(change)}, alpha {change.alpha:g})"
    )


def _words(change: Change, outcome: Outcome) -> str:
    if outcome is Outcome.INCONCLUSIVE:
        return "cannot be judged" if change.interval is None else "is too close to tell"
    if outcome is Outcome.FAIL or (change.interval is not None and change.interval.low > 1):
        return "is slower"
    return "is faster" if change.interval is not None and change.interval.high < 1 else "is as fast"


def _relation(change: Change, outcome: Outcome) -> str:
    words = _words(change, outcome)
    return {"is slower": "than", "is faster": "than", "is as fast": "as"}.get(words, "from what it was")


def _wanted(change: Change, tolerance: Tolerance) -> str:
    if tolerance.margin is not None:
        return f", wanted at most {1 + tolerance.margin:.12g}x"
    assert tolerance.absolute_us is not None
    unit = choose_time_unit([tolerance.absolute_us])
    more = format_time(change.new - change.old, unit)
    ends = [format_time(end, unit) for end in change.difference or ()]
    between = f" [{', '.join(ends)}]" if ends else ""
    return f", by {more}{between}, wanted at most {format_time(tolerance.absolute_us, unit)} more"


def _values(change: Change, old_us: float, new_us: float) -> str:
    speedups = ""
    if change.metric == "speedup":
        speedups = f"speedup {round_to_digits(change.new, 4)}x against {round_to_digits(change.old, 4)}x, "
    else:
        old_us, new_us = change.old, change.new
    unit = choose_time_unit([old_us])
    return f"{speedups}{format_time(new_us, unit)} against {format_time(old_us, unit)}"


def _counts(change: Change) -> str:
    old, new = change.counts
    noun, least = "quad" if change.metric == "speedup" else "rep", least_samples(change.metric, change.alpha)
    too_few = f", too few to decide: take at least {count(least, noun)} in both" if min(old, new) < least else ""
    return f"{new} and {count(old, noun)}{too_few}"
