"""Saved runs to compare a new one with: the saved test, or the reason why there is none."""

import math
import re
from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import msgspec

from pytest_gpubench.results.counterpart import FactChange, Missing, PastTest, by_test
from pytest_gpubench.results.model import DeviceFacts, Measurement, Outcome, SavedRun
from pytest_gpubench.results.provenance import TOOLS
from pytest_gpubench.stats.process_spread import (
    UNKNOWN_SPEEDUP,
    UNKNOWN_TIME,
    ProcessSpread,
    spread_of,
    spread_of_suite,
)
from pytest_gpubench.units import first_few, printable

Key = tuple[str, Hashable]
"""The property by which tests are looked up, and its value."""


class Baseline:
    """Saved runs to compare with, one for each GPU model.

    runs: each with its name, for sentences; where two were measured on the same GPU model, the later one counts.
    others: the tests of the new run, which no test can have been renamed from; complete when one is first looked up.
    """

    def __init__(self, runs: Sequence[tuple[str, SavedRun]], others: Container[str] = ()) -> None:
        self._runs = tuple(msgspec.structs.replace(slimmed(run), name=name) for name, run in runs)
        self._others = others
        self._alike: dict[tuple[Key, DeviceFacts], tuple[str, ...]] = {}

    def encode(self) -> str:
        """Write the slim runs as JSON: samples and log-ratios at full precision, one clock for all reps."""
        return msgspec.json.encode(self._runs).decode()

    @classmethod
    def decode(cls, text: str, others: Container[str] = ()) -> "Baseline":
        """Read what `encode` wrote."""
        baseline = cls((), others)
        baseline._runs = msgspec.json.decode(text, type=tuple[SavedRun, ...])
        return baseline

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its runs."""
        return tuple(dict.fromkeys(run.name for run in self._runs))

    def tests(self) -> Iterator[PastTest]:
        """Give every test, in the order in which they were measured."""
        for run in self._runs:
            earlier = by_test(run.earlier)
            for record in run.records:
                sessions = (
                    each.measurements
                    for each in earlier.get(record.key, ())
                    if _content(each.source, each.params) == _content(record.source, record.params)
                )
                yield PastTest(
                    nodeid=record.nodeid,
                    baseline=run.name,
                    device=record.device,
                    installed=toolchain(run.machine_info),
                    params=record.params,
                    source=record.source,
                    measurements=record.measurements,
                    earlier=tuple(sessions),
                )

    def find(
        self,
        nodeid: str,
        source: str,
        device: DeviceFacts,
        params: Mapping[str, str],
        installed: Mapping[str, str] = {},
    ) -> PastTest | Missing:
        """Return the saved test, or the reason why there is none to compare with.

        installed: the versions of the toolchain that measures now.
        """
        here = {run: facts for facts, run in self._devices.items() if is_same_model(facts, device)}
        if not here:
            return self._other_host(device)
        found = [past for past in self._index.get(("node id", nodeid), ()) if is_same_model(past.device, device)]
        if found:
            past = found[-1]
            changed = tuple(differences(past.device, device, past.installed, installed))
            return _another(past, source, params) or (replace(past, changed=changed) if changed else past)
        absent = f"{printable(nodeid)} is not in the baseline {_quoted(here)}"
        if moved := self._names(("content", _content(source, params)), device):
            sentence = f"{absent}, but the same test is, as {first_few(moved, 3)}: if it was renamed, save a new one"
            return Missing("renamed", sentence, moved)
        if alike := self._names(("function", function_of(nodeid)), device):
            sentence = f"{absent} with these parameters, only {first_few(alike, 3)}; save a new one"
            return Missing("parameters", sentence, alike)
        return Missing("no test", f"{absent}: it is new, or was not run; save a new one")

    @cached_property
    def spreads(self) -> dict[str, ProcessSpread]:
        """The expected spread of a test between processes, for `speedup` and for `time`."""
        found: dict[str, list[ProcessSpread]] = {"speedup": [], "time": []}
        for test in self.tests():
            for key, latest in test.by_key.items() if test.earlier else ():
                both = (*test.earlier_of(key), latest)
                items = [each for each in both if each.timing.measured and not each.why_invalid]
                times = [math.log(each.timing.median_us) for each in items]
                speedups = [math.log(each.speedup.ratio) for each in items if each.speedup is not None]
                for kind, logs in (("time", times), ("speedup", speedups)):
                    if spread := spread_of(logs):
                        found[kind].append(spread)
        unknown = {"speedup": UNKNOWN_SPEEDUP, "time": UNKNOWN_TIME}
        return {kind: spread_of_suite(spreads, unknown[kind]) for kind, spreads in found.items()}

    @cached_property
    def _devices(self) -> dict[DeviceFacts, str]:
        """The name of the latest run that was measured on each."""
        return {record.device: run.name for run in self._runs for record in run.records}

    @cached_property
    def _index(self) -> dict[Key, list[PastTest]]:
        found = defaultdict[Key, list[PastTest]](list)
        for test in self.tests():
            keys: list[Key] = [("node id", test.nodeid), ("function", function_of(test.nodeid))]
            if test.source and test.nodeid not in self._others:  # a new one may be its new name
                keys.append(("content", _content(test.source, test.params)))
            for key in keys:
                found[key].append(replace(test, spreads=self.spreads))
        return found

    def _other_host(self, device: DeviceFacts) -> Missing:
        if not self._devices:
            return Missing("no test", f"nothing was measured in the baseline {_quoted(self.names)}; save a new one")
        there = list(dict.fromkeys(f"{_model(facts)} ({name!r})" for facts, name in self._devices.items()))
        here = "GPU" if device.type == "cuda" else "machine"
        only = f"only on {first_few(there, 3)}; save one on this {here}"
        return Missing("host", f"no run on {_model(device)} is in the baseline, {only}")

    def _names(self, key: Key, device: DeviceFacts) -> tuple[str, ...]:
        """Return the tests on the model of a device that are looked up by a key, found once for all who look."""
        if (key, device) not in self._alike:
            there = (past.nodeid for past in self._index.get(key, ()) if is_same_model(past.device, device))
            self._alike[key, device] = tuple(there)
        return self._alike[key, device]


def _another(past: PastTest, source: str, params: Mapping[str, str]) -> Missing | None:
    """Return the reason why a test of the same name is another one; None where it is the same."""
    if past.params and params and comparable(past.params) != comparable(params):
        was = ", ".join(f"{name}={value}" for name, value in past.params.items())
        sentence = f"{printable(past.nodeid)} stood for other parameters in the baseline {past.baseline!r}: {was}"
        return Missing("parameters", f"{sentence}; save a new one", (past.nodeid,))
    if past.source and source and past.source != source:
        sentence = f"{printable(past.nodeid)}: the test itself has changed since the baseline {past.baseline!r}"
        return Missing("source", f"{sentence}; save a new one", (past.nodeid,))
    return None


def _slim_measurement(item: Measurement, is_latest: bool) -> Measurement:
    """Return a measurement with what is compared; of the latest session, with what reasons are found in."""
    timing, clock_mhz = item.timing, item.timing.median_sm_clock_mhz
    kept = msgspec.structs.replace(
        timing,
        busy_us=(),
        span_us=(),
        sm_clock_mhz=() if clock_mhz is None else (clock_mhz,),
        stretches=(),
        kernels=timing.kernels if is_latest else (),
        regions=(),
    )
    verdicts = tuple(each for each in item.verdicts if each.found or each.outcome is Outcome.INVALID)
    observed = item.observed if is_latest else None
    return msgspec.structs.replace(item, timing=kept, verdicts=verdicts, differences=(), change=None, observed=observed)


def slimmed(run: SavedRun) -> SavedRun:
    """Return a run with what is compared and explained: of thousands of tests, half of its size."""
    records, earlier = (
        tuple(
            msgspec.structs.replace(
                record,
                measurements=tuple(_slim_measurement(item, found is run.records) for item in record.measurements),
                phases=(),
                extra_info={},
                warnings=(),
            )
            for record in found
        )
        for found in (run.records, run.earlier)
    )
    return msgspec.structs.replace(run, records=records, earlier=earlier)


def function_of(nodeid: str) -> str:
    """Return a test's node id without its parameters."""
    path, colons, inner = nodeid.partition("::")
    return path + colons + inner.partition("[")[0]


