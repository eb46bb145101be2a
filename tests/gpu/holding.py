"""GPUs held for a block."""

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_gpubench.gpu.lock import GpuLock


@contextmanager
def held(lock: GpuLock, timeout_s: float | None = None) -> Iterator[None]:
    """Hold the GPUs of a lock; raise DeviceUnavailable where that takes longer."""
    lock.acquire(timeout_s)
    try:
        yield
    finally:
        lock.release()
