"""Take reps until there are enough of them: clean ones, proven complete."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pytest_gpubench.errors import GpuBenchError, IncompleteRecords, KernelsDiffer, annotate
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.readings import Reading, Watcher
from pytest_gpubench.stats.stopping import LEAST_REPS, Budget, next_batch
from pytest_gpubench.timing.base import Call, Rep, Session, Timer
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.windows import describe_difference, kernel_list
from pytest_gpubench.units import count

__tracebackhide__ = True

PROBE_REPS = 5
ATTEMPTS = 3
"""How often a session whose records are not complete is measured again before giving up."""

PAUSE_S = 0.1
"""The first pause after a throttled rep, doubled up to a second: NVML renews its reasons about ten times a second."""
MAX_PAUSE_S = 1.0

Watch = Callable[[], Reading]
"""Returns what is known of the GPU right after a rep."""


def watch_of(device: Device, timer: Timer) -> Watch:
    """Return what watches the GPU during the reps of a timer; not where its times come from elsewhere."""
    return Watcher(device.nvml if timer.settles else None)


@dataclass
class Sample:
    """The reps of one measurement so far."""

    reps: list[Rep] = field(default_factory=list)
    throttle_mask: int = 0
    discarded: int = 0
    remeasured: int = 0

    @property
    def samples_us(self) -> tuple[float, ...]:
        """The time of each rep."""
        return tuple(rep.elapsed_us for rep in self.reps)

    def keep(self, rep: Rep, reading: Reading) -> None:
        """Add a rep and what was read after it."""
        self.reps.append(replace(rep, reading=reading))
        self.throttle_mask |= reading.throttle_mask or 0


def take_sample(
    timer: Timer,
    call: Call,
    budget: Budget,
    pacing: Pacing,
    watch: Watch,
    decided: Callable[[Sample], bool],
    first: Sample,
) -> Sample:
    """Add reps to a first few until the budget says that it is enough and `decided` agrees, or the budget is spent."""
    sample, least = first, budget.reps or LEAST_REPS  # a look at fewer would spend alpha on nothing
    while wanted := next_batch(budget, sample.samples_us, len(sample.reps) < least or decided(sample)):
        if not sample.reps and timer.settles:
            wanted = min(wanted, PROBE_REPS)  # they show whether the others have to be paced
        started_s, before = timer.clock_s(), len(sample.reps)
        idle_s = pacing.idle_s(sample.reps)
        take_batch(timer, call, min(wanted, timer.max_reps), idle_s, watch, sample, budget.left_s)
        budget.spend(timer.clock_s() - started_s, len(sample.reps) - before)
    return sample


def take_batch(
    timer: Timer,
    call: Call,
    wanted: int,
    idle_s: float,
    watch: Watch,
    sample: Sample,
    left_s: float,
    attempts: int = ATTEMPTS,
) -> None:
    """Add one session's reps to the sample, measuring again where its records are not complete."""
    for attempt in range(1, attempts + 1):
        try:
            with collection_off(), timer.session() as session:
                first = len(sample.reps) + sample.discarded + 1
                readings = fill_session(session, timer, call, wanted, idle_s, watch, left_s, first)
            reps = session.reps()
            check_same_kernels(call, [*sample.reps[:1], *reps])
        except (IncompleteRecords, KernelsDiffer) as error:
            if attempt == attempts:
                raise type(error)(f"{error} (measured {count(attempts, 'time')})") from None
            sample.remeasured += 1
            continue
        keep_clean(sample, reps, readings, wanted)
        return


def fill_session(
    session: Session,
    timer: Timer,
    call: Call,
    wanted: int,
    idle_s: float,
    watch: Watch,
    left_s: float,
    first: int,
) -> list[Reading]:
    """Take reps until so many were clean; after a throttled one, pause longer each time, within the time left."""
    deadline_s = time.perf_counter() + left_s
    pause_s = PAUSE_S
    readings: list[Reading] = []
    clean = 0
    while clean < wanted and len(readings) < timer.max_reps:
        try:
            session.take(call, idle_s)
        except GpuBenchError:
            raise
        except Exception as error:
            annotate(error, f"gpu_bench: raised in rep {first + len(readings)} of {call.label!r}")
            raise
        readings.append(watch())
        if not readings[-1].throttle_mask:
            clean += 1
        elif time.perf_counter() + pause_s <= deadline_s:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
        elif len(readings) >= wanted:
            break
    return readings


def keep_clean(sample: Sample, reps: Sequence[Rep], readings: Sequence[Reading], wanted: int) -> None:
    """Keep the reps taken without throttling; where there are too few, fill up with throttled ones and say so."""
    clean = [index for index, reading in enumerate(readings) if not reading.throttle_mask]
    throttled = [index for index, reading in enumerate(readings) if reading.throttle_mask]
    kept = sorted(clean[:wanted] + throttled[: max(0, wanted - len(clean))])
    for index in kept:
        sample.keep(reps[index], readings[index])
    sample.discarded += len(reps) - len(kept)


def check_same_kernels(call: Call, reps: Sequence[Rep]) -> None:
    """Raise KernelsDiffer unless every rep launched the same kernels equally often."""
    if not reps:
        return
    first = kernel_list(reps[0].records)
    for number, rep in enumerate(reps[1:], 2):
        if (found := kernel_list(rep.records)) != first:
            raise KernelsDiffer(
                f"{call.label!r} does not launch the same kernels in every call: rep 1 and rep {number} differ, "
                f"{describe_difference(first, found)}; does it autotune, cache or branch?"
            )


@contextmanager
def collection_off() -> Iterator[None]:
    """Keep Python's garbage collector from running between two launches."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
