"""A public call of the running test: measure, compare with a saved run, keep, trace, enforce the verdicts."""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_gpubench.bench.exits import refusing_exit
from pytest_gpubench.bench.plan import is_enforced, one_at_a_time, plan_of
from pytest_gpubench.bench.request import CallResult, Request, Say, T, measured_before
from pytest_gpubench.counted import judged_by_counters, why_uncounted, with_counts
from pytest_gpubench.counters import COUNTER_BY_NAME
from pytest_gpubench.errors import (
    BadRequest,
    GpuBenchError,
    InvalidResult,
    LimitBroken,
    MeasurementError,
    NoBaseline,
    WrongResult,
)
from pytest_gpubench.gpu.context import context_error, may_be_cuda_error
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.counterpart import MeasurementKey, Missing
from pytest_gpubench.results.files import trace_name
from pytest_gpubench.results.model import VALIDITY, Measurement, Outcome, TestRecord, Verdict
from pytest_gpubench.results.phases import Phases
from pytest_gpubench.running_test import IN_A_FORK, CurrentTest, NoSearch
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.structure.ncu import take_captures
from pytest_gpubench.timing.interpreter import watching_launches
from pytest_gpubench.timing.traces import take_trace
from pytest_gpubench.units import safe_lines
from pytest_gpubench.verdict.ending import MISSING, Ending, rule_for
from pytest_gpubench.verdict.limits import severity, worst_first
from pytest_gpubench.verdict.reasons import explained_by_neighbours
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.saved_runs import BaselineLimit, compare_with_baseline
from pytest_gpubench.verdict.throttling import beside

if TYPE_CHECKING:
    from pytest_gpubench.replay.baselines import ReplayableCalls

COUNTED = "its counters are taken, and a process under ncu measures no times"
DOUBTFUL = (Outcome.FAIL, Outcome.INCONCLUSIVE)
REPLAYED_METRICS = ("speedup", "median", "mean")
"""The metrics of a tolerance that replays answer for; the quartiles of samples are another question."""


def answer(test: CurrentTest, request: Request[T], say: Say) -> T:
    """Carry out a public call, and note on its test whether it fails it; return its result."""
    with answering(test, request.title):
        test.calls += 1
        if test.note_capture is not None:
            return count_calls(test, test.note_capture, request)
        if test.note_what_breaks is not None:
            return name_what_breaks(test.note_what_breaks, request)
        with keeping(test, say) as measured:
            found = _measure(test, request, say)
            measured[:] = found.measurements
            found = _beside_others(test, request, judged_by_counters(test, request, found, say))
            measured[:] = found.measurements
            calls = replayable_calls(test, request)
            measured[:] = keep_calls(calls, request, measured, say)
            changes = compare_with_past(test, request, measured, say, calls)
            compared = [each.new for each in changes if each.new is not None] or measured
            measured[:] = [explained_by_neighbours(item, test.neighbours) for item in compared]
        result = request.with_measurements(found.result, measured)
        if isinstance(result, Phases):
            test.phases[:] = test.search.shown_phases(test.phases, result)
        trace(test, request)
        enforce_all(test, request.settings, measured)
        enforce_missing(test, request.settings, request.device, changes)
        return result


@contextmanager
def keeping(test: CurrentTest, say: Say) -> Iterator[list[Measurement]]:
    """Give a list whose measurements are the test's, also where an error or an interrupt ends the call."""
    measured: list[Measurement] = []
    try:
        yield measured
    finally:
        measured[:] = map(worst_first, measured)
        test.keep(measured)
        say("")


@contextmanager
def answering(test: CurrentTest, title: str) -> Iterator[None]:
    """Note what fails the test: an error of ours, and a call that has not returned when the test ends."""
    if os.getpid() != test.pid:
        test.forked[0] = 1
        raise BadRequest(IN_A_FORK)
    test.open_calls.append(title)
    try:
        yield
    except (LimitBroken, WrongResult, MeasurementError) as error:
        test.failures.append(type(error)(str(error)))  # without what its frames hold
        raise
    finally:
        test.open_calls.remove(title)


