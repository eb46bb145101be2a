"""The running test: carry out its public calls, keep what they measured, enforce the verdicts."""

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from pytest_gpubench.bench.exits import refusing_exit
from pytest_gpubench.bench.plan import is_enforced, one_at_a_time, unmeasured
from pytest_gpubench.bench.request import Request, Say, T
from pytest_gpubench.bench.work import peaks_for
from pytest_gpubench.errors import InvalidResult, LimitBroken, MeasurementError, NoBaseline, WrongResult
from pytest_gpubench.gpu.device import Device, find_device
from pytest_gpubench.results.counterpart import KeyReader
from pytest_gpubench.results.model import VALIDITY, DeviceFacts, Measurement, Outcome, TestRecord, Turn, Verdict
from pytest_gpubench.results.phases import Phases
from pytest_gpubench.results.trace_name import trace_name
from pytest_gpubench.search import Example, NoSearch, Search
from pytest_gpubench.search.budget import TimeBudget
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.traces import take_trace
from pytest_gpubench.units import safe_lines
from pytest_gpubench.verdict.ending import MISSING, Ending, drawn_anew, rule_for, unjudged
from pytest_gpubench.verdict.limits import Limits
from pytest_gpubench.verdict.saved_runs import BaselineLimit, Compared, compare_with_baseline

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
    inherited: Mapping[str, str] = field(default_factory=dict)
    """The class or file whose mark gives a limit or a setting, by name; without those of the test's own marks."""
    wider_scopes: list[str] = field(default_factory=list)
    """The fixtures that are being set up for more than this test, outermost first."""
    past: Callable[[DeviceFacts], BaselineLimit | None] = lambda facts: None
    """Returns the saved test and its tolerance; None if nothing is compared."""
    fresh: Callable[[int], TestRecord | str] | None = None
    """Returns what a fresh process of this number measures in the test, or why it does not; None where none is."""
    failures: list[str] = field(default_factory=list)
    """Errors of ours that its calls have raised: it fails, whatever it does with them."""
    open_calls: list[str] = field(default_factory=list)
    """Titles of the calls that have not returned."""
    expects_failure: bool = False
    """True if it was marked xfail before it measured."""
    leaving: tuple[type[BaseException], ...] = ()
    """Exceptions that end a test without failing it."""
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
        """Begin the search's next example."""
        if isinstance(self.search, NoSearch):
            self.search = Search(TimeBudget(self.settings.given_budget_s), example)
        self.search.begin(example)

    def forget(self) -> None:
        """Drop the search and the saved runs, which hold tensors and records."""
        self.search, self.past, self.fresh = NoSearch(), lambda facts: None, None

    def keep(self, measured: Sequence[Measurement]) -> None:
        """Add measurements; those of an example that hypothesis repeats move to the end: it reports the last one."""
        self._drop(measured)
        self.measurements += measured

    def keep_failed(self, title: str, measured: Sequence[Measurement]) -> None:
        """Add what a failed call had measured, in place of what it left when it failed before."""
        told = [msgspec.structs.replace(item, example=self.search.example_text) for item in measured]
        self._drop(self.search.replaced(title, told))
        self.measurements += told

    def _drop(self, measured: Sequence[Measurement]) -> None:
        if measured and not isinstance(self.search, NoSearch):
            dropped = set(map(id, measured))
            self.measurements[:] = [item for item in self.measurements if id(item) not in dropped]

    def warn(self, *sentences: str) -> None:
        """Add warnings for the end of the run, each sentence once."""
        self.warnings += [sentence for sentence in sentences if sentence not in self.warnings]

    @contextmanager
    def answering(self, title: str) -> Iterator[None]:
        """Note what fails the test: an error of ours, and a call that has not returned when the test ends."""
        self.open_calls.append(title)
        try:
            yield
        except (LimitBroken, WrongResult, MeasurementError) as error:
            self.failures.append(str(error))
            raise
        finally:
            self.open_calls.remove(title)

    def unenforce(self) -> None:
        """Mark broken limits as not enforced: the test was expected to fail."""
        self.measurements[:] = [
            msgspec.structs.replace(
                item,
                verdicts=tuple(
                    msgspec.structs.replace(each, enforced=False) if each.fails_test else each for each in item.verdicts
                ),
            )
            for item in self.measurements
        ]

    def invalidate(self, reason: str) -> None:
        """Add an INVALID verdict to every measurement."""
        verdict = Verdict(kind=VALIDITY, asked="nobody else on the GPU", outcome=Outcome.INVALID, sentence=reason)
        self.measurements[:] = [
            msgspec.structs.replace(each, verdicts=(*each.verdicts, verdict)) for each in self.measurements
        ]

    @property
    def has_begun(self) -> bool:
        """True if it has called gpu_bench: from then on its limits decide how it ends."""
        return bool(self.measurements or self.failures or self.open_calls)

    def why_failed(self, has_failed: bool = False) -> str | None:
        """Return why the test fails by its limits, whatever it did itself; None where they were kept, or need not be.

        has_failed: True for a test that has failed by itself: its other limits need not be judged.
        """
        if self.failures:
            return f"{self.failures[0]} (gpu_bench raised this, and the test or a thread caught it: let it through)"
        if has_failed or self.has_failed_part or self.settings.disable:
            return None
        if self.open_calls:
            return f"{self.open_calls[0]!r} was still being measured when the test ended: join the thread that measures"
        return self._why_never_judged() or self._why_refused()

    def _why_never_judged(self) -> str | None:
        """Return why a test fails whose limits no measurement could be judged by; None where there was one.

        On a CPU that nobody asked for it is a warning.
        """
        compared = any(item.speedup is not None for item in self.measurements)
        if not self.limits or compared or (self.has_numbers and not self.limits.need("reference")):
            return None
        reasons = [item.timing.unmeasured for item in self.measurements if not item.timing.measured]
        reason = reasons[-1] if reasons else _missing_call(self.limits)
        if not reasons or (self.device is not None and is_enforced(self.settings, self.device)):
            never = Limits(min_speedup=self.limits.min_speedup) if self.has_numbers else self.limits
            return f"perf({never}) was never judged: {reason}{self._how_to_drop(never)}"
        self.warn(f"its limits were not judged: {reason}")
        return None

    def _how_to_drop(self, limits: Limits) -> str:
        """Return how to drop limits that the test's class or file sets; empty where it sets them itself."""
        names = [name for name in self.inherited if getattr(limits, name, None) is not None]
        if not names:
            return ""
        owners, dropped = ", ".join(dict.fromkeys(map(self.inherited.__getitem__, names))), "=None, ".join(names)
        return f" (a mark of the {owners} asks for it: @pytest.mark.perf({dropped}=None) on the test drops it)"

    def _why_refused(self) -> str | None:
        """Return why a test fails by the rule for limits that are NOT JUDGED; None where it does not."""
        rule = rule_for(Ending.NOT_JUDGED, self.settings)
        if self.device is None or not is_enforced(self.settings, self.device) or rule.action != "fail":
            return None
        verdicts = self._verdicts()
        looked_up = {each.sentence for each in verdicts if each.is_of_past}  # by `enforce_missing`
        silent = [each for each in unjudged(self.limits, verdicts) if each not in looked_up]
        sentences = [*self.why_uncompared, *silent]
        return safe_lines(f"{sentences[0]} ({rule.remedy})") if sentences else None

    def ending(self) -> Ending | None:
        """Return the ending that a passed test is counted under; None where it kept its limits."""
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

    def record(self, worker: str, turn: Turn | None, warnings: Sequence[str]) -> TestRecord:
        """Return the record of the test; warnings: those that are not the test's own."""
        device = self.device or find_device(self.settings.device)
        peaks = None
        if self.has_numbers:
            with suppress(Exception):  # peaks are only shown: a record without them is better than none
                peaks = peaks_for(self.settings, device, self.limits)
        if peaks is not None and not peaks.memory and not self.limits.need("peaks"):
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


