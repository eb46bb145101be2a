"""Take reps until there are enough of them: clean ones, proven complete."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pytest_gpubench.errors import KernelsDiffer, annotating
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.readings import Reading, Watcher
from pytest_gpubench.stats.stopping import LEAST_REPS, Budget, next_batch
from pytest_gpubench.timing.attempts import ATTEMPTS, Pauses, until_complete
from pytest_gpubench.timing.base import Call, Rep, Session, Timer
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.windows import describe_difference, kernel_list

__tracebackhide__ = True

PROBE_REPS = 5


@dataclass(frozen=True)
class Instrument:
    """A timer, what is read of the GPU after each of its reps, and how the reps are paced."""

    timer: Timer
    watch: Callable[[], Reading]
    pacing: Pacing

    @classmethod
    def on(cls, device: Device, timer: Timer) -> "Instrument":
        """Return what measures on a device; nothing is read where the timer's times do not come from it."""
        return cls(timer, Watcher(device.nvml if timer.settles else None), Pacing.of(device))


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

    def keep_clean(self, reps: Sequence[Rep], readings: Sequence[Reading], wanted: int) -> None:
        """Add so many reps: those taken without throttling, and others where there are too few. Count the rest."""
        throttled = [index for index, reading in enumerate(readings) if reading.throttle_mask]
        clean = [index for index, reading in enumerate(readings) if not reading.throttle_mask]
        kept = sorted([*clean, *throttled][:wanted])
        for index in kept:
            self.keep(reps[index], readings[index])
        self.discarded += len(reps) - len(kept)

    def count_again(self) -> None:
        """Count a session that is measured again."""
        self.remeasured += 1


def take_sample(
    instrument: Instrument, call: Call, budget: Budget, decided: Callable[[Sample], bool], sample: Sample
) -> Sample:
    """Add reps to a sample until the budget says that it is enough and `decided` agrees, or the budget is spent."""
    timer, least = instrument.timer, budget.reps or LEAST_REPS  # a look at fewer would spend alpha on nothing
    while wanted := next_batch(budget, sample.samples_us, len(sample.reps) < least or decided(sample)):
        if not sample.reps and timer.settles:
            wanted = min(wanted, PROBE_REPS)  # they show whether the others have to be paced
        started_s, before = timer.clock_s(), len(sample.reps)
        idle_s = instrument.pacing.idle_s(sample.reps)
        take_batch(instrument, call, min(wanted, timer.max_reps), idle_s, sample, budget.left_s)
        budget.spend(timer.clock_s() - started_s, len(sample.reps) - before)
    return sample


def take_batch(
    instrument: Instrument,
    call: Call,
    wanted: int,
    idle_s: float,
    sample: Sample,
    left_s: float,
    attempts: int = ATTEMPTS,
) -> None:
    """Add one session's reps to the sample, measured again where its records are not complete."""

    def take() -> tuple[Sequence[Rep], Sequence[Reading]]:
        with collection_off(), instrument.timer.session() as session:
            number = len(sample.reps) + sample.discarded + 1
            readings = _fill_session(session, instrument, call, wanted, idle_s, left_s, number)
        reps = session.reps()
        check_same_kernels(call, [*sample.reps[:1], *reps])
        return reps, readings

    reps, readings = until_complete(take, attempts, sample.count_again)
    sample.keep_clean(reps, readings, wanted)


def _fill_session(
    session: Session, instrument: Instrument, call: Call, wanted: int, idle_s: float, left_s: float, number: int
) -> list[Reading]:
    """Take reps, the first of this number, until so many were clean; pause after throttled ones while there is time."""
    pauses = Pauses(time.perf_counter() + left_s)
    readings: list[Reading] = []
    clean = 0
    with annotating(lambda: f"gpu_bench: raised in rep {number + len(readings)} of {call.label!r}"):
        while clean < wanted and len(readings) < instrument.timer.max_reps:
            session.take(call, idle_s)
            readings.append(instrument.watch())
            if not readings[-1].throttle_mask:
                clean += 1
            elif not pauses.rest() and len(readings) >= wanted:
                break
    return readings


def reps_of(session: Session, call: Call, number: int, idle_s: float = 0.0) -> Sequence[Rep]:
    """Return so many reps of a call from a session of their own, throttled or not."""
    with collection_off(), session:
        for _ in range(number):
            session.take(call, idle_s)
    return session.reps()


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
