"""Reps that all ranks keep or take again together: what one of them cannot use is of no use to any."""

import time
from collections.abc import Callable, Sequence

from pytest_gpubench.errors import MeasurementError, NothingRecorded
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.stats.stopping import Budget, next_batch
from pytest_gpubench.timing.attempts import ATTEMPTS, NOT_COMPLETE, Pauses, until_complete
from pytest_gpubench.timing.base import Call, Rep
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.ranks.fellows import Fellows
from pytest_gpubench.timing.ranks.lockstep import LockstepTimer
from pytest_gpubench.timing.sampling import PROBE_REPS, Sample, check_same_kernels, collection_off
from pytest_gpubench.units import count

__tracebackhide__ = True


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
    probe, _ = take_session(timer, call, PROBE_REPS, 0.0, watch, Sample(), fellows)  # the first session is slow
    started_s = time.perf_counter()
    take_session(timer, call, PROBE_REPS, pacing.idle_s(probe), watch, Sample(), fellows)
    cost_s = (time.perf_counter() - started_s) / PROBE_REPS
    budget = Budget(plan.reps, plan.precision, plan.max_time_s, cost_s, precision_time_s=plan.precision_time_s)
    sample = Sample()
    slowest_us: list[float] = []
    while wanted := fellows.tell(next_batch(budget, slowest_us, True))[0]:
        wanted, started_s = min(wanted, timer.max_reps), time.perf_counter()
        take_clean(timer, call, wanted, pacing.idle_s(sample.reps or probe), watch, sample, fellows)
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
    throttled: list[tuple[Rep, int]] = []
    pauses, missing = Pauses(), wanted
    for attempt in range(ATTEMPTS):
        if attempt:
            pauses.rest()
        reps, masks = take_session(timer, call, missing, idle_s, watch, sample, fellows)
        sample.reps += [rep for rep, mask in zip(reps, masks, strict=True) if not mask]
        again = [(rep, mask) for rep, mask in zip(reps, masks, strict=True) if mask]
        throttled += again
        missing = len(again)
        if not missing:
            break
    sample.discarded += len(throttled) - missing
    for rep, mask in throttled[:missing]:
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
) -> tuple[Sequence[Rep], list[int]]:
    """Return a session's reps and by rep what throttled any rank, measured again where one's are not complete.

    All raise the same error where they never are.
    """

    def take() -> tuple[Sequence[Rep], list[int]]:
        masks: list[int] = []
        problem: MeasurementError | None = None
        reps: Sequence[Rep] = ()
        with collection_off(), timer.session() as session:
            for _ in range(wanted):
                session.take(call, idle_s)
                masks.append(watch())
        try:
            reps = session.reps()
            check_same_kernels(call, [*sample.reps[:1], *reps])
        except MeasurementError as error:  # the others have to be told, or they would wait
            problem = error
        told = fellows.tell((problem, masks))
        for index, (each, _) in enumerate(told):
            if each is not None:
                raise type(each)(f"rank {index}: {each}")
        return reps, [combined(column) for column in zip(*(each for _, each in told), strict=True)]

    return until_complete(take, again=sample.count_again, errors=(*NOT_COMPLETE, NothingRecorded))


def combined(masks: Sequence[int]) -> int:
    """Return the throttle reasons of all ranks together."""
    whole = 0
    for mask in masks:
        whole |= mask
    return whole