def count_calls(test: CurrentTest, note: Callable[[tuple[int, str]], object], request: Request[T]) -> T:
    """Make the calls of a public call where ncu listens, and time none; return its result."""
    found, number = request.call_only(COUNTED), test.calls
    test.keep(found.measurements)
    if not why_uncounted(test, request):
        for label, call in request.calls.items():
            take_captures(call, request.device, request.settings.cache, lambda label=label: note((number, label)))  # type: ignore[misc]
    return found.result


def _measure(test: CurrentTest, request: Request[T], say: Say) -> CallResult[T]:
    with (
        one_at_a_time(request.title, test.nodeid),
        keeping_failed(test, request),
        refusing_exit(test.leaving, test.failures.append),
        watching_launches(),
    ):
        try:
            with naming_what_broke(test, request, say):
                return test.search.obtain(request, say)
        finally:
            test.warn(*request.remarks)


def _beside_others(test: CurrentTest, request: Request[T], found: CallResult[T]) -> CallResult[T]:
    """Return what a call measured; INVALID where other processes that computed on the GPU may have made it."""
    neighbours = test.computing()
    if neighbours is None or request.settings.disable:
        return found
    test.warn(neighbours)
    if request.settings.busy == "accept":
        return found
    measured = [beside(item, neighbours) for item in found.measurements]
    return CallResult(request.with_measurements(found.result, measured), measured)


def name_what_breaks(note: Callable[[str], object], request: Request[T]) -> T:
    """Note what the calls of a request show with margins; make them without, and time none."""
    note("")
    try:
        request.name_what_breaks(note)
    except WrongResult as error:
        note(str(error))
        raise
    return request.call_only("calls with margins are not timed").result


@contextmanager
def naming_what_broke(test: CurrentTest, request: Request[T], say: Say) -> Iterator[None]:
    """Raise WrongResult for a call that broke the GPU because it reads or writes beyond a tensor."""
    try:
        yield
    except (GpuBenchError, WrongResult):
        raise
    except Exception as error:
        find = test.find_what_broke if request.has_margins and isinstance(test.search, NoSearch) else None
        if find is None or not may_be_cuda_error(error) or context_error() is None:
            raise
        say(f"calling {request.title} with margins around its arguments, in a fresh process")
        if sentence := find():
            raise WrongResult(sentence) from error
        raise


@contextmanager
def keeping_failed(test: CurrentTest, request: Request[T]) -> Iterator[None]:
    """Keep what was measured before an error; an error that says that no number is right becomes an INVALID verdict."""
    try:
        yield
    except (MeasurementError, WrongResult) as error:
        verdict = Verdict(kind=VALIDITY, asked=str(test.limits), outcome=Outcome.INVALID, sentence=str(error))
        test.keep_failed(request.title, request.without_time(str(error), verdict))
        raise
    except Exception as error:
        test.keep_failed(request.title, measured_before(error))
        raise


def enforce_all(test: CurrentTest, settings: Settings, measured: Sequence[Measurement]) -> None:
    """Enforce the verdicts on all that a call measured, the worst first."""
    judged = sorted(((item, each) for item in measured for each in item.verdicts), key=lambda pair: severity(*pair))
    try:
        enforce(test, settings, test.search.told([verdict for _, verdict in judged], test.warnings))
    except (LimitBroken, InvalidResult) as error:
        test.search.note_failure(error, judged[0][0])
        raise


def enforce(test: CurrentTest, settings: Settings, verdicts: Sequence[Verdict]) -> None:
    """Raise LimitBroken for a broken limit; warn of an INCONCLUSIVE one, or raise for it too, as the settings say."""
    action = rule_for(Ending.INCONCLUSIVE, settings).action
    undecided = [each for each in verdicts if each.enforced and each.outcome is Outcome.INCONCLUSIVE]
    broken = [each for each in verdicts if each.fails_test] + undecided * (action == "fail")
    for worst in broken[:1]:
        kind = InvalidResult if worst.outcome is Outcome.INVALID else LimitBroken
        error = kind(safe_lines("\nalso: ".join("\n".join(each.lines) for each in broken)))
        error.page = "baselines" if worst.is_of_past else error.page
        raise error
    silent = [each for each in verdicts if each.enforced and each.outcome is Outcome.NOT_JUDGED]
    told = undecided * (action == "warn") + [each for each in silent if not each.is_of_past]  # by `enforce_missing`
    test.warn(*(each.sentence for each in told))


