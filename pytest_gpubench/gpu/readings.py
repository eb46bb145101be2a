"""What NVML says of a GPU in one instant."""

import msgspec

from pytest_gpubench.gpu.nvml import THROTTLED, Nvml


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold the readings of one instant; None stands for what cannot be read."""

    sm_clock_mhz: int | None = None
    """The clock that is set, not the mean over a call: between two calls it hides what a load does to it."""
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    """From Ampere on (but for the A100) the mean over the last second, so of more than one call."""
    throttle_mask: int | None = None
    """The bits of `THROTTLE_REASONS`; 0 where nothing slows the GPU down."""


NO_READING = Reading()


def read_now(nvml: Nvml | None) -> Reading:
    """Return what NVML says now: five queries, and an empty reading without NVML."""
    if nvml is None:
        return NO_READING
    library = nvml.library
    power_mw = nvml.ask("PowerUsage")
    reasons = nvml.ask("CurrentClocksThrottleReasons")
    return Reading(
        sm_clock_mhz=nvml.ask("ClockInfo", library.NVML_CLOCK_SM),
        memory_clock_mhz=nvml.ask("ClockInfo", library.NVML_CLOCK_MEM),
        temperature_c=nvml.ask("Temperature", library.NVML_TEMPERATURE_GPU),
        power_w=None if power_mw is None else power_mw / 1000,
        throttle_mask=None if reasons is None else int(reasons) & THROTTLED,
    )
