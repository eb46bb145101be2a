"""Reps that all ranks keep or take again together: what one of them cannot use is of no use to any."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pytest_gpubench.errors import MeasurementError
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.stats.stopping import Budget, next_batch
from pytest_gpubench.timing.base import Call, Rep
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.ranks.fellows import Fellows
from pytest_gpubench.timing.ranks.lockstep import LockstepTimer
from pytest_gpubench.timing.sampling import ATTEMPTS, MAX_PAUSE_S, PAUSE_S, PROBE_REPS, Sample, check_same_kernels
from pytest_gpubench.timing.sampling import collection_off as without_collecting
from pytest_gpubench.units import count

__tracebackhide__ = True


@dataclass
class Throttled:
    """Reps that were taken while one of the GPUs was throttled, kept for the case that there are no others."""

    reps: list[Rep] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)


def take_together(
    timer: LockstepTimer,
    device: Device,
    call: Call,
    plan: Plan,
    pacing: Pacing,
    fellows: Fellows,
    say: Callable[[str], None],
) -> Sample:
    """Take reps until the slowest of each are precise, or the time is spent, as the first rank decides."""
    watch = device.nvml.throttle_mask if device.nvml is not None else (lambda: 0)
    probe = Sample()
    take_session(timer, call, PROBE_REPS, 0.0, watch, probe, fellows)  # the first session of a process is slow
    started_s = time.perf_counter()
    take_session(timer, call, PROBE_REPS, pacing.idle_s(probe.reps), watch, Sample(), fellows)
    cost_s = (time.perf_counter() - started_s) / PROBE_REPS
    budget = Budget(plan.reps, plan.precision, plan.max_time_s, cost_s, precision_time_s=plan.precision_time_s)
    sample = Sample()
    slowest_us: list[float] = []
    while wanted := fellows.tell(next_batch(budget, slowest_us, True))[0]:
        wanted, started_s = min(wanted, timer.max_reps), time.perf_counter()
        take_clean(timer, call, wanted, pacing.idle_s(sample.reps or probe.reps), watch, sample, fellows)
        slowest_us = list(map(max, zip(*fellows.tell(sample.samples_us), strict=True)))
        budget.spend(time.perf_counter() - started_s, wanted)
        say(f"measuring, {count(len(slowest_us), 'rep')} taken")
    return sample


def take_clean(
    timer: LockstepTimer,
    call: Call,
    wanted: int,
    idle_s: float,
    watch: Callable[[], int],
    sample: Sample,
    fellows: Fellows,
) -> None:
    """Add so many reps to the sample, those taken while a GPU was throttled only where no others can be had."""
    throttled, pause_s, missing = Throttled(), PAUSE_S, wanted
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
        batch = Sample(reps=sample.reps[:1])
        masks = take_session(timer, call, missing, idle_s, watch, batch, fellows)
        sample.remeasured += batch.remeasured
        for rep, mask in zip(batch.reps[-missing:], masks, strict=True):
            if mask:
                throttled.reps.append(rep)
                throttled.masks.append(mask)
            else:
                sample.reps.append(rep)
        missing = sum(1 for mask in masks if mask)
        if not missing:
            break
    sample.discarded += len(throttled.reps) - missing
    for rep, mask in zip(throttled.reps[:missing], throttled.masks[:missing], strict=True):
        sample.reps.append(rep)
        sample.throttle_mask |= mask


def take_session(
    timer: LockstepTimer,
    call: Call,
    wanted: int,
    idle_s: float,
    watch: Callable[[], int],
    sample: Sample,
    fellows: Fellows,
) -> list[int]:
    """Add a session's reps to the sample, again where one rank's are not complete; return by rep what throttled any.

    All raise the same error where they never are.
    """
    for attempt in range(1, ATTEMPTS + 1):
        masks: list[int] = []
        problem: MeasurementError | None = None
        reps: Sequence[Rep] = ()
        with without_collecting(), timer.session() as session:
            for _ in range(wanted):
                session.take(call, idle_s)
                masks.append(watch())
        try:
            reps = session.reps()
            check_same_kernels(call, [*sample.reps[:1], *reps])
        except MeasurementError as error:  # the others have to be told, or they would wait
            problem = error
        told = fellows.tell((problem, masks))
        problems = [(index, each) for index, (each, _) in enumerate(told) if each is not None]
        if not problems:
            sample.reps += reps
            return [combined(column) for column in zip(*(each for _, each in told), strict=True)]
        sample.remeasured += 1
        index, first = problems[0]
        if attempt == ATTEMPTS:
            raise type(first)(f"rank {index}: {first} (measured {count(attempt, 'time')})")
    raise AssertionError("the last attempt returns or raises")


def combined(masks: Sequence[int]) -> int:
    """Return the throttle reasons of all ranks together."""
    whole = 0
    for mask in masks:
        whole |= mask
    return whole
