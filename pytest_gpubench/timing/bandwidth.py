"""This GPU's memory bandwidth, measured with our own timer once a process."""

from functools import cache

import torch

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.base import call_of, reps_of
from pytest_gpubench.timing.l2flush import flush_buffer
from pytest_gpubench.timing.profiler import ProfilerTimer

LEAST_COPIED_BYTES = 2**28
REPS = 20


def copy_bandwidth(device: Device) -> float | None:
    """Return the bytes that a large copy moves in a microsecond, read and written; None without room for one.

    The fastest of 20 cold copies of at least 256 MiB, or of four times the L2 cache if that is more.
    """
    try:
        return measured_bandwidth(device)
    except torch.OutOfMemoryError:  # there may be room the next time
        return None


@cache
def measured_bandwidth(device: Device) -> float:
    """Return the bandwidth; raise torch.OutOfMemoryError without room for a copy."""
    flush_buffer(device)  # first, so that it has room
    copied_bytes = max(LEAST_COPIED_BYTES, 4 * device.cache_bytes)
    source = torch.zeros(copied_bytes // 4, dtype=torch.int32, device=device.torch_device)
    target = torch.empty_like(source)
    reps = reps_of(ProfilerTimer(device, "cold").session(), call_of("copy", lambda: target.copy_(source)), REPS)
    return 2 * copied_bytes / min(rep.elapsed_us for rep in reps)
