"""The running test: carry out its public calls, keep what they measured, enforce the verdicts."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from traceback import walk_tb
from typing import Any, Literal

import msgspec

from pytest_gpubench.bench.exits import refusing_exit
from pytest_gpubench.bench.plan import is_enforced, one_at_a_time, unmeasured
from pytest_gpubench.bench.request import Request, Say, T
from pytest_gpubench.bench.work import peaks_for
from pytest_gpubench.errors import InvalidResult, LimitBroken, MeasurementError, NoBaseline, WrongResult
from pytest_gpubench.gpu.device import Device, find_device
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.counterpart import KeyReader
from pytest_gpubench.results.model import VALIDITY, DeviceFacts, Measurement, Outcome, TestRecord, Turn, Verdict
from pytest_gpubench.results.phases import Phases
from pytest_gpubench.results.trace_name import trace_name
from pytest_gpubench.search import Example, NoSearch, Search
from pytest_gpubench.search.budget import TimeBudget
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.traces import take_trace
from pytest_gpubench.units import repr_of, safe_lines
from pytest_gpubench.verdict.ending import MISSING, Ending, drawn_anew, rule_for, unjudged
from pytest_gpubench.verdict.saved_runs import BaselineLimit, Compared, compare_with_baseline
from pytest_gpubench.verdict.second_measurement import as_judged_before, confirmed, same_measurements

__tracebackhide__ = True


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
    """The number of GPUs that it holds while it runs."""
    source: str = ""
    extra_info: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    phase: Literal["setup", "call", "teardown"] = "setup"
    wider_scopes: list[str] = field(default_factory=list)
    """The fixtures that are being set up for more than this test, outermost first."""
    past: Callable[[DeviceFacts], BaselineLimit | None] = lambda facts: None
    """Returns the saved test and its tolerance; None if nothing is compared."""
    fresh: Callable[[], TestRecord | str] | None = None
    """Returns what a fresh process measures in the test, or why it does not; None where there is none to ask."""
    lost: list[str] = field(default_factory=list)
    """Errors raised in another thread than the test's, where pytest does not see them."""
    thread: int = field(default_factory=threading.get_ident)
    """The thread that pytest runs it in."""
    earlier_threads: Sequence[threading.Thread] = field(
        default_factory=lambda: [each for each in threading.enumerate() if each is not threading.current_thread()]
    )
    """The threads that ran before the test began."""
    has_failed_part: bool = False
    """True if pytest was told of a subtest that failed."""
    search: Search | NoSearch = field(default_factory=NoSearch)
    """The search that carries out public calls: examples share measurements, if the test is under @given."""
    keys: KeyReader = field(default_factory=KeyReader)
    """The keys of its measurements in a saved run."""
    traces: set[Path] = field(default_factory=set)
    """The files that traces were written to."""

    def begin_example(self, example: Example) -> None:
        """Note what hypothesis calls the test with next."""
        if isinstance(self.search, NoSearch):
            self.search = Search(TimeBudget(self.settings.given_budget_s), example)
        self.search.begin(example)

    def forget(self) -> None:
        """Let go of what the test's examples were made of."""
        self.search, self.past, self.fresh = NoSearch(), lambda facts: None, None

    def keep(self, measured: Sequence[Measurement]) -> None:
        """Keep measurements as the test's last: hypothesis ends with the example that it reports."""
        self._drop(measured)  # where they are remembered
        self.measurements += measured

    def keep_failed(self, title: str, measured: Sequence[Measurement]) -> None:
        """Keep what a call had measured when it failed; where it failed before, the last time stands for both."""
        told = [msgspec.structs.replace(item, example=self.search.example_text) for item in measured]
        self._drop(self.search.replaced(title, told))
        self.measurements += told

    def _drop(self, measured: Sequence[Measurement]) -> None:
        if measured and not isinstance(self.search, NoSearch):
            dropped = set(map(id, measured))
            self.measurements[:] = [item for item in self.measurements if id(item) not in dropped]

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

    def distrust(self, reason: str) -> None:
        """Call everything INVALID that was measured."""
        verdict = Verdict(kind=VALIDITY, asked="nobody else on the GPU", outcome=Outcome.INVALID, sentence=reason)
        self.measurements[:] = [
            msgspec.structs.replace(each, verdicts=(*each.verdicts, verdict)) for each in self.measurements
        ]

    def why_never_judged(self) -> str | None:
        """Return why the test fails although its function passed: its limits were never judged; None where it passes.

        On a CPU that nobody asked for the test passes with a warning.
        """
        compared = any(item.speedup is not None for item in self.measurements)
        if not self.limits or compared or (self.has_numbers and self.limits.min_speedup is None):
            return None
        reasons = [item.timing.unmeasured for item in self.measurements if not item.timing.measured]
        reason = reasons[-1] if reasons else _missing_call(self.limits)
        if not reasons or (self.device is not None and is_enforced(self.settings, self.device)):
            return f"perf({self.limits}) was never judged: {reason}"
        self.warn(f"its limits were not judged: {reason}")
        return None

    def why_refused(self) -> str | None:
        """Return why a test that passed fails by the rules for limits without a verdict; None where it passes."""
        if self.device is None or not is_enforced(self.settings, self.device):
            return None
        caught = [f"a limit is broken, and the test caught the error: {each.sentence}" for each in self._raised()]
        looked_up = {each.sentence for each in self._verdicts() if each.is_of_past}  # `mind_missing` has seen to them
        silent = [each for each in unjudged(self.limits, self._verdicts()) if each not in looked_up]
        for ending, sentences in ((Ending.CAUGHT, caught), (Ending.NOT_JUDGED, [*self.why_uncompared, *silent])):
            rule = rule_for(ending, self.settings)
            if sentences and rule.action == "fail":
                return safe_lines(f"{sentences[0]} ({rule.remedy})")
        return None

    def why_not_left(self, error: BaseException) -> str | None:
        """Return why a test fails that its measured code left by an error of pytest's; None where that stands."""
        rule, settings = rule_for(Ending.LEFT, self.settings), self.settings
        if self.device is None or not is_enforced(settings, self.device) or settings.disable:
            return None
        if rule.action != "fail" or not _came_out_of_a_call(error):  # a test may skip itself before it measures
            return None
        return f"the measured code ended its test: {safe_lines(repr_of(error))} ({rule.remedy})"

    def ending(self) -> Ending | None:
        """Return how a passed test is counted apart from those that kept their limits; None where it is one of them."""
        verdicts = self._verdicts()
        open_ = any(each.enforced and each.outcome is Outcome.INCONCLUSIVE for each in verdicts)
        if open_ and rule_for(Ending.INCONCLUSIVE, self.settings).action == "warn":
            return Ending.INCONCLUSIVE
        ignored = {each.sentence for each in verdicts if each.is_of_past} - set(self.warnings)
        loose = bool(verdicts) and not any(each.enforced for each in verdicts)
        silent = loose or set(unjudged(self.limits, verdicts)) - ignored
        return Ending.NOT_JUDGED if (silent or self.why_uncompared) and not self.settings.disable else None

    @property
    def why_uncompared(self) -> list[str]:
        """A sentence where a change since a saved run should be judged, and the test is under @given."""
        return [] if self.search.has_baseline or not self.has_numbers else drawn_anew(self.limits, self.settings)

    def _verdicts(self) -> list[Verdict]:
        return [each for item in self.measurements for each in item.verdicts]

    def _raised(self) -> list[Verdict]:
        return [each for each in self._verdicts() if is_raised(each)]

    def record(self, worker: str, turn: Turn | None, warnings: Sequence[str]) -> TestRecord:
        """Return the record of the test; warnings: those that are not the test's own."""
        device = self.device or find_device(self.settings.device)
        peaks = None
        if self.has_numbers:
            with suppress(Exception):  # peaks are only shown: a record without them is better than none
                peaks = peaks_for(self.settings, device, self.limits)
        if peaks is not None and not peaks.memory and self.limits.min_peak_fraction is None:
            self.warn(f"not compared with what the GPU can do at most: {'; '.join(peaks.remarks)}")
        return TestRecord(
            nodeid=self.nodeid,
            device=device.facts,
            worker=worker,
            params=self.params,
            measurements=tuple(self.measurements),
            phases=tuple(self.phases),
            extra_info=self.extra_info,
            warnings=(*warnings, *self.warnings),
            turn=turn,
            source=self.source,
            search=str(self.search),
            peaks=peaks,
        )

    @property
    def has_numbers(self) -> bool:
        """True if anything was timed."""
        return any(item.timing.measured for item in self.measurements)


