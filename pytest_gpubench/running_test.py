"""The running test: what it has measured, and what becomes of that."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from pytest_gpubench.bench.plan import is_enforced, unmeasured
from pytest_gpubench.bench.work import measured_before
from pytest_gpubench.errors import (
    InvalidResult,
    LimitBroken,
    MeasurementError,
    NoBaseline,
    WrongResult,
)
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.limits import Limits
from pytest_gpubench.report.trace_summary import trace_name
from pytest_gpubench.results.model import VALIDITY, Comparison, DeviceFacts, Measurement, Outcome, Timing, Verdict
from pytest_gpubench.results.phases import Phases
from pytest_gpubench.search import Example, Key, Search
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.traces import take_trace
from pytest_gpubench.verdict.regression import Held, Past, hold

__tracebackhide__ = True

DECIDED_BY_SAMPLES = ("max_rel_std", "max_time_us", "min_speedup", "min_gbps", "min_tflops", "min_peak_fraction")
"""Limits that noise can break, each judgement with a probability of alpha; the others are exact."""


@dataclass
class CurrentTest:
    """The running test, as the fixture needs to know it."""

    nodeid: str
    settings: Settings
    limits: Limits
    device: Device | None = None
    params: dict[str, str] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    phases: list[Phases] = field(default_factory=list)
    gpus: int = 1
    """How many it holds while it runs."""
    source: str = ""
    extra_info: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    phase: Literal["setup", "call", "teardown"] = "setup"
    wider_scopes: list[str] = field(default_factory=list)
    """The fixtures that are being set up for more than this test, outermost first."""
    past: Callable[[DeviceFacts], Past | None] = lambda facts: None
    """Returns what the test is held against; None where it is held against nothing."""
    demands: object = None
    """What its marks asked for when they were last looked at."""
    lost: list[str] = field(default_factory=list)
    """What was raised in another thread than the test's, where pytest does not see it."""
    thread: int = field(default_factory=threading.get_ident)
    """The one that pytest runs it in."""
    has_failed_part: bool = False
    """Whether pytest was told of a subtest that failed."""
    search: Search | None = None
    """The comparisons of a test under @given; None for any other test."""

    def begin_example(self, example: Example) -> None:
        """Note what hypothesis calls the test with next."""
        if self.search is None:
            self.search = Search(self.settings.given_budget, example)
        self.search.begin(example)

    def forget(self) -> None:
        """Let go of what the test's examples were made of."""
        self.search, self.past = None, lambda facts: None

    def warn(self, *sentences: str) -> None:
        """Note what the run is to say at its end, each sentence once."""
        self.warnings += [sentence for sentence in sentences if sentence not in self.warnings]

    def excuse(self, expected: bool) -> None:
        """Note that what was broken does not fail the test, and warn of it unless the test was expected to fail."""
        for place, item in enumerate(self.measurements):
            if caught := [each for each in item.verdicts if is_raised(each)]:
                kept = tuple(
                    msgspec.structs.replace(each, enforced=each.enforced and each not in caught)
                    for each in item.verdicts
                )
                self.measurements[place] = msgspec.structs.replace(item, verdicts=kept)
                if not expected:
                    self.warn(f"the test did not fail, as its error was caught: {caught[0].sentence}")

    @property
    def example(self) -> str:
        """What hypothesis called the test with; empty for a test of its own."""
        return self.search.example.text if self.search else ""


def enforce(test: CurrentTest, settings: Settings, verdicts: Sequence[Verdict]) -> None:
    """Raise LimitBroken for a broken limit; note an open one, or raise for it too, as the settings say.

    A broken limit comes first: while it was found others may have been left open.
    """
    for verdict in sorted(verdicts, key=lambda each: each.outcome is not Outcome.FAIL):
        undecided = verdict.outcome is Outcome.INCONCLUSIVE
        raised = verdict.enforced and (is_raised(verdict) or (undecided and settings.inconclusive == "fail"))
        if raised and test.thread != threading.get_ident():
            test.lost.append(verdict.sentence)
        if raised:
            raise (InvalidResult if verdict.outcome is Outcome.INVALID else LimitBroken)(verdict.sentence)
        unsaid = verdict.outcome is Outcome.NOT_JUDGED or (undecided and settings.inconclusive == "warn")
        if verdict.enforced and unsaid:
            test.warn(verdict.sentence)