def _missing_call(limits: Limits) -> str:
    if not limits.need("reference"):
        return "the test measured nothing; call gpu_bench(...) in it"
    return "the test compared nothing; call gpu_bench.compare(candidate, reference, ...) in it"


def answer(test: CurrentTest, request: Request[T], say: Say) -> T:
    """Carry out a public call, and note on its test whether it fails it; return its result."""
    with test.answering(request.title):
        return _answer(test, request, say)


def _answer(test: CurrentTest, request: Request[T], say: Say) -> T:
    """Measure, compare with a saved run, keep, trace and enforce."""
    results: list[T] = []

    def obtain() -> list[Measurement]:
        measured: list[Measurement] = []
        with (
            one_at_a_time(request.title),
            keeping_failed(test, request, measured),
            refusing_exit(test.leaving, test.failures.append),
        ):
            try:
                results.append(test.search.obtain(request, say, measured))
            finally:
                say("")
                test.warn(*request.remarks)
        return measured

    compared = measure_and_compare(test, request, obtain, say)
    result = request.with_measurements(results[-1], compared.measurements)
    test.keep(compared.measurements)
    if isinstance(result, Phases):
        test.phases[:] = test.search.shown_phases(test.phases, result)
    trace(test, request)
    enforce_all(test, request.settings, compared.measurements)
    enforce_missing(test, request.settings, request.device, compared)
    return result


@contextmanager
def keeping_failed(test: CurrentTest, request: Request[T], measured: Sequence[Measurement]) -> Iterator[None]:
    """Keep what was measured before an error; an error that says that no number is right becomes an INVALID verdict."""
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

    def is_broken(item: Measurement) -> bool:
        return any(each.enforced and each.outcome is Outcome.FAIL for each in item.verdicts)

    for item in sorted(measured, key=is_broken, reverse=True):
        try:
            enforce(test, settings, test.search.told(item.verdicts, test.warnings))
        except (LimitBroken, InvalidResult) as error:
            test.search.note_failure(error, item)
            raise


