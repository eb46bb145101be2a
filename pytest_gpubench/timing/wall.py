"""Time from the host's clock, around the call and a synchronisation: launches, gaps and Python included."""

import time
from collections.abc import Sequence

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.base import Call, Rep, Session, Timer
from pytest_gpubench.timing.l2flush import make_flush

__tracebackhide__ = True


class WallTimer(Timer):
    """Read the host's clock before the call and after the device is done."""

    name = "wall"

    def __init__(self, device: Device, cache: str) -> None:
        self.device = device
        self.flush = make_flush(device, cache)

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
        start_ns = time.perf_counter_ns()
        timed()
        synchronize()
        self.taken.append(Rep((time.perf_counter_ns() - start_ns) / 1e3))

    def reps(self) -> Sequence[Rep]:
        """Return the reps taken."""
        return self.taken
