"""The state of the caches before a rep.

A flush that writes leaves the cache full of dirty lines, and the timed kernel pays for writing them back: on an H200
that is 4 to 36 % of a memory-bound kernel. Reading a buffer of twice the cache leaves clean lines of ours, which cost
nothing to drop. A producer runs after such a flush: what it left in the cache is there, and nothing of the call before.

A flush that reads has the highest priority in the cache, `evict_last`, so that nothing outlives it: after one of
ordinary priority, a kernel that loads 4 MiB with `evict_last` took 2.24 us instead of 2.56 us on an H200. Kernels that
do not ask take as long after the one as after the other, and both flushes took 34 us without the code below. Its lines
are given the ordinary priority then, in 11 us: a call of several kernels would find a cache that keeps none of what it
writes. Medians on an H200, without that, with it, and after the driver gave all lines the ordinary priority: a GELU of
nine kernels on 16 MiB 82.0, 75.9 and 75.9 us, a layer norm of eight 78.7, 73.3 and 73.1 us, calls of one kernel the
same. A flush that writes has the ordinary priority: with the highest, kernels that do not ask took 11 % less than those
that do, on an H100. So the driver gives all lines that priority first: a kernel that loads 4 MiB then took 4.0 us, as
after a flush that reads and one of the highest priority whose lines were given the ordinary one; without it, 2.4 us.

Both run 128 KiB of code on each multiprocessor, so that the timed kernel's instructions come from memory, whatever ran
before. Without that, on an H200, a `torch.max` of 38.3 us took 39.1 us after other kernels, 38.9 us in turn with
another function's, and 39.8 us judged in a process of its own; a cross entropy of 12.0 us took 12.4 us after other
kernels. The code adds 13 us to a flush.
"""

from collections.abc import Callable
from functools import cache as memoise
from typing import TYPE_CHECKING

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.persisting import driver_library
from pytest_gpubench.settings.cache import Cache, Producer
from pytest_gpubench.timing.base import unwarned
from pytest_gpubench.units import format_bytes

if TYPE_CHECKING:
    import torch

CACHES_READ = 2
"""The size of a flush in caches: on an H200 twice the cache was as good as 256 MiB (4.3 times)."""

Flush = Callable[[], object]


def make_flush(device: Device, cache: Cache) -> Flush:
    """Return the function that brings the cache into a state."""
    if isinstance(cache, Producer):
        flush = make_flush(device, "cold")
        return lambda: (flush(), cache.run(device.synchronize))
    if cache == "hot":
        return lambda: None
    buffer = flush_buffer(device)
    if device.type == "cpu":
        import torch

        # torch converts smaller integers to int64 before it adds them, which takes 30 times as long
        return buffer.view(torch.int64).sum if cache == "cold" else buffer.zero_
    from pytest_gpubench.timing import kernels

    flush_gpu = kernels.flush_of(buffer, overwrites=cache == "dirty")
    with unwarned():
        flush_gpu()
    if cache == "cold":
        return flush_gpu
    driver = driver_library()

    def flush_ordinary() -> None:
        if driver is not None:
            driver.cuCtxResetPersistingL2Cache()  # which gives all lines the ordinary priority
        flush_gpu()

    return flush_ordinary


@memoise
def flush_buffer(device: Device) -> "torch.Tensor":
    """Return the buffer of a device, written once so that its pages exist; it is kept for the process's life."""
    import torch

    flush_bytes = CACHES_READ * device.cache_bytes
    try:
        with torch.inference_mode(False):  # or nobody could write to it outside of that mode
            return torch.zeros(flush_bytes // 8 * 2, dtype=torch.int32, device=device.torch_device)
    except RuntimeError as error:  # torch.OutOfMemoryError on a GPU, a plain RuntimeError on the CPU
        on_cpu = device.type == "cpu"
        free = "too little" if on_cpu else format_bytes(torch.cuda.mem_get_info(device.torch_device)[0])
        raise DeviceUnavailable(
            f"no room on {device.facts.name} for the buffer that flushes the cache: asked for "
            f"{format_bytes(flush_bytes)}, found {free} free; free memory first, or use cache='hot'"
        ) from error
