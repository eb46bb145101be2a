"""The turn at a device of code outside of pytest, and the names of a device's locks: the same as a test's."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.gpu.lock import CPU, Claim, GpuLock, Patience, claim_gpu
from pytest_gpubench.gpu.lock_file import lock_folder_of
from pytest_gpubench.gpu.visible import VisibleGpu, find_visible, same_gpu
from pytest_gpubench.settings import Settings


@contextmanager
def turn_at(device: Device, settings: Settings, title: str, claims: bool = True) -> Iterator[None]:
    """Hold a device as a test does, and claim a GPU until the process ends; do nothing where nothing is timed.

    title: what it is held for, in the messages of those who wait. claims: False for a process that uses the GPU between
    its turns too, so that others report it as foreign.
    """
    if not settings.takes_times:
        yield
        return
    names = cpu_lock_names() if device.type == "cpu" else (_lock_name(device.facts.uuid or "GPU-unknown"),)
    folder = lock_folder_of(settings)
    if claims and device.type == "cuda":
        claim_once(names[0], folder)
    lock = GpuLock(names, folder, Holder.of_this_process(title))
    lock.acquire(Patience(settings.lock_timeout, _say))
    try:
        yield
    finally:
        lock.release()


def cpu_lock_names() -> tuple[str, ...]:
    """Return the names of the locks of this host's CPU, which are the same in all of its containers until it boots.

    There are none for the ranks of a distributed job (as of torchrun) but its first on the host, which waits for them.
    """
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return ()
    with suppress(OSError):
        return (CPU + Path("/proc/sys/kernel/random/boot_id").read_text()[:8],)
    return (CPU + socket.gethostname(),)


@cache
def _lock_name(uuid: str) -> str:
    """Return the UUID that names a GPU's locks, which is NVML's."""
    return next((gpu.uuid for gpu in find_visible() if same_gpu(gpu.uuid, uuid)), uuid)


@cache
def claim_once(uuid: str, folder: Path) -> Claim:
    """Claim a GPU, so that others do not call this process foreign; the cache keeps the claim."""
    return claim_gpu([VisibleGpu(uuid, None, "")], folder)


def _say(sentence: str) -> None:
    print(f"gpu_bench: {sentence}", file=sys.stderr, flush=True)