def _came_out_of_a_call(error: BaseException) -> bool:
    """Tell whether an error was raised inside a public call, above all by the measured function."""
    return any(frame.f_code is answer.__code__ for frame, _ in walk_tb(error.__traceback__))


def _missing_call(limits: Limits) -> str:
    if limits.min_speedup is None:
        return "the test measured nothing; call gpu_bench(...) in it"
    return "the test compared nothing; call gpu_bench.compare(candidate, reference, ...) in it"


def answer(test: CurrentTest, request: Request[T], say: Say) -> T:
    """Carry out a public call: measure, compare with a saved run, keep, trace and enforce; return its result."""
    results: list[T] = []

    def obtain() -> list[Measurement]:
        measured: list[Measurement] = []
        with one_at_a_time(request.title), refusing_exit(), keeping_failed(test, request, measured):
            try:
                results.append(test.search.obtain(request, say, measured))
            finally:
                say("")
                test.warn(*request.remarks)
        return measured

    held = hold_against_past(test, request, obtain, say)
    result = request.with_measurements(results[-1], held.measurements)
    test.keep(held.measurements)
    if isinstance(result, Phases):
        test.phases[:] = test.search.shown_phases(test.phases, result)
    trace(test, request)
    enforce_all(test, request.settings, held.measurements)
    mind_missing(test, request.settings, request.device, held)
    return result


