"""A turn at the GPU for code outside of pytest: the same locks as a test's."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.gpu.lock import Claim, GpuLock, Patience, claim_gpu
from pytest_gpubench.gpu.visible import VisibleGpu, find_visible, same_gpu


@contextmanager
def turn_at(device: Device, folder: Path, timeout_s: float | None, title: str, claims: bool = True) -> Iterator[None]:
    """Hold a GPU as a test does, and claim it until the process ends; do nothing for the CPU.

    timeout_s: None waits for ever. title: what it is held for, in the messages of those who wait. claims: False for a
    process that uses the GPU between its turns too, so that others report it as foreign.
    """
    if device.type != "cuda":
        yield
        return
    uuid = _lock_name(device.facts.uuid or "GPU-unknown")
    if claims:
        _claim(uuid, folder)
    lock = GpuLock(uuid, folder, Holder.of_this_process(title))
    lock.acquire(Patience(timeout_s, _say))
    try:
        yield
    finally:
        lock.release()


@cache
def _lock_name(uuid: str) -> str:
    """Return the UUID that names a GPU's locks, which is NVML's."""
    return next((gpu.uuid for gpu in find_visible() if same_gpu(gpu.uuid, uuid)), uuid)


@cache
def _claim(uuid: str, folder: Path) -> Claim:
    """Claim a GPU, so that others do not call this process foreign; the cache keeps the claim."""
    return claim_gpu([VisibleGpu(uuid, None, "")], folder)


def _say(sentence: str) -> None:
    print(f"gpu_bench: {sentence}", file=sys.stderr, flush=True)
