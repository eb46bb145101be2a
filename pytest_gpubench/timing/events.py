"""Time between two CUDA events around the call, its launches queued while the GPU is kept busy before them.

Events see the stream that is current: the call's kernels there and the gaps between them. A gap is the GPU's own only
if all of the call was queued before its first kernel began, so the GPU spins first, for as long as the host is known to
need; that the first event had not happened when the last was queued is the proof.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_gpubench.errors import MeasurementError
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.settings.cache import Cache
from pytest_gpubench.timing.base import Call, Rep, Session, Timer
from pytest_gpubench.timing.l2flush import make_flush
from pytest_gpubench.timing.pacing import rest
from pytest_gpubench.timing.sentinels import sentinels_of
from pytest_gpubench.timing.startup import wait_for_startup

if TYPE_CHECKING:
    import torch

HOST_BOUND = "host-bound"
"""The flag of a rep in which the GPU may have waited for the host."""

LEAST_LEAD_US = 100.0
MOST_LEAD_US = 50_000.0
HEADROOM = 2.0
"""The GPU spins so many times as long as the slowest of the last launches took."""
REMEMBERED = 20
ATTEMPTS = 5
"""Attempts at a rep before its call is given up, or refused."""
LATE_US = 100.0
"""A GPU that is not idle so long after the second event works on a stream that the events do not see."""
ASSUMED_CLOCK_MHZ = 2000.0


@dataclass(frozen=True)
class Lap:
    """The readings of one attempt at a rep."""

    elapsed_us: float
    lead_us: float
    """For how long, at least, the GPU was kept busy first."""
    host_us: float
    """The time of the call on the host."""
    queued_us: float
    """The time to queue it, events included."""
    ahead: bool
    """True if all of it was queued before the first event happened."""
    late_us: float
    """The time from the second event until the GPU was idle, less what the host takes to find an idle one."""

    @property
    def is_late(self) -> bool:
        """True if the GPU worked on: on a stream that the current one does not wait for."""
        return self.late_us > LATE_US

    @property
    def seen_us(self) -> float:
        """The time for which the GPU worked, at least, on any stream."""
        return self.elapsed_us + max(0.0, self.late_us - LATE_US)


@dataclass
class Lead:
    """The time for which the GPU is kept busy before a call, learnt from the host's time for earlier ones."""

    queued_us: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    failed: list[Lap] = field(default_factory=list)
    """The last attempts in a row in which the host was not ahead."""
    given_up: bool = False

    @property
    def lead_us(self) -> float:
        """Return for how long the GPU is to spin before the next attempt."""
        return LEAST_LEAD_US if self.given_up else lead_for(self.queued_us, MOST_LEAD_US)

    def note(self, lap: Lap) -> None:
        """Learn from an attempt; give up where the host is never ahead, or only of more than is allowed."""
        self.queued_us.append(lap.queued_us)
        if lap.ahead:
            self.failed.clear()
            return
        self.failed.append(lap)
        if len(self.failed) >= ATTEMPTS or lap.lead_us >= MOST_LEAD_US:
            self.given_up = True

    def sentence(self, label: str) -> str:
        """Return the reason why the host cannot keep ahead of the GPU in a call that was given up."""
        first, last = self.failed[0], self.failed[-1]
        # the host's time grew with the GPU's
        if last.queued_us - first.queued_us >= 0.5 * max(last.lead_us - first.lead_us, LEAST_LEAD_US):
            return (
                f"{label!r} waits for the GPU while it is called (.item(), .cpu(), synchronize(), or more launches "
                "than the queue holds, about a thousand): the host cannot keep ahead, so its time by events holds "
                "the host's; take the wait out, or use timer='profiler'"
            )
        return (
            f"the host needs {last.queued_us / 1e3:.1f} ms to launch {label!r}, longer than the GPU is kept "
            f"busy for ({MOST_LEAD_US / 1e3:.0f} ms at most): its time by events holds the host's; "
            "use timer='profiler'"
        )


class EventsTimer(Timer):
    """Read the time between two CUDA events around the call.

    ahead: True keeps the GPU busy until all of the call is queued. False starts with an idle GPU: the time is then that
    of launching the call and waiting for its end.

    Reps are not batched: the device is synchronised after each, as the throttle reasons read then are to be this rep's,
    and work left on another stream is to be found. The tick is what CUDA documents for cudaEventElapsedTime, "around
    0.5 microseconds". A call that launches nothing is not noticed: its time is that of two events.
    """

    name = "events"
    tick_us = 0.5

    def __init__(self, device: Device, cache: Cache, ahead: bool = True) -> None:
        self.device = device
        self.ahead = ahead
        self.sentinels = sentinels_of(device)
        self.flush = make_flush(device, cache)
        self.leads: dict[tuple[str, int], Lead] = {}
        self.remarks: dict[str, str] = {}
        """The reasons why the host could not keep ahead of calls, by label."""

    def session(self) -> "EventsSession":
        """Return a new session."""
        return EventsSession(self)

    def ready(self, call: Call) -> Callable[[], object]:
        """Do the untimed part of a rep; return the part that is timed."""
        return call.prepare().run

    def lap(self, call: Call, idle_s: float) -> Lap:
        """Time one call outside of any session of reps."""
        return self.session().lap(call, idle_s)

    def lead_of(self, call: Call) -> Lead:
        """Return the lead for a call, which is learnt over its reps."""
        return self.leads.setdefault(key_of(call), Lead())


