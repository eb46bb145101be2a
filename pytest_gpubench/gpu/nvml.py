"""The readings of a GPU through NVML, NVIDIA's management library: its facts, and those between reps."""

import math
import time
from dataclasses import dataclass
from typing import Any

import msgspec

THROTTLE_REASONS = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""The clock-event reasons (nvml.h) that make a time say more about the card than about the kernel; idleness and clocks
that somebody set are not among them."""
THROTTLED = sum(THROTTLE_REASONS)


def reason_names(mask: int) -> tuple[str, ...]:
    """Return the throttle reasons in a mask by name."""
    return tuple(name for bit, name in THROTTLE_REASONS.items() if mask & bit)


@dataclass(frozen=True, eq=False)
class Nvml:
    """Read one GPU through NVML; every reading takes 1 to 3 us on an H200."""

    library: Any
    handle: Any

    @classmethod
    def open(cls, gpu: str | int) -> "Nvml":
        """Open a GPU; raise RuntimeError saying what is missing.

        gpu: its UUID, or NVML's own index, which CUDA_VISIBLE_DEVICES does not change.
        """
        library, by_uuid = _library(), isinstance(gpu, str)
        try:
            return cls(library, getattr(library, f"nvmlDeviceGetHandleBy{'UUID' if by_uuid else 'Index'}")(gpu))
        except library.NVMLError as error:
            named = f"GPU {gpu}" if by_uuid else f"a GPU number {gpu}"
            raise RuntimeError(f"NVML does not know {named} ({error})") from None

    def throttle_mask(self) -> int:
        """Return the bits of the reasons why the GPU is throttled now."""
        try:
            return int(self.library.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle)) & THROTTLED
        except self.library.NVMLError:
            return 0

    def ask(self, query: str, *arguments: Any) -> Any:
        """Return the answer of nvmlDeviceGet<query>; None where this GPU or driver has none."""
        try:
            return getattr(self.library, f"nvmlDeviceGet{query}")(self.handle, *arguments)
        except (self.library.NVMLError, AttributeError):
            return None

    def name(self) -> str:
        """Return the GPU's name."""
        return _text(self.ask("Name")) or "unknown GPU"

    def uuid(self) -> str | None:
        """Return the GPU's UUID."""
        return _text(self.ask("UUID"))

    def driver(self) -> str | None:
        """Return the driver's version."""
        try:
            return _text(self.library.nvmlSystemGetDriverVersion())
        except self.library.NVMLError:
            return None

    def max_clock_mhz(self, domain: str) -> int | None:
        """Return the highest clock of a domain: "SM" or "MEM"."""
        clock = self.ask("MaxClockInfo", getattr(self.library, f"NVML_CLOCK_{domain}"))
        return None if clock is None else int(clock)

    def power_limit_w(self) -> float | None:
        """Return the power cap."""
        limit_mw = self.ask("EnforcedPowerLimit")
        return None if limit_mw is None else limit_mw / 1000

    def mig(self) -> bool | None:
        """Return whether the GPU is split into MIG instances; None where it cannot be."""
        mode = self.ask("MigMode")
        return None if mode is None else bool(mode[0])


def _library() -> Any:
    try:
        import pynvml
    except ImportError:
        raise RuntimeError("the package nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise RuntimeError(f"NVML does not start ({error})") from None
    return pynvml


def _text(value: str | bytes | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


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
            self._last = _read_slowly_changing(self._nvml)
            ended_s = time.perf_counter()
            self._due_s = ended_s + max(REFRESH_S, (ended_s - began_s) / READING_SHARE)
        mask = self._nvml.throttle_mask()
        if mask != self._last.throttle_mask:
            self._last = msgspec.structs.replace(self._last, throttle_mask=mask)
        return self._last


def _read_slowly_changing(nvml: Nvml) -> Reading:
    power_mw = nvml.ask("PowerUsage")
    return Reading(
        memory_clock_mhz=nvml.ask("ClockInfo", nvml.library.NVML_CLOCK_MEM),
        temperature_c=nvml.ask("Temperature", nvml.library.NVML_TEMPERATURE_GPU),
        power_w=None if power_mw is None else round(power_mw / 1000, 1),
    )
