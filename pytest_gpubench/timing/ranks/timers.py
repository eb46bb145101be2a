"""Timers of reps that all ranks begin together: their hosts wait for each other, and then their GPUs."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.settings.cache import Cache
from pytest_gpubench.timing.base import Call, Rep
from pytest_gpubench.timing.events import HOST_BOUND, REMEMBERED, lead_for, new_event, spin
from pytest_gpubench.timing.pacing import rest
from pytest_gpubench.timing.profiler import ProfilerSession, ProfilerTimer
from pytest_gpubench.timing.ranks.peers import Peers
from pytest_gpubench.timing.wall import WallTimer

LONGEST_SPIN_US = 5_000.0


class SynchronisedWallTimer(WallTimer):
    """Read the host's clock around a call that all ranks begin together."""

    def __init__(self, device: Device, cache: Cache, peers: Peers) -> None:
        super().__init__(device, cache)
        flush = self.flush

        def flush_and_meet() -> None:
            flush()
            peers.meet()

        self.flush = flush_and_meet
        self.takes_off = False  # ranks wait for each other's cores


class SynchronisedProfilerTimer(ProfilerTimer):
    """Sum the device's own records of a call that all GPUs begin together."""

    def __init__(self, device: Device, cache: Cache, peers: Peers) -> None:
        super().__init__(device, cache)
        self.peers = peers
        self.queued_us: deque[float] = deque(maxlen=REMEMBERED)
        """The host's time to queue each of the last calls."""

    def session(self) -> "SynchronisedSession":
        """Return a new profiler session."""
        return SynchronisedSession(self)


class SynchronisedSession(ProfilerSession):
    """Record reps that all ranks begin together."""

    def __init__(self, synchronised: SynchronisedProfilerTimer) -> None:
        super().__init__(synchronised)
        self.synchronised = synchronised
        self.met = new_event()
        self.host_bound: list[bool] = []

    def take(self, call: Call, idle_s: float) -> None:
        """Take one rep: the GPUs' meeting is queued first, behind it the begin sentinel, and behind that the call."""
        timer, synchronize, slot = self.synchronised, self.synchronised.device.synchronize, 2 * len(self.taken)
        timed = call.prepare()
        synchronize()
        rest(idle_s)
        timer.flush()
        synchronize()
        timer.peers.meet()
        spin(timer.device, lead_for(timer.queued_us, LONGEST_SPIN_US))
        queuing_s = time.perf_counter()
        timer.peers.meet_on_device()
        self.met.record()
        timer.sentinels.begin(slot)
        timed()
        ahead = not self.met.query()  # type: ignore[no-untyped-call]
        timer.queued_us.append(1e6 * (time.perf_counter() - queuing_s))
        synchronize()
        timer.sentinels.end(slot + 1)
        self.taken.append(call)
        self.host_bound.append(not ahead)

    def reps(self) -> Sequence[Rep]:
        """Return the reps, flagged where the host was not ahead; raise MeasurementError where records are missing."""
        return [
            replace(rep, flags=(*rep.flags, HOST_BOUND)) if bound else rep
            for rep, bound in zip(super().reps(), self.host_bound, strict=True)
        ]


SynchronisedTimer = SynchronisedWallTimer | SynchronisedProfilerTimer
