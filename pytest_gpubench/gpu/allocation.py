"""Which GPU a worker takes for its own, so that the workers of a host spread over its GPUs."""

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    sharers: int
    """How many took the most shared of the GPUs before: 0 where they are this process's alone."""

    def environment(self, also: Iterable[VisibleGpu] = ()) -> dict[str, str]:
        """Return the variables that pin CUDA to the claimed GPUs, with others after them that may be used by turns."""
        uuids = [gpu.uuid for gpu in (*self.gpus, *also)]
        return {"CUDA_VISIBLE_DEVICES": ",".join(dict.fromkeys(uuids))}

    def release(self) -> None:
        """Give the GPUs back; a process that ends, in whatever way, has done so."""
        for file in self.files:
            file.release()


def claim_gpu(visible: Sequence[VisibleGpu], folder: Path | None = None, note: "Holder | None" = None) -> Claim:
    """Take the GPU that the fewest have taken, the first of those; raise DeviceUnavailable if none is visible."""
    return claim_gpus(visible, 1, folder, note)


def claim_gpus(
    visible: Sequence[VisibleGpu], count: int, folder: Path | None = None, note: "Holder | None" = None
) -> Claim:
    """Take so many different GPUs, of those that the fewest have taken; raise DeviceUnavailable if there are fewer.

    Nothing is waited for: with more workers than GPUs, GPUs are shared.
    """
    from pytest_gpubench.gpu.lock import Holder, default_folder

    visible = list(dict.fromkeys(visible))
    if len(visible) < count:
        asked = "1 GPU was" if count == 1 else f"{count} GPUs were"
        found = "1 is" if len(visible) == 1 else f"{len(visible)} are"
        raise DeviceUnavailable(f"{asked} asked for, but {found} visible: see CUDA_VISIBLE_DEVICES and nvidia-smi -L")
    note = note or Holder.of_this_process()
    taken = list(itertools.islice(_take_lowest_seats(visible, folder or default_folder(), note), count))
    order = sorted(taken, key=lambda each: visible.index(each[0]))
    return Claim(tuple(gpu for gpu, _, _ in order), tuple(file for _, file, _ in order), max(s for _, _, s in order))


def _take_lowest_seats(
    visible: Sequence[VisibleGpu], folder: Path, note: "Holder"
) -> "Iterator[tuple[VisibleGpu, LockFile, int]]":
    """Take seat after seat of each GPU: all first seats before any second one, and one seat of each GPU."""
    seated: set[VisibleGpu] = set()
    for seat in itertools.count():
        for gpu in visible:
            file = seat_file(folder, gpu.uuid, seat)
            if gpu not in seated and file.try_acquire(note):
                seated.add(gpu)
                yield gpu, file, seat


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
