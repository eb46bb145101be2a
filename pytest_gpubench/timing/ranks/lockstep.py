"""Reps that all ranks begin together: their hosts wait for each other, and then, right before the call, their GPUs."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.base import Call, Rep
from pytest_gpubench.timing.events import ASSUMED_CLOCK_MHZ, HEADROOM, HOST_BOUND, LEAST_LEAD_US, REMEMBERED, new_event
from pytest_gpubench.timing.pacing import rest
from pytest_gpubench.timing.profiler import ProfilerSession, ProfilerTimer
from pytest_gpubench.timing.ranks.fellows import Fellows
from pytest_gpubench.timing.wall import WallTimer

__tracebackhide__ = True

MOST_LEAD_US = 5_000.0


class LockstepWall(WallTimer):
    """Read the host's clock around a call that all ranks begin together."""

    def __init__(self, device: Device, cache: str, fellows: Fellows) -> None:
        super().__init__(device, cache)
        flush = self.flush

        def flush_and_meet() -> None:
            flush()
            fellows.meet()

        self.flush = flush_and_meet


class LockstepProfiler(ProfilerTimer):
    """Sum the device's own records of a call that all GPUs begin together."""

    def __init__(self, device: Device, cache: str, fellows: Fellows) -> None:
        super().__init__(device, cache)
        self.fellows = fellows
        self.queued_us: deque[float] = deque(maxlen=REMEMBERED)
        """What the host took to queue each of the last calls."""

    def session(self) -> "LockstepSession":
        """Return a new profiler session."""
        return LockstepSession(self)

    def spin(self) -> None:
        """Keep the GPU busy for as long as the host is known to need."""
        import torch

        lead_us = min(max(LEAST_LEAD_US, HEADROOM * max(self.queued_us, default=0.0)), MOST_LEAD_US)
        cycles = int(lead_us * (self.device.facts.max_sm_clock_mhz or ASSUMED_CLOCK_MHZ))
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


class LockstepSession(ProfilerSession):
    """Record reps that all ranks begin together."""

    def __init__(self, lockstep: LockstepProfiler) -> None:
        super().__init__(lockstep)
        self.lockstep = lockstep
        self.met = new_event()
        self.bound: list[bool] = []

    def take(self, call: Call, idle_s: float) -> None:
        """Take one rep: its begin sentinel is queued behind the GPUs' meeting, and the call behind that."""
        timer, synchronize, slot = self.lockstep, self.lockstep.device.synchronize, 2 * len(self.taken)
        timed = call.prepare()
        synchronize()
        rest(idle_s)
        timer.flush()
        synchronize()
        timer.fellows.meet()
        timer.spin()
        queuing_s = time.perf_counter()
        timer.fellows.meet_on_device()
        self.met.record()
        timer.sentinels.begin(slot)
        timed()
        ahead = not self.met.query()  # type: ignore[no-untyped-call]
        timer.queued_us.append(1e6 * (time.perf_counter() - queuing_s))
        synchronize()
        timer.sentinels.end(slot + 1)
        self.taken.append(call)
        self.bound.append(not ahead)

    def reps(self) -> Sequence[Rep]:
        """Return the reps, flagged where the host was not ahead; raise MeasurementError where records are missing."""
        reps = super().reps()
        return [
            replace(rep, flags=(*rep.flags, HOST_BOUND)) if bound else rep
            for rep, bound in zip(reps, self.bound, strict=True)
        ]


LockstepTimer = LockstepWall | LockstepProfiler
