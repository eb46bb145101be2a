"""One measurement from warm-up to `Timing`."""

import itertools
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.nvml import reason_names
from pytest_gpubench.gpu.readings import NO_READING
from pytest_gpubench.results.model import Kernel, Stretch, Timing
from pytest_gpubench.settings.cache import Cache
from pytest_gpubench.stats.modes import modes_text
from pytest_gpubench.stats.stopping import LEAST_REPS, Budget, is_precise, is_tick_limited, next_batch
from pytest_gpubench.timing.base import PROBE_REPS, Call, Rep, Timer
from pytest_gpubench.timing.regions import forget_regions, take_regions
from pytest_gpubench.timing.rounds import Instrument, Sample, add_reps
from pytest_gpubench.timing.warmup import Warmth, warm_up
from pytest_gpubench.timing.windows import busy_ns, kernel_list, span_ns
from pytest_gpubench.verdict.throttling import HELD_UP

IMPRECISE = 2.0
"""A median is called imprecise from so many times the width on that `precision` asks for."""
OVERLAP = 1.005
"""The sum of the records over their union from which on kernels are said to overlap."""

IDLE_GAP_US = 50.0
"""The mean gap between two kernels from which on the GPU waits for more than a launch, which takes the host 5 to 10."""


@dataclass(frozen=True)
class Plan:
    """The plan of a measurement; None as in the options of the same names."""

    cache: Cache
    reps: int | None
    warmup: int | None
    precision: float
    max_time_s: float
    precision_time_s: float = math.inf
    """The time after which precision alone is worth no more reps."""
    held_up_time_s: float = 0.0
    """The time instead of `max_time_s`, where it is longer, for calls that are held up by others."""


def measure_call(
    call: Call, timer: Timer, device: Device, plan: Plan, decided: Callable[[Timing], bool], say: Callable[[str], None]
) -> Timing:
    """Return the timing of a call; raise MeasurementError rather than a number that is not known to be right.

    decided: told the times so far, whether they settle what the caller wants to know; more are taken while not.
    say: told what goes on, for a progress line.
    """
    started_s = time.perf_counter()
    forget_regions()
    instrument = Instrument.on(device, timer)
    warmth = warm_up(instrument, device, {call.label: call}, plan.warmup, say)[call.label]
    say(f"{call.label}: measuring")
    budget = Budget(
        plan.reps,
        plan.precision,
        plan.max_time_s,
        warmth.rep_cost_s,
        precision_time_s=plan.precision_time_s,
        held_up_time_s=plan.held_up_time_s,
    )

    sample = take_sample(
        instrument,
        call,
        budget,
        lambda sample: decided(samples_of(call, timer, device, plan, sample)),
        warmth.sample if plan.reps is None else Sample(),
    )
    idle_s = instrument.pacing.idle_s(sample.reps)
    timer.cross_check(call, sample.reps, idle_s)
    regions = take_regions(timer, device, call, idle_s, sample)
    timing = summarise(call, timer, device, plan, warmth, sample, time.perf_counter() - started_s)
    return msgspec.structs.replace(timing, regions=regions)


def take_sample(
    instrument: Instrument, call: Call, budget: Budget, decided: Callable[[Sample], bool], sample: Sample
) -> Sample:
    """Add reps to a sample until the budget says that it is enough and `decided` agrees, or the budget is spent."""
    timer, least = instrument.timer, budget.reps or LEAST_REPS  # a look at fewer would spend alpha on nothing
    while wanted := next_batch(budget, sample.samples_us, len(sample.reps) < least or decided(sample)):
        if not sample.reps and timer.settles:
            wanted = min(wanted, PROBE_REPS)  # they show whether the others have to be paced
        wanted, started_s = min(wanted, timer.max_reps), timer.clock_s()
        add_reps(instrument, call, wanted, instrument.pacing.idle_s(sample.reps), sample, budget.left_s)
        budget.spend(timer.clock_s() - started_s, wanted)
    return sample


def samples_of(call: Call, timer: Timer, device: Device, plan: Plan, sample: Sample) -> Timing:
    """Return the sample's times alone, for a look at them: what the kernels took is summed up once, at the end."""
    return Timing(
        label=call.label,
        timer=timer.name,
        cache=str(plan.cache),
        device=device.facts.name,
        samples_us=sample.samples_us,
    )


