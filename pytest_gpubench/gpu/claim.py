"""The GPU that a process claims for its own, so that the workers of a host spread over its GPUs."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.gpu.lock_file import LockFile
from pytest_gpubench.gpu.visible import VisibleGpu


@dataclass(frozen=True, eq=False)
class Claim:
    """A GPU that a process has claimed until it ends; others may claim it too, where there are too few GPUs."""

    gpu: VisibleGpu
    file: LockFile

    def release(self) -> None:
        """Give the GPU back, as the end of the process does too."""
        self.file.release()


def claim_gpu(visible: Sequence[VisibleGpu], folder: Path) -> Claim:
    """Claim the first of the GPUs that the fewest have claimed; raise DeviceUnavailable if none is visible.

    With more workers than GPUs they share GPUs: nothing is waited for.
    """
    if not visible:
        raise DeviceUnavailable("a GPU was asked for, but none is visible: see CUDA_VISIBLE_DEVICES and nvidia-smi -L")
    note = Holder.of_this_process()
    seats = ((gpu, _seat_file(folder, gpu.uuid, seat)) for seat in itertools.count() for gpu in visible)
    return next(Claim(gpu, file) for gpu, file in seats if file.try_acquire(note))


def claimants(uuid: str, folder: Path) -> frozenset[int]:
    """Return the ids of this container's processes that have claimed a GPU: they use it only in their turn."""
    seats = folder.glob(_seat_file(folder, uuid, 0).path.with_suffix(".seat*").name)
    notes = [LockFile(folder, path.name).holder() for path in seats]
    return frozenset(note.pid for note in notes if note is not None and note.is_local and not note.has_ended)


def _seat_file(folder: Path, uuid: str, seat: int) -> LockFile:
    return LockFile(folder, f"{uuid}.seat{seat}")
