"""The reps of a measurement, and what takes them."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pytest_gpubench.errors import KernelsDiffer
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.readings import Reading, Watcher
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

    def count_again(self) -> None:
        """Count a session that is measured again."""
        self.remeasured += 1


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
