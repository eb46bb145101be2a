"""GPUs held for a block, and processes that hold some."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pytest_gpubench.gpu.lock import GpuLock, Patience

Start = Callable[..., "subprocess.Popen[str]"]


@contextmanager
def held(lock: GpuLock, timeout_s: float | None = None) -> Iterator[None]:
    """Hold the GPUs of a lock; raise DeviceUnavailable where that takes longer."""
    lock.acquire(Patience(timeout_s))
    try:
        yield
    finally:
        lock.release()


def hear(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def tell(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
