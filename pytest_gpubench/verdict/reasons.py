"""Reasons: what differs between a measurement and the one that it is compared with; evidence, and no verdict.

A cause has the share of the time that grew along with it, and the largest share is told first: of a kernel that changed
or was added by how much longer it takes, of a lower clock the cycles that are missing, of more bytes those. What is no
part of a time has none. Where versions changed, that is told last. What has less than a hundredth of the time, or than
half of what the call lost where that is less, is no cause, and neither is a time that grew while nothing else changed.
A counter has causes in the kernels and the work of a call alone.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from pytest_gpubench.counters import is_counter
from pytest_gpubench.results.counterpart import FactChange, changes_text
from pytest_gpubench.results.kernels import distinct_names
from pytest_gpubench.results.model import Counts, Measurement, Outcome, Timing, Verdict
from pytest_gpubench.results.observed import Observed
from pytest_gpubench.stats.summary import rel_std
from pytest_gpubench.units import first_few, format_bytes, format_share, round_to_digits
from pytest_gpubench.verdict.kernel_reasons import MOST_KERNELS, Cause, is_against_reference, kernel_causes, step, times
from pytest_gpubench.verdict.limits import BY_NAME, limit_of
from pytest_gpubench.verdict.limits.counters import number_text, says_nothing
from pytest_gpubench.verdict.limits.time import MaxRelStd
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.replays import REPLAYED

WITH_REASONS = (Outcome.FAIL, Outcome.INVALID)
MOST_REASONS = 3
LOWER_CLOCK = 0.03
"""The least part by which a clock is lower: the same call varies by less from run to run."""
FASTER_REFERENCE = 0.05
"""The least part by which a reference is faster than in an older run."""
MORE_HOST_TIME = 1.5
"""The least factor between the host's times for launching a call."""
WORTH_TELLING = 0.01
"""The least share of the time of what is told of a call that is much slower."""
MORE_COUNTED = 1.05
"""The least factor by which a call that is slower counts more of something, to be told."""
COUNTER_WORDS = {
    "dram_read_bytes": "reads {}the bytes from memory",
    "local_loads": "makes {}the loads from local memory",
    "atomics": "makes {}the atomic operations",
    "load_sectors": "touches {}the sectors by its loads",
    "loads": "makes {}the loads from memory",
    "stores": "makes {}the stores to memory",
    "divergent_branches": "takes {}the branches that part a warp",
    "instructions": "executes {}the instructions",
}
"""Sentences on counters of a slower call that grew, the most telling first."""


def explained(
    item: Measurement,
    old: Measurement | None = None,
    reference: Measurement | None = None,
    versions: Sequence[FactChange] = (),
) -> Measurement:
    """Return a measurement whose FAIL and INVALID verdicts on its speed have their reasons.

    old: the same in a saved run. reference: what it is a candidate against. None where there is none.
    """
    verdicts = list[Verdict]()
    for each in item.verdicts:
        limit, metric, found = BY_NAME.get(each.kind), _metric_of(each, item), each.reasons
        if each.outcome in WITH_REASONS and not found:
            if limit is MaxRelStd:
                found = _of_unsteady_reps(item.timing)
            elif limit is not None and "reference" in limit.needed:
                found = () if reference is None else reasons(reference, item)
            elif old is not None and (_is_on_speed(each) or is_counter(metric)):
                found = reasons(old, item, versions, metric)
        verdicts.append(msgspec.structs.replace(each, reasons=found))
    return msgspec.structs.replace(item, verdicts=tuple(verdicts)) if tuple(verdicts) != item.verdicts else item


def explained_by_references(measured: Sequence[Measurement]) -> list[Measurement]:
    """Return measurements; candidates, which follow their reference, have the reasons why they are slower than it."""
    reference, found = None, []
    for item in measured:
        reference = item if item.role == "reference" else reference
        found.append(explained(item, reference=reference))
    return found


def explained_by_neighbours(item: Measurement, neighbours: Sequence[str]) -> Measurement:
    """Return a measurement whose FAIL verdicts on its speed have the other processes on the GPU, a sentence each.

    Of one that was taken while they computed, the verdicts say so themselves.
    """
    verdicts = tuple(
        msgspec.structs.replace(each, reasons=(*each.reasons, *neighbours)[:MOST_REASONS])
        if each.outcome in WITH_REASONS and _is_on_speed(each) and not is_counter(_metric_of(each, item))
        else each
        for each in item.verdicts
    )
    return msgspec.structs.replace(item, verdicts=verdicts) if neighbours and not item.timing.neighbours else item


