"""Readings of a GPU between reps: throttling, clocks, temperature and power."""

import math
import time

import msgspec

from pytest_gpubench.gpu.nvml import Nvml

REFRESH_S = 5e-3
"""The time for which a temperature, a power and a memory clock count as unchanged."""
READING_SHARE = 0.01
"""The fraction of the time that reading them may take: slow readings are taken less often."""


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The readings of one instant; None for what cannot be read."""

    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    """The mean over the last second from Ampere on (except the A100), so of more than one call."""
    throttle_mask: int | None = None
    """The bits of `THROTTLE_REASONS`; 0 where the GPU is not throttled."""


NO_READING = Reading()


class Watcher:
    """Reads a GPU after each rep: throttling every time, slowly changing values only now and then.

    nvml: None reads nothing. The SM clock is not read here: between two calls it does not show what the load does to
    it; the sentinel kernels measure it.
    """

    def __init__(self, nvml: Nvml | None) -> None:
        self._nvml = nvml
        self._last = NO_READING
        self._due_s = -math.inf

    def __call__(self) -> Reading:
        """Return the reading of this rep."""
        if self._nvml is None:
            return NO_READING
        began_s = time.perf_counter()
        if began_s >= self._due_s:
            power_mw, library = self._nvml.ask("PowerUsage"), self._nvml.library
            self._last = Reading(
                memory_clock_mhz=self._nvml.ask("ClockInfo", library.NVML_CLOCK_MEM),
                temperature_c=self._nvml.ask("Temperature", library.NVML_TEMPERATURE_GPU),
                power_w=None if power_mw is None else round(power_mw / 1000, 1),
            )
            ended_s = time.perf_counter()
            self._due_s = ended_s + max(REFRESH_S, (ended_s - began_s) / READING_SHARE)
        mask = self._nvml.throttle_mask()
        if mask != self._last.throttle_mask:
            self._last = msgspec.structs.replace(self._last, throttle_mask=mask)
        return self._last