@contextmanager
def keeping_failed(test: CurrentTest, request: Request[T], measured: Sequence[Measurement]) -> Iterator[None]:
    """Keep what was measured before an error; where the error says that no number is right, keep that instead."""
    try:
        yield
    except (MeasurementError, WrongResult) as error:
        verdict = Verdict(kind=VALIDITY, asked=str(test.limits), outcome=Outcome.INVALID, sentence=str(error))
        timings = [unmeasured(label, request.device, request.settings, str(error)) for label in request.judged]
        test.keep_failed(
            request.title,
            [Measurement(timing=timing, verdicts=(verdict,), role=request.role) for timing in timings],
        )
        raise
    except Exception:
        test.keep_failed(request.title, measured)
        raise


def enforce_all(test: CurrentTest, settings: Settings, measured: Sequence[Measurement]) -> None:
    """Enforce the verdicts on all that a call measured, a broken limit first."""
    for item in sorted(measured, key=lambda item: not any(map(is_broken, item.verdicts))):
        try:
            enforce(test, settings, test.search.told(item.verdicts, test.warnings))
        except (LimitBroken, InvalidResult) as error:
            test.search.note_failure(error, item)
            raise


def enforce(test: CurrentTest, settings: Settings, verdicts: Sequence[Verdict]) -> None:
    """Raise LimitBroken for a broken limit; note an open one, or raise for it too, as the settings say.

    A broken limit comes first: while it was found others may have been left open.
    """
    rule = rule_for(Ending.INCONCLUSIVE, settings)
    for verdict in sorted(verdicts, key=lambda each: each.outcome is not Outcome.FAIL):
        undecided = verdict.outcome is Outcome.INCONCLUSIVE
        raised = verdict.enforced and (is_raised(verdict) or (undecided and rule.action == "fail"))
        if raised and test.thread != threading.get_ident():
            test.lost.append(verdict.sentence)
        if raised:
            raise (InvalidResult if verdict.outcome is Outcome.INVALID else LimitBroken)(safe_lines(verdict.sentence))
        not_judged = verdict.outcome is Outcome.NOT_JUDGED and not verdict.is_of_past  # those are of `mind_missing`
        if verdict.enforced and (not_judged or (undecided and rule.action == "warn")):
            test.warn(verdict.sentence)


def is_raised(verdict: Verdict) -> bool:
    """Tell whether a verdict is an error of its test, whatever the settings."""
    return verdict.enforced and verdict.outcome in (Outcome.FAIL, Outcome.INVALID)


def is_broken(verdict: Verdict) -> bool:
    """Tell whether a limit that counts was broken."""
    return verdict.enforced and verdict.outcome is Outcome.FAIL