def trace(test: CurrentTest, request: Request[T]) -> None:
    """Write a trace of each measured call if the settings ask for it; warn where one cannot be taken."""
    settings = request.settings
    if not request.is_repeatable or settings.trace is None or not settings.takes_times:
        return
    example = test.search.example_text
    alike = [each.timing for each in test.measurements if each.example == example and each.timing.measured]
    for call in request.calls.values():
        number = sum(timing.label == call.label for timing in alike)
        path = settings.started_in / settings.trace / trace_name(test.nodeid, call.label, number, example)
        if number and path not in test.traces:
            test.traces.add(path)
            with suppress(OSError):
                path.unlink()  # of an earlier run
            take_trace(call, request.device, path, cache=settings.cache, warn=test.warnings.append)


def replayable_calls(test: CurrentTest, request: Request[T]) -> "ReplayableCalls | None":
    """Return the request's calls, to be kept or replayed; None where they are not to be."""
    settings = request.settings
    is_wanted = request.is_repeatable and settings.save_calls != "no" and test.search.has_baseline
    if not is_wanted or request.device.type != "cuda" or not settings.takes_times:
        return None
    from pytest_gpubench.replay.baselines import ReplayableCalls

    return ReplayableCalls(request.calls, request.device, settings)


def keep_calls(
    calls: "ReplayableCalls | None", request: Request[T], measured: Sequence[Measurement], say: Say
) -> Sequence[Measurement]:
    """Return measurements with their calls, where the run is saved; a reference is compared with no saved one."""
    if calls is None or not (request.settings.save or request.settings.autosave):
        return measured
    say(f"keeping {request.title}")
    with one_at_a_time(request.title):
        return [
            calls.with_call(each) if each.timing.measured and each.role != "reference" else each for each in measured
        ]


def compare_with_past(
    test: CurrentTest,
    request: Request[Any],
    measured: Sequence[Measurement],
    say: Say = lambda text: None,
    calls: "ReplayableCalls | None" = None,
) -> list[Change]:
    """Compare with a saved run, if there is one: with its calls, or over fresh processes while these may decide.

    Examples of @given are new in each run: not compared. Raises BadFile for a saved call that is damaged.
    """
    past = None if request.settings.disable else saved_run(test, request)
    if past is None:
        return []
    keys = test.keys.read_after(test.measurements, measured)
    changes = PastComparison(test, request, measured, keys, say).changes(past, calls)
    test.warn(*(note for each in changes for note in each.notes))
    return changes


