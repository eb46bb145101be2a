"""Which GPU a worker takes for its own, so that the workers of a host spread over its GPUs."""

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.visible import VisibleGpu

if TYPE_CHECKING:
    from pytest_gpubench.gpu.lock import Holder, LockFile

CUDA_ERROR_NOT_INITIALIZED = 3


@dataclass(frozen=True, eq=False)
class Claim:
    """GPUs that a process has taken for its own until it ends; others may share them, but come last to it."""

    gpus: tuple[VisibleGpu, ...]
    files: "tuple[LockFile, ...]"

    def environment(self, also: Iterable[VisibleGpu] = ()) -> dict[str, str]:
        """Return the variables that pin CUDA to the claimed GPUs, with others after them that may be used by turns."""
        uuids = [gpu.uuid for gpu in (*self.gpus, *also)]
        return {"CUDA_VISIBLE_DEVICES": ",".join(dict.fromkeys(uuids))}

    def release(self) -> None:
        """Give the GPUs back; a process that ends, in whatever way, has done so."""
        for file in self.files:
            file.release()


def claim_gpu(visible: Sequence[VisibleGpu], folder: Path | None = None, note: "Holder | None" = None) -> Claim:
    """Take the GPU that the fewest have taken, the first of those; raise DeviceUnavailable if none is visible.

    Nothing is waited for: with more workers than GPUs, GPUs are shared.
    """
    from pytest_gpubench.gpu.lock import Holder, default_folder

    if not visible:
        raise DeviceUnavailable("a GPU was asked for, but none is visible: see CUDA_VISIBLE_DEVICES and nvidia-smi -L")
    folder, note = folder or default_folder(), note or Holder.of_this_process()
    seats = ((gpu, seat_file(folder, gpu.uuid, seat)) for seat in itertools.count() for gpu in visible)
    gpu, file = next((gpu, file) for gpu, file in seats if file.try_acquire(note))
    return Claim((gpu,), (file,))


def seat_file(folder: Path, uuid: str, seat: int) -> "LockFile":
    """Return the lock that stands for one of the places at a GPU."""
    from pytest_gpubench.gpu.lock import LockFile

    return LockFile(folder, f"{uuid}.seat{seat}")


def claimants(uuid: str, folder: Path | None = None) -> frozenset[int]:
    """Return the process ids, of this container, that have claimed a GPU: they use it only when it is their turn."""
    from pytest_gpubench.gpu.lock import LockFile, default_folder

    folder = folder or default_folder()
    seats = folder.glob(seat_file(folder, uuid, 0).path.with_suffix(".seat*").name)
    notes = [LockFile(folder, path.name).holder() for path in seats]
    return frozenset(note.pid for note in notes if note is not None and note.is_local and not note.has_ended)


def cuda_was_initialised(modules: Mapping[str, Any] = sys.modules) -> bool:
    """Tell whether CUDA has been started in this process, after which CUDA_VISIBLE_DEVICES changes nothing.

    The driver is asked, if it is loaded, since counting GPUs starts it already, and not only torch may; nothing is
    imported or started by asking.
    """
    torch = modules.get("torch")
    with suppress(AttributeError):  # a torch that is being imported
        if torch is not None and torch.cuda.is_initialized():
            return True
    return driver_was_initialised()


def driver_was_initialised() -> bool:
    """Tell whether cuInit was called in this process."""
    import ctypes
    import os

    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != CUDA_ERROR_NOT_INITIALIZED)
    except (OSError, AttributeError):
        return False
