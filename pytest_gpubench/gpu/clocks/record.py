"""The record on disk of the clocks that are locked on a GPU, and of the processes that want them locked."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from pytest_gpubench.errors import BadFile, DeviceUnavailable
from pytest_gpubench.gpu.clocks.changes import clock_text, reset_clocks
from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.gpu.lock import Patience
from pytest_gpubench.gpu.lock_file import ForeignFile, LockFile, read_regular
from pytest_gpubench.gpu.nvml import Nvml

SUFFIX = ".clocks.json"
RECORD_BYTES = 2**16
GUARD_S = 10.0
"""Others change the clocks of a GPU for some milliseconds at a time."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Owner(msgspec.Struct, frozen=True):
    """One lock of a process, and the boot of the host under which the process runs."""

    boot: str | None
    number: int
    """Tells the locks of one process apart."""
    holder: Holder

    @property
    def lives(self) -> bool:
        """True if the process may still run, or that cannot be seen, as in another container.

        The GPU is in this host, so processes of another boot have ended.
        """
        return self.boot == boot_id() and not self.holder.has_ended


class ClockRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The clocks that were locked on a GPU, and for which owners."""

    gpu: str
    graphics: int
    """As NVML takes it: MHz, or CLOCK_LIMIT_TDP."""
    memory: int | None
    """MHz; None where the memory clock was left alone."""
    owners: tuple[Owner, ...]

    @property
    def living(self) -> tuple[Owner, ...]:
        """The owners that may still run."""
        return tuple(owner for owner in self.owners if owner.lives)

    def __str__(self) -> str:
        memory = "" if self.memory is None else f" (memory {self.memory} MHz)"
        return clock_text(self.graphics) + memory


def boot_id() -> str | None:
    """Return the id of this boot of the host, the same in its containers; None where it is not told."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return None


def record_path(folder: Path, uuid: str) -> Path:
    """Return the path of the record of a GPU's clocks."""
    return folder / f"{uuid}{SUFFIX}"


@contextmanager
def guarded(folder: Path, uuid: str) -> Iterator[None]:
    """Keep other processes from the clocks of a GPU and their record; for milliseconds."""
    guard = LockFile(folder, f"{uuid}.clocks")
    obstacle = f"another process that is changing the clocks of {uuid}"
    Patience(GUARD_S).wait_until(lambda: None if guard.try_acquire() else obstacle)
    try:
        yield
    finally:
        guard.release()


def look_up(path: Path) -> tuple[ClockRecord | None, str | None]:
    """Return a record, and in one clause why its clocks must be reset; None where there is none or they need not."""
    try:
        record = read_record(path)
    except BadFile as error:
        return None, str(error)
    if record is None or record.living:
        return record, None
    whose = f"{record.owners[-1].holder}, which has ended" if record.owners else "nobody"
    return record, f"the clocks of {record.gpu} were left locked at {record} by {whose}"


def trusted_users() -> tuple[int, ...]:
    """Return the users whose records are believed: the folder is open to all, and a record can reset clocks."""
    return 0, os.geteuid()


def read_record(path: Path) -> ClockRecord | None:
    """Return a record; None where there is none of root or this user. Raises BadFile for a damaged one."""
    gpu = path.name.removesuffix(SUFFIX)
    try:
        record = msgspec.json.decode(read_regular(path, RECORD_BYTES, trusted_users()), type=ClockRecord)
        if record.gpu != gpu:
            raise ValueError("it is of another GPU")
    except (FileNotFoundError, ForeignFile):
        return None
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadFile(f"the record of the clocks of {gpu}, {path}, is damaged ({why}), so they may be locked") from None
    return record


def write_record(path: Path, record: ClockRecord) -> None:
    """Write a record, all of it or nothing, with the guard held; raise DeviceUnavailable where that fails.

    The folder may be open to all, so no file that lies in it is written to.
    """
    new = path.with_suffix(".new")
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with open(descriptor, "wb") as file:
            file.write(msgspec.json.encode(record))
        os.replace(new, path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise DeviceUnavailable(
            f"asked to lock the clocks of {record.gpu}, but the record that they are given back by cannot be written "
            f"to {path} ({error.strerror or error}): give another folder with --gpu-bench-lock-folder"
        ) from None


def remove_record(path: Path) -> str | None:
    """Remove a record; return why that failed, None where it did not."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        return f"{path} cannot be removed ({error.strerror or error}): remove it by hand"
    return None


def reset_recorded(nvml: Nvml, uuid: str, path: Path) -> str | None:
    """Leave the clocks to the GPU again and remove their record; return why that failed, None where it did not."""
    return reset_clocks(nvml, uuid) or remove_record(path)
