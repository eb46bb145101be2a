"""The counters of a public call, which a process that ncu watches has taken, judged in the one that timed the call."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as replaced

from pytest_gpubench.bench.plan import is_enforced
from pytest_gpubench.bench.request import CallResult, Request, Say, T
from pytest_gpubench.counters import COUNTER_BY_NAME, COUNTERS, counter_named
from pytest_gpubench.errors import first_and_last_line
from pytest_gpubench.results.model import Counts, Kernel, Measurement
from pytest_gpubench.running_test import CurrentTest, NoSearch
from pytest_gpubench.structure.ncu import Capture, CountedKernel, NotCounted
from pytest_gpubench.timing.measurement import demangled
from pytest_gpubench.timing.windows import describe_difference
from pytest_gpubench.verdict.limits.base import Seen
from pytest_gpubench.verdict.reasons import explained_by_references


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
        judged.append(replaced(item, verdicts=(*(replaced(each, reasons=()) for each in item.verdicts), *verdicts)))
    explained = explained_by_references(judged)
    return replace(found, result=request.with_measurements(found.result, explained), measurements=explained)


def with_counts(
    test: CurrentTest,
    request: Request[Any],
    measured: Sequence[Measurement],
    names: Collection[str],
    say: Say,
    again: bool = False,
) -> list[Measurement]:
    """Return measurements with their counters, or with why there are none; again: those of another process."""
    why, found = why_uncounted(test, request), [Counts() for _ in measured]
    if not why and names:
        say(f"taking the counters of {request.title} under ncu, in a fresh process")
        assert test.captures is not None
        try:
            for group in groups_of(names):
                taken = test.captures(group, again)
                counts = (
                    counts_of(taken.get((test.calls, item.timing.label), ()), group, item.timing.kernels)
                    for item in measured
                )
                found = [_together(one, other) for one, other in zip(found, counts, strict=True)]
        except NotCounted as error:
            why = first_and_last_line(error)
    cache_bytes = request.device.facts.cache_bytes or 0
    known = [Counts(untaken=why) if why else replaced(counts, cache_bytes=cache_bytes) for counts in found]
    return [
        replaced(item, timing=replaced(item.timing, counts=counts))
        for item, counts in zip(measured, known, strict=True)
    ]


def counts_of(captures: Sequence[Capture], names: Iterable[str], kernels: Iterable[Kernel]) -> Counts:
    """Return the counters of a call from its captures.

    Those that ncu does not know on this GPU are left out. kernels: those that were timed, which have to be the same;
    none where the timer sees none.
    """
    if not captures:
        return Counts(untaken="it was not called in the process that ncu watched")
    if wrong := _other_kernels(captures, kernels):
        return Counts(wrong=wrong)
    taken: dict[str, tuple[float, ...]] = {}
    for name in names:
        if not all(_has(launch, name) for capture in captures for launch in capture):
            continue
        taken[name] = tuple(sum(_value_of(launch, name) for launch in capture) for capture in captures)
        if not all(map(math.isfinite, taken[name])):
            return Counts(wrong=f"ncu gives no number for {name} of one of its kernels")
    return Counts(captures=taken)


def _other_kernels(captures: Sequence[Capture], kernels: Iterable[Kernel]) -> str:
    """Return in words in what the kernels of captures are not those that were timed; empty where they are."""
    seen = [Counter(demangled(launch.name) for launch in capture) for capture in captures]
    timed = Counter({each.name: each.launches for each in kernels if each.kind == "kernel"}) or seen[0]
    for each in seen:
        if each != timed:
            differences = describe_difference(timed, each, ("when timed", "under ncu"))
            return f"under ncu it launches other kernels: {differences}"
    return "" if seen[0] else "ncu saw no kernel of it"


def _has(launch: CountedKernel, name: str) -> bool:
    """Tell whether ncu knows a counter on this GPU."""
    return all(any(raw in launch.metrics for raw in known) for known in counter_named(name).raw)


def _value_of(launch: CountedKernel, name: str) -> float:
    """Return a counter of a kernel; nan where ncu gives no number."""
    known = (next(raw for raw in each if raw in launch.metrics) for each in counter_named(name).raw)
    try:
        return sum(float(launch.metrics[raw].replace(",", "")) for raw in known)
    except ValueError:
        return math.nan


def _together(one: Counts, other: Counts) -> Counts:
    """Return the counters of two processes."""
    return Counts(
        captures=one.captures | other.captures, untaken=one.untaken or other.untaken, wrong=one.wrong or other.wrong
    )


def why_uncounted(test: CurrentTest, request: Request[Any]) -> str:
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


def groups_of(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the groups of counters that have to be taken for these, each of one process; raise ValueError."""
    asked = {name: counter_named(name).group for name in sorted(names)}
    together = [tuple(each.name for each in COUNTERS if each.group == group) for group in ("one pass", "several")]
    return [each for each in together if asked.keys() & set(each)] + [
        (name,) for name, group in asked.items() if group == "alone"
    ]