def trace(test: CurrentTest, request: Request[T]) -> None:
    """Write a trace of each call that was measured, where that was asked for; what cannot be traced is a warning."""
    settings = request.settings
    if not request.is_traced or settings.trace is None or settings.disable or settings.timer == "scripted":
        return
    example = test.search.example_text
    alike = [each.timing for each in test.measurements if each.example == example and each.timing.measured]
    for call in request.calls.values():
        number = sum(timing.label == call.label for timing in alike)
        path = Path(settings.trace) / trace_name(test.nodeid, call.label, number, example)
        if number and path not in test.traces:
            test.traces.add(path)
            with suppress(OSError):
                path.unlink()  # of an earlier run
            take_trace(call, request.device, path, cache=settings.cache, warn=test.warnings.append)


def hold_against_past(
    test: CurrentTest, request: Request[T], obtain: Callable[[], list[Measurement]], say: Say = lambda text: None
) -> Compared:
    """Measure, and compare with a saved run; measure again what is no PASS, in a fresh process what is a FAIL.

    Each comparison spends half of alpha, and the last one stands: noise has to mislead two. The test's own limits spend
    their alpha the first time, and are not judged again. Examples of @given are drawn anew, and not compared.
    """
    measured = obtain()
    past = None if request.settings.disable else saved_run(test, request, measured)
    if past is None:
        return Compared(tuple(measured))
    held = _held(test, request, past, measured)
    settled = any(is_raised(each) and not each.is_of_past for item in measured for each in item.verdicts)
    if held.outcome is Outcome.PASS or settled:
        test.warn(*held.notes)
        return held
    try:
        remeasured = _in_fresh_process(test, request, held, measured, say)
        again = _held(test, request, past, as_judged_before(measured, remeasured or obtain()))
        if held.outcome is not Outcome.FAIL and (remeasured := _in_fresh_process(test, request, again, measured, say)):
            again = _held(test, request, past, as_judged_before(measured, remeasured))
    except Exception:
        test.measurements += held.measurements  # nothing that was measured is lost
        raise
    if held.outcome is Outcome.FAIL and again.outcome is not Outcome.FAIL:
        where, first = ", in a fresh process" if remeasured else "", held.verdicts[0].sentence
        test.warn(f"measured a second time{where}, as the first time it came out otherwise: {first}")
    test.warn(*again.notes)
    return confirmed(again) if remeasured else again


def _in_fresh_process(
    test: CurrentTest, request: Request[T], held: Compared, measured: Sequence[Measurement], say: Say
) -> list[Measurement]:
    """Return what a fresh process measures for a FAIL; empty where there is no need for one, or none could."""
    if held.outcome is not Outcome.FAIL or test.fresh is None or not is_enforced(request.settings, request.device):
        return []
    say("measuring a FAIL again in a fresh process")
    found = same_measurements(test.fresh(), test.keys.read_after(test.measurements, measured))
    if isinstance(found, str):
        test.warn(f"measured a second time in the same process, as no fresh one could: {found}")
        return []
    return found


def saved_run(test: CurrentTest, request: Request[T], measured: Sequence[Measurement]) -> BaselineLimit | None:
    """Return the saved test to compare with, None if there is none; warn if one was wanted."""
    if not test.search.has_baseline:
        test.warn(*test.why_uncompared)
        return None
    past = test.past(request.device.facts)
    if past is not None and not request.has_baseline:
        test.warn(f"{request.title} was not compared with the saved run: ranks are not")
        return None
    return past


def _held(test: CurrentTest, request: Request[T], past: BaselineLimit, measured: Sequence[Measurement]) -> Compared:
    settings, keys = request.settings, test.keys.read_after(test.measurements, measured)
    enforced = is_enforced(settings, request.device)
    return compare_with_baseline(past, keys, measured, settings.alpha / 2, enforced, settings.throttled)


def mind_missing(test: CurrentTest, settings: Settings, device: Device, held: Compared) -> None:
    """Raise NoBaseline, or note, that there is nothing to compare with, as the settings say; never raise unenforced."""
    enforced = is_enforced(settings, device)
    if not enforced and not any(item.timing.measured for item in held.measurements):
        return
    for missing in held.missing:
        rule = rule_for(MISSING.get(missing.kind, Ending.NO_TEST), settings)
        if rule.action == "warn":
            test.warn(missing.sentence)
        elif rule.action == "fail" and enforced:
            raise NoBaseline(f"{safe_lines(missing.sentence)} ({rule.remedy})")
        elif rule.action == "fail":
            test.warn(f"{missing.sentence} (this is not enforced on a CPU that nobody asked for)")