def is_raised(verdict: Verdict) -> bool:
    """Tell whether a verdict is an error of its test, whatever the settings."""
    return verdict.enforced and verdict.outcome in (Outcome.FAIL, Outcome.INVALID)


def trace(test: CurrentTest, settings: Settings, device: Device, calls: Sequence[Call]) -> None:
    """Write a trace of each call that was measured, where that was asked for; what cannot be traced is a warning."""
    if settings.trace is None or settings.disable or settings.timer == "scripted":
        return
    for call in calls:
        alike = [each.timing for each in test.measurements if each.example == test.example]
        number = sum(timing.measured and timing.label == call.label for timing in alike)
        if number and (test.search is None or number == 1):
            path = Path(settings.trace) / trace_name(test.nodeid, call.label, number, test.example)
            with suppress(OSError):
                path.unlink()  # of an earlier run
            take_trace(call, device, path, cache=settings.cache, warn=test.warnings.append)


def hold_against_past(
    test: CurrentTest, settings: Settings, device: Device, obtain: Callable[[], list[Measurement]]
) -> Held:
    """Measure, and hold what was measured against a saved run; measure once more where that does not come out well.

    Each time spends half of alpha, and what is found the second time stands: noise has to be wrong about both. The
    test's own limits spend theirs the first time, and are not judged again. The examples of a test under @given are
    drawn anew in every run, and held against nothing.
    """
    try:
        measured = obtain()
    except Exception as error:
        keep_interrupted(test, measured_before(error))
        raise
    if test.search is not None and test.limits.max_regression is not None:
        test.warn("max_regression was not judged: the examples of @given are drawn anew in every run")
    past = test.past(device.facts) if test.search is None and not settings.disable else None
    if past is None:
        return Held(tuple(measured))
    enforced = is_enforced(settings, device)
    held = hold(past, test.measurements, measured, settings.alpha / 2, enforced, settings.throttled)
    settled = any(
        each.enforced and each.outcome in (Outcome.FAIL, Outcome.INVALID) and not each.is_of_past
        for item in measured
        for each in item.verdicts
    )
    if held.outcome is Outcome.PASS or settled:
        test.warn(*held.notes)
        return held
    try:
        remeasured = obtain()
    except Exception:
        test.measurements += held.measurements  # nothing that was measured is lost
        raise
    remeasured = as_judged_before(measured, remeasured)
    again = hold(past, test.measurements, remeasured, settings.alpha / 2, enforced, settings.throttled)
    if held.outcome is Outcome.FAIL and again.outcome is not Outcome.FAIL:
        sentences = [each.sentence for item in held.measurements for each in item.verdicts if each.is_of_past]
        test.warn(f"measured a second time, as the first time it came out otherwise: {sentences[0]}")
    test.warn(*again.notes)
    return again


def as_judged_before(before: Sequence[Measurement], again: Sequence[Measurement]) -> list[Measurement]:
    """Return what was measured a second time with what its limits came to the first time, where chance has a say."""
    return [
        msgspec.structs.replace(new, verdicts=tuple(_before(old.verdicts, verdict) for verdict in new.verdicts))
        for old, new in zip(before, again, strict=True)
    ]


def _before(verdicts: Sequence[Verdict], now: Verdict) -> Verdict:
    """Return the verdict on the same limit among these, which says so; the one of now where the limit is exact."""
    old = next((each for each in verdicts if each.kind == now.kind), now)
    if old is now or now.kind not in DECIDED_BY_SAMPLES:
        return now
    return msgspec.structs.replace(old, sentence=f"{old.sentence} (in the first of two measurements)")


def mind_missing(test: CurrentTest, settings: Settings, device: Device, held: Held) -> None:
    """Raise NoBaseline, or note, that there is nothing to compare with, as the settings say; never raise unenforced."""
    enforced = is_enforced(settings, device)
    if not enforced and not any(item.timing.measured for item in held.measurements):
        return
    for missing in held.missing:
        policy = settings.host_mismatch if missing.kind == "host" else settings.missing_baseline
        option = "--gpu-bench-host-mismatch" if missing.kind == "host" else "--gpu-bench-missing-baseline"
        if policy == "warn":
            test.warn(missing.sentence)
        elif policy != "ignore" and enforced:
            raise NoBaseline(f"{missing.sentence} ({option}=warn goes on without)")
        elif policy != "ignore":
            test.warn(f"{missing.sentence} ({option}={policy} is not enforced on a CPU that nobody asked for)")