def _content(source: str, params: Mapping[str, str]) -> Hashable:
    return source, frozenset(comparable(params).items())


def comparable(params: Mapping[str, str]) -> dict[str, str]:
    """Return parameters without addresses, which differ from run to run."""
    return {name: without_addresses(value) for name, value in params.items()}


def without_addresses(text: str) -> str:
    """Return a text without the addresses of the objects in it: `<Shape object at 0x7fa94dd43210>`."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def toolchain(machine_info: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of what a run's kernels were compiled with, and of packages that it was told of."""
    packages = machine_info.get("packages")
    named = {**{name: machine_info.get(name) for name in TOOLS}, **(packages if isinstance(packages, dict) else {})}
    return {name: version for name, version in named.items() if isinstance(version, str)}


def is_same_model(one: DeviceFacts, other: DeviceFacts) -> bool:
    """Tell whether times on two devices may be compared: the same model, as large a part of it."""
    if (one.type, one.name) != (other.type, other.name):
        return False
    parts = ((one.multiprocessors, other.multiprocessors), (one.mig, other.mig))
    return all(mine is None or theirs is None or mine == theirs for mine, theirs in parts)


def differences(
    one: DeviceFacts, other: DeviceFacts, one_installed: Mapping[str, str], other_installed: Mapping[str, str]
) -> Iterator[FactChange]:
    """Yield each fact that differs between two machines with one GPU model."""
    rows = (
        ("driver", one.driver, other.driver, ""),
        *((name, version, other_installed.get(name), "") for name, version in one_installed.items()),
        ("CUDA", one.cuda, other.cuda, ""),
        ("maximum SM clock", one.max_sm_clock_mhz, other.max_sm_clock_mhz, " MHz"),
        ("maximum memory clock", one.max_memory_clock_mhz, other.max_memory_clock_mhz, " MHz"),
        ("power limit", one.power_limit_w, other.power_limit_w, " W"),
    )
    for what, was, now, unit in rows:
        if was is not None and now is not None and was != now:
            yield what, f"{_plain(was)}{unit}", f"{_plain(now)}{unit}"


def _plain(value: str | float) -> str:
    return printable(value) if isinstance(value, str) else f"{value:.12g}"


def _model(device: DeviceFacts) -> str:
    part = f" with {device.multiprocessors} multiprocessors" if device.multiprocessors is not None else ""
    return printable(device.name) + part + (" (MIG)" if device.mig else "")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
