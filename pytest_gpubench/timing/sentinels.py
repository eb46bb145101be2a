"""The kernels that mark where a rep begins and ends, and the clocks that they note on the way."""

import os
import warnings
from collections.abc import Sequence
from functools import cache as memoise
from typing import Any

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.base import Timer

CLOCK_WINDOW_NS = 5_000
"""Windows shorter than this are too few ticks of the nanosecond timer to read a clock from."""


class Sentinels:
    """Launch the kernels that mark where a rep begins and ends, and read the clocks they noted."""

    def __init__(self, device: Device) -> None:
        import torch

        from pytest_gpubench.timing import kernels

        self.buffer = torch.zeros(2 * Timer.max_reps, 2, dtype=torch.int64, device=device.torch_device)
        grid = (device.facts.multiprocessors or 1,)
        self._begin: Any = kernels.gpu_bench_begin[grid]
        self._end: Any = kernels.gpu_bench_end[grid]
        self._noop: Any = kernels.gpu_bench_noop[(1,)]

    def begin(self, slot: int) -> None:
        """Mark the beginning of a rep."""
        self._begin(self.buffer, slot, num_warps=1)

    def end(self, slot: int) -> None:
        """Mark the end of a rep."""
        self._end(self.buffer, slot, num_warps=1)

    def noop(self) -> None:
        """Launch a kernel that does next to nothing."""
        self._noop(self.buffer, num_warps=1)

    def read_clocks(self, reps: int) -> list[float | None]:
        """Return each rep's mean clock in MHz between its sentinels, None where it was too short to tell."""
        noted = self.buffer[: 2 * reps].view(reps, 2, 2).tolist()
        self.buffer[: 2 * reps].zero_()
        return [mean_clock_mhz(begin, end) for begin, end in noted]


def mean_clock_mhz(begin: Sequence[int], end: Sequence[int]) -> float | None:
    """Return cycles per microsecond between two readings (cycles, nanoseconds) of one multiprocessor."""
    cycles, elapsed_ns = end[0] - begin[0], end[1] - begin[1]
    if elapsed_ns < CLOCK_WINDOW_NS or cycles <= 0 or not begin[1]:
        return None
    return 1e3 * cycles / elapsed_ns


@memoise
def sentinels_of(device: Device) -> Sentinels:
    """Return the device's sentinels, compiled."""
    sentinels = Sentinels(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Triton 3.9 warns, with each compilation, of a default of its own
        sentinels.begin(0)
        sentinels.end(1)
        sentinels.noop()
    device.synchronize()
    return sentinels


def check_triton() -> None:
    """Raise DeviceUnavailable where our own kernels cannot be compiled."""
    if os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y"):
        raise DeviceUnavailable(
            "TRITON_INTERPRET=1 is set: Triton would run on the CPU and nothing could be measured on the GPU; unset it"
        )
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise DeviceUnavailable(
            f"reps are marked with Triton kernels, but Triton cannot be imported ({error}): "
            "install triton, or use --gpu-bench-timer=wall"
        ) from None