def keep_phases(test: CurrentTest, key: Key | None, found: Phases, measurements: Sequence[Measurement]) -> None:
    """Keep what phases took; of the examples of a test under @given only the worst is shown.

    key: what the example's are remembered by; None for a test of its own.
    """
    test.measurements += measurements
    if test.search is None or key is None:
        test.phases.append(found)
    else:
        test.search.phased[key] = found, measurements
        test.phases[:] = test.search.worst_phases()


def with_candidates(comparison: Comparison, candidates: Sequence[Measurement]) -> Comparison:
    """Return a comparison with its candidates as they were held against a saved run."""
    named = dict(zip(comparison.candidates, candidates, strict=True))
    return msgspec.structs.replace(comparison, candidates=named)


@contextmanager
def keeping(test: CurrentTest, timing: Timing, verdicts: Sequence[Verdict]) -> Iterator[None]:
    """Keep what was measured where looking at it further raises what is noted nowhere else."""
    try:
        yield
    except (MeasurementError, WrongResult):
        raise
    except Exception:
        keep_interrupted(test, [Measurement(timing=timing, verdicts=tuple(verdicts))])
        raise


def keep_interrupted(test: CurrentTest, found: Sequence[Measurement]) -> None:
    """Keep what was measured before an error; hypothesis comes back to what fails: the last time stands for all."""
    told = tuple(msgspec.structs.replace(item, example=test.example) for item in found)
    if test.search is not None and told:
        before, test.search.interrupted = test.search.interrupted, told
        test.measurements[:] = [item for item in test.measurements if all(item is not one for one in before)]
    test.measurements += told


@contextmanager
def noting_invalid(
    test: CurrentTest, settings: Settings, device: Device, names: Sequence[str], role: Literal["", "candidate"]
) -> Iterator[None]:
    """Note for each of these functions that there is no number for it that is known to be right, and why."""
    try:
        yield
    except (MeasurementError, WrongResult) as error:
        for name in names:
            verdict = Verdict(kind=VALIDITY, asked=str(test.limits), outcome=Outcome.INVALID, sentence=str(error))
            timing = unmeasured(name, device, settings, str(error))
            if test.search is not None:  # hypothesis comes back to what fails: the last time stands for all
                test.measurements[:] = [item for item in test.measurements if not is_invalid(item, name)]
            test.measurements.append(Measurement(timing=timing, verdicts=(verdict,), role=role, example=test.example))
        raise


def is_invalid(measurement: Measurement, label: str) -> bool:
    """Tell whether a measurement says of this function that there is no number for it."""
    named = measurement.timing.label == label
    return named and any(verdict.outcome is Outcome.INVALID for verdict in measurement.verdicts)


def why_untimed(test: CurrentTest, settings: Settings) -> str:
    """Return why the search that runs has no more time; empty where it has, or where nothing is timed anyhow."""
    return "" if test.search is None or settings.disable else test.search.why_untimed


def spending(test: CurrentTest, settings: Settings, spent: str) -> Settings:
    """Return the settings of the next judgement; all of a search spend one alpha.

    spent: why nothing is judged; empty where it is.
    """
    if test.search is None or not test.limits or spent:
        return settings
    return test.search.spending(settings)


def paying(test: CurrentTest) -> AbstractContextManager[None]:
    """Take the time that this lasts from the budget of the search that runs."""
    return test.search.paying() if test.search is not None else nullcontext()


def show_last(test: CurrentTest, found: Sequence[Measurement]) -> None:
    """Keep what was found as the last of the test's: hypothesis ends with the example that it reports."""
    if test.search is not None:  # where they may be there already
        test.measurements[:] = [item for item in test.measurements if all(item is not one for one in found)]
    test.measurements += found


def hold_to(test: CurrentTest, settings: Settings, verdicts: Sequence[Verdict]) -> None:
    """Enforce verdicts; in a search, reps that are too few for its examples are told once, for all."""
    if test.search is None:
        enforce(test, settings, verdicts)
        return
    told = test.search.fixed.told(verdicts)
    test.warnings[:] = [each for each in test.warnings if each not in test.search.fixed.outdated]
    try:
        enforce(test, settings, told)
    except (LimitBroken, InvalidResult) as error:
        test.search.has_failed = True
        test.search.tell_to_keep(error)
        raise


def without_time(measurement: Measurement, reason: str) -> Measurement:
    """Return a measurement of what was only called, with the reason."""
    return msgspec.structs.replace(measurement, timing=msgspec.structs.replace(measurement.timing, unmeasured=reason))
