"""Time from the host's clock, around the call and a synchronisation: launches, gaps and Python included."""

import time
from collections.abc import Sequence
from pathlib import Path

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.base import Call, Rep, Session, Timer
from pytest_gpubench.timing.l2flush import make_flush

__tracebackhide__ = True

SCHEDULED = Path("/proc/thread-self/schedstat")
"""Nanoseconds for which this thread ran, for which it waited for a core, and how often it got one."""


class WallTimer(Timer):
    """Read the host's clock before the call and after the device is done."""

    name = "wall"

    def __init__(self, device: Device, cache: str) -> None:
        self.device = device
        self.flush = make_flush(device, cache)

    def clock_s(self) -> float:
        """Return the time less what this thread waited for a core: a busy host costs a measurement no reps."""
        return time.perf_counter() - waited_s()

    def session(self) -> "WallSession":
        """Return a new session."""
        return WallSession(self)


class WallSession(Session):
    """Take reps one after the other."""

    def __init__(self, timer: WallTimer) -> None:
        self.timer = timer
        self.taken: list[Rep] = []

    def take(self, call: Call, idle_s: float) -> None:
        """Take one rep."""
        synchronize = self.timer.device.synchronize
        timed = call.prepare().run
        synchronize()
        if idle_s:
            time.sleep(idle_s)
        self.timer.flush()
        synchronize()
        # Linux (6.6 on) brings a thread's account up to date when its CPU time is read: if its slice is over, as the
        # flush often takes all of it, others get the core now, and not within the call, which has a slice of its own.
        time.thread_time_ns()
        start_ns = time.perf_counter_ns()
        timed()
        synchronize()
        self.taken.append(Rep((time.perf_counter_ns() - start_ns) / 1e3))

    def reps(self) -> Sequence[Rep]:
        """Return the reps taken."""
        return self.taken


def waited_s() -> float:
    """Return for how long this thread has waited for a core that others had; 0 where Linux does not tell."""
    try:
        return int(SCHEDULED.read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
