"""The readings of a GPU through NVML, NVIDIA's management library."""

from dataclasses import dataclass
from typing import Any

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
        """Return the bits of the reasons why the GPU is throttled now; the query is being renamed."""
        mask = self.ask("CurrentClocksThrottleReasons")
        return int(self.ask("CurrentClocksEventReasons") or 0 if mask is None else mask) & THROTTLED

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
