"""The clocks that a GPU is to be locked at: what a wish for them comes to."""

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.settings import ClockWish

CLOCK_LIMIT_TDP = 0xFFFFFF01
"""NVML_CLOCK_LIMIT_ID_TDP of nvml.h: for NVML the base clock, which a GPU keeps under any load; no MHz."""


@dataclass(frozen=True)
class Target:
    """The clocks to lock, as NVML takes them, and what is to be said of how they were chosen."""

    graphics: int
    memory: int
    remark: str | None = None


def choose_target(nvml: Nvml, uuid: str, wish: ClockWish) -> Target:
    """Return the clocks to lock for a wish; raise DeviceUnavailable where the GPU does not say what it supports.

    The memory's is the highest, as under any load. An H200's default applications clock is its highest clock, so it is
    taken for the base clock only where it is below that.
    """
    memory = max(nvml.ask("SupportedMemoryClocks") or (0,))
    supported: Sequence[int] = (nvml.ask("SupportedGraphicsClocks", memory) or ()) if memory else ()
    if not supported:
        raise DeviceUnavailable(
            f"asked to lock the clocks of {uuid}, but the GPU does not say which clocks it supports: "
            "measure without --gpu-bench-lock-clocks"
        )
    highest = max(supported)
    if wish == "max":
        return Target(highest, memory)
    if wish == "base":
        default = nvml.ask("DefaultApplicationsClock", nvml.library.NVML_CLOCK_GRAPHICS)
        base = nearest(supported, default) if default and default < highest else CLOCK_LIMIT_TDP
        return Target(base, memory)
    chosen = nearest(supported, wish)
    remark = f"{uuid} does not support {wish} MHz: its clocks are locked at {chosen} MHz, the nearest that it does"
    return Target(chosen, memory, None if chosen == wish else remark)


def nearest(supported: Sequence[int], wanted_mhz: int) -> int:
    """Return the supported clock nearest to a wanted one, the lower of two."""
    return min(supported, key=lambda clock: (abs(clock - wanted_mhz), clock))


def clock_text(graphics: int) -> str:
    """Return a clock, as NVML takes it, for a reader."""
    return "the base clock" if graphics == CLOCK_LIMIT_TDP else f"{graphics} MHz"