def enforce(test: CurrentTest, settings: Settings, verdicts: Sequence[Verdict]) -> None:
    """Raise LimitBroken for a broken limit; warn of an INCONCLUSIVE one, or raise for it too, as the settings say.

    A broken limit comes first: it ends a measurement that leaves others INCONCLUSIVE.
    """
    rule = rule_for(Ending.INCONCLUSIVE, settings)
    for verdict in sorted(verdicts, key=lambda each: each.outcome is not Outcome.FAIL):
        undecided = verdict.outcome is Outcome.INCONCLUSIVE
        raised = verdict.fails_test or (verdict.enforced and undecided and rule.action == "fail")
        if raised:
            error = (InvalidResult if verdict.outcome is Outcome.INVALID else LimitBroken)(safe_lines(verdict.sentence))
            error.page = "baselines" if verdict.is_of_past else error.page
            raise error
        not_judged = verdict.outcome is Outcome.NOT_JUDGED and not verdict.is_of_past  # those are of `enforce_missing`
        if verdict.enforced and (not_judged or (undecided and rule.action == "warn")):
            test.warn(verdict.sentence)


def trace(test: CurrentTest, request: Request[T]) -> None:
    """Write a trace of each measured call if the settings ask for it; warn where one cannot be taken."""
    settings = request.settings
    if not request.is_repeatable or settings.trace is None or settings.disable or settings.timer == "scripted":
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


def measure_and_compare(
    test: CurrentTest, request: Request[T], obtain: Callable[[], list[Measurement]], say: Say = lambda text: None
) -> Compared:
    """Measure, and compare with a saved run: over further sessions in fresh processes while these may decide.

    Examples of @given are new in each run: not compared.
    """
    measured = obtain()
    past = None if request.settings.disable else saved_run(test, request, measured)
    if past is None:
        return Compared(tuple(measured))
    try:
        compared = _compare(test, request, past, measured)
        if not any(each.fails_test for item in measured for each in item.verdicts):
            compared = _with_fresh_processes(test, request, past, measured, compared, say)
    except Exception:
        test.measurements += measured  # nothing that was measured is lost
        raise
    test.warn(*compared.notes)
    return compared


def _with_fresh_processes(
    test: CurrentTest,
    request: Request[T],
    past: BaselineLimit,
    measured: Sequence[Measurement],
    compared: Compared,
    say: Say,
) -> Compared:
    """Return the comparison over as many fresh processes as decide it, or as can be had."""
    if test.fresh is None or not is_enforced(request.settings, request.device):
        return compared
    keys, first = test.keys.read_after(test.measurements, measured), compared
    for number in itertools.count(1):
        if not compared.further:
            break
        say(f"measuring again in a fresh process, {compared.further} more at most")
        further = past.with_session(test.fresh(number), keys)
        if isinstance(further, str):
            test.warn(f"not measured again in a fresh process: {further}")
            break
        past, compared = further, _compare(test, request, further, measured)
    if first.outcome is not Outcome.PASS and compared.outcome is Outcome.PASS:
        told = next(each.sentence for each in first.verdicts if each.outcome is first.outcome)
        test.warn(f"PASS in a fresh process, after another outcome in the first: {told}")
    return compared


def saved_run(test: CurrentTest, request: Request[T], measured: Sequence[Measurement]) -> BaselineLimit | None:
    """Return the saved test to compare with; None, with a warning if one was asked for, where there is none."""
    if not test.search.has_baseline:
        test.warn(*test.why_uncompared)
        return None
    past = test.past(request.device.facts)
    if past is not None and not request.has_baseline:
        test.warn(f"{request.title} was not compared with the saved run: ranks are not")
        return None
    return past


def _compare(test: CurrentTest, request: Request[T], past: BaselineLimit, measured: Sequence[Measurement]) -> Compared:
    settings, keys = request.settings, test.keys.read_after(test.measurements, measured)
    enforced = is_enforced(settings, request.device)
    return compare_with_baseline(past, keys, measured, settings.alpha, enforced, settings.throttled)


def enforce_missing(test: CurrentTest, settings: Settings, device: Device, compared: Compared) -> None:
    """Raise NoBaseline or warn, as the settings say, where a saved run has nothing to compare with."""
    enforced = is_enforced(settings, device)
    if not enforced and not any(item.timing.measured for item in compared.measurements):
        return
    for missing in compared.missing:
        rule = rule_for(MISSING.get(missing.kind, Ending.NO_TEST), settings)
        if rule.action == "warn":
            test.warn(missing.sentence)
        elif rule.action == "fail" and enforced:
            raise NoBaseline(f"{safe_lines(missing.sentence)} ({rule.remedy})")
        elif rule.action == "fail":
            test.warn(f"{missing.sentence} (this is not enforced on a CPU that nobody asked for)")
