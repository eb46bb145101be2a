"""The counters of a public call: taken in a process that ncu watches, and judged in the one that timed the call."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as replaced

from pytest_gpubench.bench.plan import is_enforced
from pytest_gpubench.bench.request import CallResult, Request, Say, T
from pytest_gpubench.counters import COUNTER_BY_NAME, groups_of
from pytest_gpubench.errors import first_and_last_line
from pytest_gpubench.results.model import Counts, Measurement, Outcome, TestRecord, Verdict
from pytest_gpubench.running_test import CurrentTest, NoSearch
from pytest_gpubench.settings import Settings
from pytest_gpubench.settings.parsers import COUNTER_WISHES
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.structure.counters import take_captures
from pytest_gpubench.structure.ncu import Capture, NotCounted, counts_of
from pytest_gpubench.verdict.limits import Limits
from pytest_gpubench.verdict.limits.base import Seen
from pytest_gpubench.verdict.reasons import explained_by_references
from pytest_gpubench.verdict.regression import Change

COUNTED = "its counters are taken, and a process under ncu measures no times"


def count_calls(test: CurrentTest, request: Request[T]) -> T:
    """Make the calls of a public call where ncu listens, and time none; return its result."""
    assert test.note_capture is not None
    note, number = test.note_capture, test.calls
    found = request.call_only(COUNTED)
    test.keep(found.measurements)
    if not _why_uncounted(test, request):
        for label, call in request.calls.items():
            take_captures(call, request.device, request.settings.cache, lambda label=label: note((number, label)))  # type: ignore[misc]
    return found.result


def counters_asked(settings: Settings, limits: Limits, option: str | None) -> frozenset[str]:
    """Return the counters that are taken of a test, whatever it measures; option: --gpu-bench-compare-fail."""
    wish = settings.counters
    if wish == "no" or settings.disable:
        return frozenset()
    named = (
        COUNTER_BY_NAME.keys() if wish == "all" else () if wish in COUNTER_WISHES else map(str.strip, wish.split(","))
    )
    tolerance = parse_tolerance(option) if option is not None and limits.max_regression is None else None
    of_option = {tolerance.metric} if tolerance is not None and tolerance.is_on_counter else set()
    wanted = frozenset(name for limit in limits for name in limit.counters)
    return wanted | of_option | frozenset(named)


def judged_by_counters(test: CurrentTest, request: Request[T], found: CallResult[T], say: Say) -> CallResult[T]:
    """Return what a call measured with its counters, and with the verdicts of the limits on them."""
    settings, names = request.settings, test.counters
    is_failed = any(each.fails_test for item in found.measurements for each in item.verdicts)
    if settings.counters == "on-fail" and is_failed:
        names = names | COUNTER_BY_NAME.keys()
    has_limits = any(limit.counters and limit.stage == "counters" for limit in request.limits)
    if settings.disable or not (names or has_limits):
        return found
    measured = with_counts(test, request, found.measurements, names, say)
    enforced = is_enforced(settings, request.device)
    judged = []
    for item in measured:
        is_judged = item.role != "reference"
        verdicts = request.limits.judge("counters", Seen(item.timing), enforced) if is_judged else ()
        judged.append(replaced(item, verdicts=(*map(_without_reasons, item.verdicts), *verdicts)))
    explained = explained_by_references(judged)
    return replace(found, result=request.with_measurements(found.result, explained), measurements=explained)


def counts_failed(settings: Settings, changes: Sequence[Change]) -> bool:
    """Tell whether counters are to be taken because a change fails that a saved run with counters may explain."""
    failed = [each for each in changes if each.outcome is Outcome.FAIL and each.old is not None]
    lacks = any(each.new is not None and not each.new.timing.counts for each in failed)
    return settings.counters == "on-fail" and lacks and any(each.old.timing.counts for each in failed if each.old)


def _without_reasons(verdict: Verdict) -> Verdict:
    return replaced(verdict, reasons=())


def with_counts(
    test: CurrentTest,
    request: Request[Any],
    measured: Sequence[Measurement],
    names: Collection[str],
    say: Say,
    again: bool = False,
) -> list[Measurement]:
    """Return measurements with their counters, or with why there are none; again: those of another process."""
    why, found = _why_uncounted(test, request), [Counts() for _ in measured]
    if not why and names:
        say(f"taking the counters of {request.title} under ncu, in a fresh process")
        try:
            for group in groups_of(names):
                taken = _captures(test, group, again)
                counts = (
                    counts_of(taken.get((test.calls, item.timing.label), ()), group, item.timing.kernels)
                    for item in measured
                )
                found = [_together(one, other) for one, other in zip(found, counts, strict=True)]
        except NotCounted as error:
            why = first_and_last_line(error)
    cache_bytes = request.device.facts.cache_bytes or 0
    return [
        _with_counts(item, Counts(untaken=why) if why else replaced(counts, cache_bytes=cache_bytes))
        for item, counts in zip(measured, found, strict=True)
    ]


def _captures(test: CurrentTest, group: tuple[str, ...], again: bool) -> Mapping[tuple[int, str], Sequence[Capture]]:
    assert test.captures is not None
    return test.captures(group, again)


def _with_counts(item: Measurement, counts: Counts) -> Measurement:
    return replaced(item, timing=replaced(item.timing, counts=counts))


def _together(one: Counts, other: Counts) -> Counts:
    """Return the counters of two processes."""
    return Counts(
        captures=one.captures | other.captures, untaken=one.untaken or other.untaken, wrong=one.wrong or other.wrong
    )


def counted_again(
    test: CurrentTest, request: Request[Any], measured: Sequence[Measurement], say: Say, number: int
) -> TestRecord | str:
    """Return the test with the counters of another process, or why there is none; number: of this process."""
    again = with_counts(test, request, measured, test.counters, say, again=True)
    why = next((each.timing.counts.untaken for each in again if each.timing.counts), "")
    return why or TestRecord(nodeid=test.nodeid, device=request.device.facts, measurements=(*test.measurements, *again))


def _why_uncounted(test: CurrentTest, request: Request[Any]) -> str:
    """Return why a call has no counters; empty where it may have some."""
    if request.settings.counters == "no" and test.note_capture is None:
        return "--gpu-bench-counters=no takes no counters"
    if request.device.type != "cuda":
        return "counters are taken on a GPU, by ncu"
    if request.settings.timer == "scripted":
        return "the scripted timer calls nothing that could be counted"
    if not isinstance(test.search, NoSearch):
        return "the examples of @given are drawn anew in every process"
    if not request.is_repeatable:
        return "counters are taken of measure, compare and compare_recorded"
    return "" if test.captures is not None or test.note_capture is not None else "counters are taken in runs of pytest"
