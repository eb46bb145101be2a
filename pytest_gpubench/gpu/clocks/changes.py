"""The clocks to lock a GPU at, and the NVML calls that lock and reset them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.settings.parsers import ClockWish

CLOCK_LIMIT_TDP = 0xFFFFFF01
"""NVML_CLOCK_LIMIT_ID_TDP of nvml.h: the base clock, which a GPU keeps under any load; not in MHz."""
INSTEAD = "measure without --gpu-bench-lock-clocks"


@dataclass(frozen=True)
class Target:
    """The clocks to lock, as NVML takes them, and what the user should know about the choice."""

    graphics: int
    memory: int
    remark: str | None = None


def open_gpu(uuid: str) -> Nvml:
    """Open a GPU to lock its clocks; raise DeviceUnavailable where NVML cannot, or where MIG instances share them."""
    try:
        nvml = Nvml.open(uuid)
    except RuntimeError as error:
        raise DeviceUnavailable(f"asked to lock the clocks of {uuid}, but {error}") from None
    if uuid.startswith("MIG-") or nvml.mig():
        raise DeviceUnavailable(
            f"asked to lock the clocks of {uuid}, but the GPU is split into MIG instances, which share its clocks: "
            f"{INSTEAD}, or on a whole GPU"
        )
    return nvml


def choose_target(nvml: Nvml, uuid: str, wish: ClockWish) -> Target:
    """Return the clocks to lock; raise DeviceUnavailable where the GPU does not say which it supports.

    The memory clock is the highest, as under any load. The default applications clock is the base clock only where it
    is below the highest: on an H200 both are the same.
    """
    memory = max(nvml.ask("SupportedMemoryClocks") or (0,))
    supported: Sequence[int] = (nvml.ask("SupportedGraphicsClocks", memory) or ()) if memory else ()
    if not supported:
        raise DeviceUnavailable(
            f"asked to lock the clocks of {uuid}, but the GPU does not say which clocks it supports: {INSTEAD}"
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


def set_clock(nvml: Nvml, domain: Literal["Gpu", "Memory"], clock: int) -> None:
    """Lock a clock; raise NVML's error."""
    getattr(nvml.library, f"nvmlDeviceSet{domain}LockedClocks")(nvml.handle, clock, clock)


def reset_clocks(nvml: Nvml, uuid: str) -> str | None:
    """Leave the clocks to the GPU again; return why that failed, None where it did not."""
    problem = None
    for domain in ("Gpu", "Memory"):
        try:
            getattr(nvml.library, f"nvmlDeviceReset{domain}LockedClocks")(nvml.handle)
        except nvml.library.NVMLError as error:
            if not is_unsupported(error, nvml.library):
                problem = (
                    f"they could not be given back ({error}): as root, run `nvidia-smi -i {uuid} -rgc` and the same "
                    "with -rmc, or `pytest-gpubench doctor --restore-clocks`"
                )
    return problem


def is_unsupported(error: Exception, library: Any) -> bool:
    """Tell whether the GPU or its driver cannot do what was asked."""
    kinds = ("NVMLError_NotSupported", "NVMLError_FunctionNotFound", "NVMLError_Deprecated")
    return isinstance(error, tuple(getattr(library, kind) for kind in kinds if hasattr(library, kind)))


def is_refusal(error: Exception, library: Any) -> bool:
    """Tell whether NVML changed nothing."""
    return is_unsupported(error, library) or isinstance(error, library.NVMLError_NoPermission)


def explain(error: Exception, library: Any) -> str:
    """Return in one clause why clocks cannot be locked, and what to do."""
    if isinstance(error, library.NVMLError_NoPermission):
        return f"this user has not the rights: run as root, or {INSTEAD}"
    if is_unsupported(error, library):
        return f"the GPU or its driver cannot do that ({error}): {INSTEAD}"
    return f"NVML failed ({error}): see nvidia-smi"