def explained_change(change: Change, versions: Sequence[FactChange]) -> Change:
    """Return a change; a FAIL and an INVALID one have their reasons."""
    if change.outcome not in WITH_REASONS or change.old is None or change.new is None:
        return change
    metric = "median" if change.estimate is None else change.estimate.metric
    return replace(change, reasons=reasons(change.old, change.new, versions, metric))


def _of_unsteady_reps(timing: Timing) -> tuple[str, ...]:
    """Return the clock where reps differ by half as much, or less, in cycles as in time."""
    clocks = timing.sm_clock_mhz
    if not timing.cycles:
        return ()
    in_cycles = rel_std(timing.cycles)
    throttled = f", throttled ({', '.join(timing.throttle_reasons)})" if timing.throttle_reasons else ""
    span = f"SM clock {min(clocks):.0f} to {max(clocks):.0f} MHz between reps{throttled}"
    is_clock = in_cycles <= timing.rel_std / 2
    return (f"{span}, whose cycles differ by {format_share(in_cycles)}",) if is_clock else ()


def _metric_of(verdict: Verdict, item: Measurement) -> str:
    """Return the metric that is worse."""
    if (limit := limit_of(verdict)) and limit.counters:
        return limit.counters[0]
    return item.change.metric if verdict.is_of_past and item.change is not None else "median"


def _is_on_speed(verdict: Verdict) -> bool:
    limit = BY_NAME.get(verdict.kind)
    return verdict.is_of_past or (limit is not None and limit.is_on_speed)


def reasons(
    old: Measurement, new: Measurement, versions: Sequence[FactChange] = (), metric: str = "median"
) -> tuple[str, ...]:
    """Return at most three sentences on what differs, `old -> new`, the most telling first; empty where nothing does.

    old: the reference of a candidate, or the same measurement in an older run. metric: the statistic that is worse.
    """
    if not old.timing.measured or not new.timing.measured:
        return ()
    least = -math.inf  # what counts more has no part of the time
    if not is_counter(metric):
        lost = 1 - old.timing.median_us / new.timing.median_us
        least = min(WORTH_TELLING, lost / 2) if lost > 0 else WORTH_TELLING
    found = [*kernel_causes(old, new, least), *_work_causes(old, new, least, metric)]
    if not is_counter(metric):
        found += [*_call_causes(old, new, least), *_host_causes(old, new)]
    if metric != REPLAYED and not is_counter(metric):  # else both ran now, or no clock matters
        found += [*_clock_causes(old, new, explains=metric != "speedup", alone=not found and not versions)]
    told = [each.sentence for each in sorted(found, key=lambda each: -each.share)]
    changed = changes_text(versions)
    return (*told[: MOST_REASONS - bool(changed)], *([changed] if changed else []))


def _work_causes(before: Measurement, after: Measurement, least: float, metric: str) -> Iterator[Cause]:
    """Yield more bytes and operations, more that ncu counts, and of a speedup less time of its reference."""
    was, now = before.timing, after.timing
    if was.moved_bytes and now.moved_bytes and (share := 1 - was.moved_bytes / now.moved_bytes) > max(least, 0):
        yield Cause(share, f"moves at least {step(was.moved_bytes, now.moved_bytes, format_bytes)}")
    if was.flops and now.flops and (share := 1 - was.flops / now.flops) > max(least, 0):
        yield Cause(share, f"computes {was.flops:.4g} -> {now.flops:.4g} operations")
    yield from _counted_more(was.counts, now.counts)
    if metric == "speedup" and before.speedup and after.speedup:
        was_us, now_us = before.speedup.reference_us, after.speedup.reference_us
        if (share := 1 - now_us / was_us) >= FASTER_REFERENCE:
            yield Cause(share, f"its reference {after.speedup.reference} is faster: {times(was_us, now_us)}")


def _counted_more(old: Counts | None, new: Counts | None) -> Iterator[Cause]:
    """Yield what a slower call counts more than the older one, each with its share of the time: of bytes those added.

    Nothing of which one capture is no more than another of the older one's.
    """
    for name, words in COUNTER_WORDS.items():
        if old is None or new is None or not all(name in each.captures for each in (old, new)):
            continue
        most, least, was, now = max(old.captures[name]), min(new.captures[name]), old.median(name), new.median(name)
        if least > MORE_COUNTED * most and not says_nothing(new, name):
            times = f"{round_to_digits(now / was, 2)}x " if was else ""
            share = 1 - was / now if name == "dram_read_bytes" else 0.0
            yield Cause(share, f"{words.format(times)}: {number_text(name, was)} -> {number_text(name, now)}")