@dataclass(frozen=True)
class PastComparison:
    """The measurements of a public call, compared with a saved test."""

    test: CurrentTest
    request: Request[Any]
    measured: Sequence[Measurement]
    keys: Sequence[MeasurementKey]
    say: Say

    def changes(self, past: BaselineLimit, calls: "ReplayableCalls | None") -> list[Change]:
        """Return the changes since a saved test, judged in the way that tells most."""
        past = self._with_replays(past, calls)
        found = self._compare(past, self.measured)
        if not any(each.fails_test for item in self.measured for each in item.verdicts):
            past, found = self._with_fresh_processes(past, found)
        failed = [each for each in found if each.outcome is Outcome.FAIL and each.old is not None]
        lacks = any(each.new is not None and not each.new.timing.counts for each in failed)
        has_explanation = any(each.old.timing.counts for each in failed if each.old)
        if self.request.settings.counters == "on-fail" and lacks and has_explanation:
            names = self.test.counters | COUNTER_BY_NAME.keys()
            return self._compare(past, with_counts(self.test, self.request, self.measured, names, self.say))
        return found

    def _compare(self, past: BaselineLimit, measured: Sequence[Measurement]) -> list[Change]:
        settings = self.request.settings
        enforced = is_enforced(settings, self.request.device)
        return compare_with_baseline(past, self.keys, measured, settings.alpha, enforced, settings.throttled)

    def _with_replays(self, past: BaselineLimit, calls: "ReplayableCalls | None") -> BaselineLimit:
        """Return the saved test with what replays of its calls say, where its tolerance is one that they answer for."""
        tolerance, found = past.tolerance, past.found
        if calls is None or tolerance is None or not is_replayed_for(tolerance) or isinstance(found, Missing):
            return past
        replays = {}
        with one_at_a_time(self.request.title):
            for key, item in zip(self.keys, self.measured, strict=True):
                old = found.counterpart(item, key)
                if item.timing.measured and item.role != "reference" and not isinstance(old, Missing):
                    self.say(f"replaying {item.timing.label}")
                    replays[key] = calls.replay(item, old, tolerance, plan_of(self.request.settings), self.say)
        return replace(past, replays=replays)

    def _with_fresh_processes(self, past: BaselineLimit, first: list[Change]) -> tuple[BaselineLimit, list[Change]]:
        """Return the changes over as many fresh processes as decide them, or as can be had, and their limit."""
        fresh, changes = self._counted_again if past.is_on_counter else self.test.fresh, first
        if fresh is None or not is_enforced(self.request.settings, self.request.device):
            return past, changes
        for number in itertools.count(1):
            wanted = max((each.further for each in changes), default=0)
            if not wanted:
                break
            self.say(f"measuring again in a fresh process, {wanted} more at most")
            further = past.with_session(fresh(number), self.keys)
            if isinstance(further, str):
                self.test.warn(f"not measured again in a fresh process: {further}")
                break
            past, changes = further, self._compare(further, self.measured)
        doubtful = [change for outcome in DOUBTFUL for change in first if change.outcome is outcome]
        if doubtful and not any(each.outcome in DOUBTFUL for each in changes):
            self.test.warn(f"PASS in a fresh process, after another outcome in the first: {doubtful[0].sentence}")
        return past, changes

    def _counted_again(self, number: int) -> TestRecord | str:
        """Return the test with the counters of another process, or why there is none; number: of the process."""
        test = self.test
        again = with_counts(test, self.request, self.measured, test.counters, self.say, again=True)
        why = next((each.timing.counts.untaken for each in again if each.timing.counts), "")
        measurements = (*test.measurements, *again)
        return why or TestRecord(nodeid=test.nodeid, device=self.request.device.facts, measurements=measurements)


def is_replayed_for(tolerance: RegressionTolerance | None) -> bool:
    """Tell whether replays answer for a tolerance: a share, of a metric of the typical time."""
    return tolerance is not None and tolerance.margin is not None and tolerance.metric in REPLAYED_METRICS


def saved_run(test: CurrentTest, request: Request[T]) -> BaselineLimit | None:
    """Return the saved test to compare with; None, with a warning if one was asked for, where there is none."""
    if not test.search.has_baseline:
        test.warn(*test.why_uncompared)
        return None
    past = test.past(request.device.facts)
    if past is not None and not request.has_baseline:
        test.warn(f"{request.title} was not compared with the saved run: ranks are not")
        return None
    return past


def enforce_missing(test: CurrentTest, settings: Settings, device: Device, changes: Sequence[Change]) -> None:
    """Raise NoBaseline or warn, as the settings say, where a saved run has nothing to compare with."""
    enforced = is_enforced(settings, device)
    if not enforced and not any(each.new and each.new.timing.measured for each in changes):
        return
    for missing in (each.missing for each in changes if each.missing):
        rule = rule_for(MISSING.get(missing.kind, Ending.NO_TEST), settings)
        if rule.action == "warn":
            test.warn(missing.sentence)
        elif rule.action == "fail" and enforced:
            raise NoBaseline(f"{safe_lines(missing.sentence)} ({rule.remedy})")
        elif rule.action == "fail":
            test.warn(f"{missing.sentence} (this is not enforced on a CPU that nobody asked for)")
