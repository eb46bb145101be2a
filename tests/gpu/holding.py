"""GPUs held for a block, processes that hold some, and what those leave that died."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench import DeviceUnavailable
from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.gpu.lock import GpuLock, Patience
from pytest_gpubench.gpu.lock_file import LockFile

IMPORTS = """
import json, os, sys
from pathlib import Path
from pytest_gpubench import DeviceUnavailable
from pytest_gpubench.gpu.lock import claim_gpu
from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.gpu.lock import GpuLock, Patience, take_over_turns
from pytest_gpubench.gpu.lock_file import LockFile
from pytest_gpubench.gpu.visible import VisibleGpu
folder = Path(sys.argv[1])
"""
"""The first lines of every script; the folder of the locks is its first argument."""
Start = Callable[..., "subprocess.Popen[str]"]


def another(test: str = "") -> Holder:
    """Return the note of a process in another container, with the id of this one."""
    return msgspec.structs.replace(Holder.of_this_process(test, "pytest another"), namespace="another")


@contextmanager
def held(lock: GpuLock, timeout_s: float | None = None) -> Iterator[None]:
    """Hold the GPUs of a lock; raise DeviceUnavailable where that takes longer."""
    lock.acquire(Patience(timeout_s))
    try:
        yield
    finally:
        lock.release()


def refusal(turn: LockFile, note: bytes) -> str:
    """Return why a GPU is not to be had while its lock is held with this note."""
    assert turn.try_acquire()
    turn.path.write_bytes(note)
    with pytest.raises(DeviceUnavailable) as caught:
        GpuLock("GPU-1", turn.path.parent).acquire(Patience(0))
    turn.release()
    return str(caught.value)


def hear(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def tell(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def leave_clocks_locked(folder: Path, gpu: str) -> None:
    """Leave the record of a process that locked the clocks and died."""
    holder = msgspec.structs.replace(Holder.of_this_process(), started=1)
    record = {"graphics": 1410, "memory": 3201, "holder": holder}
    folder.mkdir(exist_ok=True)
    (folder / f"{gpu}.clocks.json").write_bytes(msgspec.json.encode(record))