def _call_causes(old: Measurement, new: Measurement, least: float) -> Iterator[Cause]:
    """Yield what a call does more beside its kernels' work, which is a part of times that are no sum of kernels."""
    was, now = old.observed, new.observed
    if was is None or now is None:
        return
    share = 0.0 if new.timing.kernels else 1 - old.timing.median_us / new.timing.median_us
    if not new.timing.kernels and share < least:
        return
    yield from (Cause(share, sentence) for sentence in _call_words(was, now, has_kernels=bool(new.timing.kernels)))


def _call_words(was: Observed, now: Observed, has_kernels: bool) -> Iterator[str]:
    if now.compilations > was.compilations:
        yield f"compiles {step(was.compilations, now.compilations)} kernels or graphs in each call"
    if now.waits_number > was.waits_number:
        where = f": {now.waits[0]}" if now.waits else ""
        yield f"the host waits for the GPU {step(was.waits_number, now.waits_number)} times in a call{where}"
    before, after = (sum(each.driver_allocations.values()) for each in (was, now))
    if after > before and not has_kernels:
        calls = ", ".join(now.driver_allocations)
        yield f"takes GPU memory from the driver, or gives it back, {step(before, after)} times in a call ({calls})"
    launched, launches = sum(was.kernels.values()), sum(now.kernels.values())
    if not has_kernels and launches > launched:
        names = distinct_names([*now.kernels, *was.kernels])
        more = [names[name] for name, number in now.kernels.items() if number > was.kernels.get(name, 0)]
        yield f"launches {step(launched, launches)} kernels and copies, more of {first_few(more, MOST_KERNELS)}"
    if was.memory and now.memory and was.memory.peak_bytes < now.memory.peak_bytes:
        yield f"allocates {step(was.memory.peak_bytes, now.memory.peak_bytes, format_bytes)} of GPU memory"


def _host_causes(old: Measurement, new: Measurement) -> Iterator[Cause]:
    """Yield what changed of launching a call: a share only of times that it is part of."""
    was, now = old.overhead, new.overhead
    if was is None or now is None or was.host_us is None:
        return
    if now.host_us is None:
        yield Cause(0.0, "the host waits for the GPU within the call: no -> yes")
    elif now.host_us >= MORE_HOST_TIME * was.host_us:
        share = (now.host_us - was.host_us) / new.timing.median_us if new.timing.timer in ("wall", "events") else 0.0
        yield Cause(min(share, 1.0), f"launching it takes the host {times(was.host_us, now.host_us)}")


def has_resources(item: Measurement) -> bool:
    """Tell whether it is known what each kernel takes of the GPU."""
    kernels = [kernel for kernel in item.timing.kernels if kernel.kind == "kernel"]
    return bool(kernels) and all(kernel.resources for kernel in kernels)


def _clock_causes(old: Measurement, new: Measurement, explains: bool, alone: bool) -> Iterator[Cause]:
    """Yield lower clocks and new throttling.

    explains: False where both arms had the clock. alone: True where nothing else is known to differ.
    """
    one, other = old.timing, new.timing
    slower, clocks = other.median_us / one.median_us, dict[str, tuple[float, float]]()
    if one.median_sm_clock_mhz and other.median_sm_clock_mhz:
        clocks["SM clock"] = one.median_sm_clock_mhz, other.median_sm_clock_mhz
    if one.memory_clock_mhz and other.memory_clock_mhz:
        clocks["memory clock"] = statistics.median(one.memory_clock_mhz), statistics.median(other.memory_clock_mhz)
    lower = {name: (was, now) for name, (was, now) in clocks.items() if now < was * (1 - LOWER_CLOCK)}
    throttled = sorted({*other.throttle_reasons} - {*one.throttle_reasons})
    words = [f"{name} {was:.0f} -> {now:.0f} MHz" for name, (was, now) in lower.items()]
    words += [f"throttled ({', '.join(throttled)})"] if throttled else []
    share, not_code = 0.0, ""
    if lower and explains:
        share = max(1 - now / was for was, now in lower.values()) if slower > 1 else 0.0
        is_all = any(abs(slower * now / was - 1) <= LOWER_CLOCK for was, now in lower.values())
        is_known = has_resources(old) and has_resources(new) and not is_against_reference(old, new)
        not_code = ": not the code" if is_all and alone and is_known else ""
    if words:
        yield Cause(share, ", ".join(words) + not_code)
