"""Two CUDA events around a call, which show work of the GPU that the profiler has no record of.

Unrecorded are kernels that a kernel launches (dynamic parallelism), graphs that the GPU launches, and functions of the
host that a stream waits for.

Such work runs between a rep's two sentinels, so it is no longer than the time there in which no record ran. Where that
is short, nothing is missing. Else the call is timed between two events, all of it queued before the first one happens,
so that they see neither launches nor the host. Before a call is refused, reps are recorded that were queued so too: the
time between their sentinels is the GPU's alone.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_gpubench.errors import IncompleteRecords, annotating
from pytest_gpubench.timing.attempts import ATTEMPTS, Pauses
from pytest_gpubench.timing.base import Call, Rep, call_of, collection_off
from pytest_gpubench.timing.events import Lap
from pytest_gpubench.timing.windows import busy_ns
from pytest_gpubench.units import count, format_time

MOST_SHARE = 0.25
"""So much of its recorded time may a call take longer between events: power and clocks differ from rep to rep."""
EVENTS_US = 5.0
"""The time of two events by themselves: 2.9 us on an H200, and up to 4.1 us with the start of a kernel of 2 us."""
GAP_US = 4.0
"""The longest gap between two kernels in a queue: 1.2 to 1.9 us were seen on an H200."""
LAPS = 3
"""Calls between events, all of which have to take too long."""
GAPS_MARGIN = 2.0
"""By so much launches of a call may take longer than those of kernels that do nothing."""
MOST_NOOPS = 100
"""More are not launched: the queue holds about a thousand."""


@dataclass(frozen=True)
class Witness:
    """Compare the records of a call with two events around it."""

    lap: Callable[[Call, float], Lap]
    """Times a call between two events, after so many seconds of idle time."""
    reps_again: Callable[[Call, float], Sequence[Rep]]
    """Takes new reps."""
    queued: Callable[[Call, float], Sequence[Rep]]
    """Takes reps that were queued as a whole, so that nothing but work of the GPU lies between their sentinels."""
    noop: Callable[[], None]
    """Launches a kernel that does nothing."""

    def check(self, call: Call, reps: Sequence[Rep], idle_s: float, known_us: Sequence[float] = ()) -> None:
        """Raise IncompleteRecords where the events show much more work than the records, however often it is measured.

        known_us: times of the call between events that were taken before.
        """
        if not has_room(reps) or (known_us and min(known_us) <= longest_us(reps)):
            return
        pauses = Pauses()
        for attempt in range(ATTEMPTS):
            if attempt:  # another process may have used the GPU
                pauses.rest()
                reps = self.reps_again(call, idle_s)
            lap = self._shortest_lap(call, idle_s, longest_us(reps))
            if lap is None:
                return
            seen = lap
        recorded_us = statistics.median(rep.elapsed_us for rep in reps)
        launches = max(len(rep.records) for rep in reps)
        is_long = seen.seen_us > (1 + MOST_SHARE) * recorded_us + self._gaps_us(launches)
        if is_long and (seen.is_late or has_room(self.queued(call, idle_s))):
            raise IncompleteRecords(
                f"{call.label!r} keeps the GPU busy for {format_time(seen.seen_us)}, by two events around it, but the "
                f"profiler records {count(launches, 'kernel')} of {format_time(recorded_us)} together: it does not see "
                "work that the GPU launches itself (kernels, or graphs) nor functions of the host in a stream "
                f"(measured {count(ATTEMPTS, 'time')}); use timer='events', which times all of it"
            )

    def _shortest_lap(self, call: Call, idle_s: float, most_us: float) -> Lap | None:
        """Return the shortest lap; None where one is no longer than the most, or the host falls behind the GPU."""
        laps: list[Lap] = []
        with collection_off(), annotating(lambda: f"gpu_bench: raised in {call.label!r}, called between two events"):
            for _ in range(LAPS):
                lap = self.lap(call, idle_s)
                if not lap.ahead or lap.seen_us <= most_us:
                    return None
                laps.append(lap)
        return min(laps, key=lambda lap: lap.seen_us)

    def _gaps_us(self, launches: int) -> float:
        """Return the longest that so many launches may take on this machine; infinity where that is not known."""
        taken = min(launches, MOST_NOOPS)

        def launch() -> None:
            for _ in range(taken):
                self.noop()

        with collection_off():
            laps = [self.lap(call_of("noop", launch), 0.0) for _ in range(LAPS)]
        if not all(lap.ahead for lap in laps):
            return math.inf
        return GAPS_MARGIN * launches / taken * max(lap.seen_us for lap in laps)


def has_room(reps: Sequence[Rep]) -> bool:
    """Tell whether most reps have time without a record for more work than is allowed to be missing."""
    rooms_us = [rep.window_us - busy_ns(rep.records) / 1e3 - allowed_us(rep) for rep in reps]
    return bool(rooms_us) and statistics.median(rooms_us) > 0


def longest_us(reps: Sequence[Rep]) -> float:
    """Return the longest time between two events that the records of nine in ten reps explain."""
    return sorted(rep.elapsed_us + allowed_us(rep) for rep in reps)[math.ceil(0.9 * (len(reps) - 1))]


def allowed_us(rep: Rep) -> float:
    """Return the time by which two events may exceed a rep's records."""
    return MOST_SHARE * rep.elapsed_us + EVENTS_US + GAP_US * len(rep.records)