class EventsSession(Session):
    """Take reps one after the other."""

    def __init__(self, timer: EventsTimer) -> None:
        self.timer = timer
        self.begin, self.end = new_event(), new_event()
        self.taken: list[tuple[Lap, tuple[str, ...]]] = []
        self.clocks: list[float | None] = []

    def __enter__(self) -> "EventsSession":
        wait_for_startup()
        return self

    def take(self, call: Call, idle_s: float) -> None:
        """Take one rep; raise MeasurementError where the GPU works on, on a stream that events do not see."""
        lap = self.lap(call, idle_s)
        if lap.is_late:
            raise MeasurementError(
                f"the GPU still works {lap.late_us:.0f} us after {call.label!r} was timed by events: on a stream "
                "that the current one does not wait for, which events do not see; use timer='profiler'"
            )
        bound = self.timer.ahead and not lap.ahead
        if bound:
            self.timer.remarks[call.label] = self.timer.lead_of(call).sentence(call.label)
        self.taken.append((lap, (HOST_BOUND,) if bound else ()))

    def lap(self, call: Call, idle_s: float) -> Lap:
        """Time one call, again where the host fell behind, as often as it takes to learn how long it needs.

        Also where the GPU worked on, which may be the host's delay: `ATTEMPTS` times.
        """
        lead, lates = self.timer.lead_of(call), 0
        while True:
            lap = self.attempt(call, idle_s, lead.lead_us)
            lates += lap.is_late
            if lates >= ATTEMPTS:
                return lap
            if self.timer.ahead and not lead.given_up:
                lead.note(lap)
            if not lap.is_late and (lap.ahead or lead.given_up or not self.timer.ahead):
                return lap

    def attempt(self, call: Call, idle_s: float, lead_us: float) -> Lap:
        """Prepare, idle, flush, spin, and time the call; the sentinels are outside of what is timed."""
        timer, synchronize, slot = self.timer, self.timer.device.synchronize, 2 * len(self.taken)
        timed = timer.ready(call)
        if idle_s:
            synchronize()
            rest(idle_s)
        timer.flush()
        if timer.ahead:
            spin(timer.device, lead_us)
        timer.sentinels.begin(slot)
        if not timer.ahead:
            synchronize()
        queuing_s = time.perf_counter()
        self.begin.record()
        called_s = time.perf_counter()
        timed()
        returned_s = time.perf_counter()
        self.end.record()
        ahead = not self.begin.query()  # type: ignore[no-untyped-call]
        queued_s = time.perf_counter()
        timer.sentinels.end(slot + 1)
        self.end.synchronize()
        ended_s = time.perf_counter()
        synchronize()
        idle_s = time.perf_counter()
        synchronize()  # the GPU is idle: it takes the host's own time
        host_s = time.perf_counter() - idle_s
        return Lap(
            elapsed_us=1e3 * float(self.begin.elapsed_time(self.end)),
            lead_us=lead_us,
            host_us=1e6 * (returned_s - called_s),
            queued_us=1e6 * (queued_s - queuing_s),
            ahead=ahead,
            late_us=1e6 * max(0.0, idle_s - ended_s - host_s),
        )

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        if error is None:
            self.clocks = self.timer.sentinels.read_clocks(len(self.taken))

    def reps(self) -> Sequence[Rep]:
        """Return the reps taken."""
        return [
            Rep(lap.elapsed_us, (), clock, flags, host_us=lap.host_us)
            for (lap, flags), clock in zip(self.taken, self.clocks, strict=True)
        ]


def lead_for(queued_us: Iterable[float], most_us: float) -> float:
    """Return for how long the GPU has to spin for a host that took so long to queue its last calls."""
    return min(max(LEAST_LEAD_US, HEADROOM * max(queued_us, default=0.0)), most_us)


def spin(device: Device, lead_us: float) -> None:
    """Keep the GPU busy for so long at its highest clock, longer at a lower one."""
    import torch

    cycles = int(lead_us * (device.facts.max_sm_clock_mhz or ASSUMED_CLOCK_MHZ))
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def key_of(call: Call) -> tuple[str, int]:
    """Return the identity of a call within its measurement, though it is wrapped in others between its reps."""
    return call.label, id(call.function)


def new_event() -> "torch.cuda.Event":
    """Return an event that can be timed."""
    import torch

    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
