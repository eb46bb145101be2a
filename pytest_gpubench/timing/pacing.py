"""Idle time between reps, for calls that would run the GPU into its power cap.

On an H200 the median of 100 reps of an 8192^3 bf16 matmul was 1390 us with idle time of three times the call before
each rep (five processes, within 0.1 %), and 1453 to 1526 us without, as the power cap came to be felt. Calls that keep
the clock up are best taken without a pause: in the same 100 ms, 384 reps of a softmax without one are steadier over
processes (0.35 %) than 131 reps 0.5 ms apart (0.70 %) or 44 reps 2 ms apart (0.97 %).
"""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_gpubench.gpu.clocks import LOCKS
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.base import Rep

IDLE_PER_BUSY = 3.0
"""Idle time before a rep over the call's time."""
LONGEST_CPU_IDLE_S = 0.025
"""The longest idle time before a rep on a CPU, which has no power cap to keep from.

On a busy host some calls of two threads have both cores from start to end: 47 % of those of 0.2 ms after pauses of
three times the call, which took up to 90 ms and left time for 16 quads; 19 % after 12 ms, 2 % after 5 ms.
"""
FREE_IDLE_S = 1e-4
"""The time between two reps that the host needs anyway, in which the device idles."""
KEPT_CLOCK = 0.97
"""A call during which the clock stays above this part of the highest is far from the power cap."""
LONG_CALL_US = 300.0
"""The longest call that is not paced where the clock cannot be read: shorter ones idle enough between reps."""
LAST_REPS = 20
"""The number of last reps that are looked at."""


@dataclass(frozen=True)
class Pacing:
    """Decide how long the device must idle before each rep."""

    max_clock_mhz: float | None
    """The device's highest clock, or the one it is locked at; None if it is not known."""
    longest_s: float = math.inf
    """The longest idle time."""

    @classmethod
    def of(cls, device: Device) -> "Pacing":
        """Return the pacing of a device."""
        lock = LOCKS.get(device.facts.uuid or "")
        longest_s = LONGEST_CPU_IDLE_S if device.type == "cpu" else math.inf
        return cls(device.facts.max_sm_clock_mhz if lock is None else lock.graphics_mhz, longest_s)

    def idle_s(self, reps: Sequence[Rep]) -> float:
        """Return the seconds of idle time, judging by the reps so far; 0 without any."""
        last = reps[-LAST_REPS:]
        if not last:
            return 0.0
        call_us = statistics.median(rep.elapsed_us for rep in last)
        clocks_mhz = [rep.sm_clock_mhz for rep in last if rep.sm_clock_mhz is not None]
        if not clocks_mhz or self.max_clock_mhz is None:
            is_slowed = call_us > LONG_CALL_US  # it may be
        else:
            is_slowed = statistics.median(clocks_mhz) < KEPT_CLOCK * self.max_clock_mhz
        if not is_slowed:
            return 0.0
        return min(max(0.0, IDLE_PER_BUSY * call_us / 1e6 - FREE_IDLE_S), self.longest_s)


def rest(idle_s: float) -> None:
    """Wait; short waits spin, because a sleep is some 60 us late."""
    until = time.perf_counter() + idle_s
    if idle_s > 3e-4:
        time.sleep(idle_s - 1e-4)
    while time.perf_counter() < until:
        pass
