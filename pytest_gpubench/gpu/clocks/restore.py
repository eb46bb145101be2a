"""Reset the clocks that processes left locked when they died."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_gpubench.errors import GpuBenchError
from pytest_gpubench.gpu.clocks.lock import SIGNALS
from pytest_gpubench.gpu.clocks.record import SUFFIX, boot_id, guarded, look_up, reset_recorded
from pytest_gpubench.gpu.nvml import Nvml


@dataclass(frozen=True)
class Restored:
    """The locked clocks of one GPU that were found, and whether they stay locked."""

    sentence: str
    left: bool = False
    in_use: bool = False
    """True if they stay locked for a process that may still run."""


def restore_abandoned(folder: Path) -> list[Restored]:
    """Reset the clocks of every GPU whose record in this folder has no living owner; return what was found.

    Without records no GPU is opened.
    """
    return list(_restore(folder))


def _restore(folder: Path) -> Iterator[Restored]:
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        uuid = path.name.removesuffix(SUFFIX)
        try:
            with SIGNALS.postponed(), guarded(folder, uuid):
                restored = _restore_one(path, uuid)
        except GpuBenchError as error:
            restored = Restored(f"the clocks of {uuid} may be locked, and are not given back: {error}", left=True)
        if restored is not None:
            yield restored


def _restore_one(path: Path, uuid: str) -> Restored | None:
    record, abandoned = look_up(path)
    if abandoned is None:
        if record is None:
            return None  # its owner has just reset them
        owners = ", ".join(str(owner.holder) for owner in record.living)
        sentence = f"the clocks of {uuid} are locked at {record} by {owners}: they are left alone"
        return Restored(sentence, left=True, in_use=True)
    try:
        nvml = Nvml.open(uuid)
    except RuntimeError as error:
        if record and all(owner.boot != boot_id() for owner in record.owners):
            return None  # the record of another host that uses the same folder
        return Restored(f"{abandoned}, and are not given back: {error}", left=True)
    if problem := reset_recorded(nvml, uuid, path):
        return Restored(f"{abandoned}; {problem}", left=True)
    return Restored(f"{abandoned}; they are given back")