def summarise(
    call: Call, timer: Timer, device: Device, plan: Plan, warmth: Warmth, sample: Sample, elapsed_s: float
) -> Timing:
    """Return the sample as a timing."""
    reps = sample.reps
    records_seen = timer.sees_kernels
    clocks = tuple(rep.sm_clock_mhz for rep in reps if rep.sm_clock_mhz is not None)
    timing = msgspec.structs.replace(
        samples_of(call, timer, device, plan, sample),
        busy_us=tuple(busy_ns(rep.records) / 1e3 for rep in reps) if records_seen else (),
        span_us=tuple(span_ns(rep.records) / 1e3 for rep in reps) if records_seen else (),
        sm_clock_mhz=clocks if len(clocks) == len(reps) else (),
        stretches=tuple(summarise_readings(reps)),
        throttle_reasons=reason_names(sample.throttle_mask),
        kernels=tuple(summarise_kernels(reps)),
        discarded=sample.discarded,
        remeasured=sample.remeasured,
        warmup_calls=warmth.calls,
        elapsed_s=elapsed_s,
    )
    of_reps = Counter(flag for rep in reps for flag in rep.flags)
    if 2 * of_reps[HELD_UP] <= len(reps):  # the median is that of calls that were not
        del of_reps[HELD_UP]
    flags = (*flags_of(timing, plan, warmth), *call.flags(), *of_reps)
    return msgspec.structs.replace(timing, flags=flags, remark=timer.remarks.get(call.label, ""))


def flags_of(timing: Timing, plan: Plan, warmth: Warmth) -> list[str]:
    """Return the flags of a timing: throttled, unsettled, overlap, idle, imprecise, tick, its modes."""
    flags = []
    if timing.throttle_reasons:
        flags.append("throttled")
    if not warmth.settled:
        flags.append("unsettled")
    if timing.busy_us and sum(timing.samples_us) > OVERLAP * sum(timing.busy_us):
        flags.append("overlap")
    busy_us, span_us = timing.median_busy_us or 0.0, timing.median_span_us or 0.0
    # the GPU waits for most of the call, and for longer than the next launches take: the host works
    if span_us > 2 * busy_us and span_us - busy_us > IDLE_GAP_US * max(1, timing.launches - 1):
        flags.append("idle")
    if plan.reps is None and not is_precise(timing.samples_us, IMPRECISE * plan.precision):
        flags.append("imprecise")
    elif plan.reps is None and is_tick_limited(timing.samples_us):
        interval = timing.median_interval_us
        if interval and interval.width > plan.precision * timing.median_us:
            flags.append("tick")
    if modes := modes_text(timing.samples_us):
        flags.append(modes)
    return flags


def summarise_readings(reps: Sequence[Rep]) -> Iterator[Stretch]:
    """Yield the readings, one for all reps in a row with the same values; nothing if nothing was read."""
    if all(rep.reading == NO_READING for rep in reps):
        return
    for reading, members in itertools.groupby(rep.reading for rep in reps):
        yield Stretch(
            reps=sum(1 for _ in members),
            memory_clock_mhz=reading.memory_clock_mhz,
            temperature_c=reading.temperature_c,
            power_w=reading.power_w,
            throttle_mask=reading.throttle_mask,
        )


def summarise_kernels(reps: Sequence[Rep]) -> list[Kernel]:
    """Return the time of each kernel of a call, in the order in which they first start."""
    if not reps:
        return []
    kinds = {record.name: record.kind for record in reps[0].records}
    launches = kernel_list(reps[0].records)
    totals_ns = [Counter[str]() for _ in reps]
    for total_ns, rep in zip(totals_ns, reps, strict=True):
        for record in rep.records:
            total_ns[record.name] += record.duration_ns
    return [
        Kernel(
            name=demangled(name),
            kind=kind,
            launches=launches[name],
            median_us=statistics.median(total[name] for total in totals_ns) / 1e3,
            mean_us=statistics.fmean(total[name] for total in totals_ns) / 1e3,
        )
        for name, kind in kinds.items()
    ]


def demangled(name: str) -> str:
    """Return a kernel's name as C++ code has it: the profiler leaves very long ones mangled."""
    if not name.startswith("_Z"):
        return name
    import torch

    demangle = getattr(torch._C, "_demangle", None)  # not public
    return name if demangle is None else str(demangle(name))
