"""The record on disk of the clocks that are locked on a GPU, and for whom."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from pytest_gpubench.errors import BadFile, DeviceUnavailable
from pytest_gpubench.gpu.clocks.target import clock_text
from pytest_gpubench.gpu.lock import Holder, LockFile, Patience, ignore

SUFFIX = ".clocks.json"
RECORD_BYTES = 2**16
GUARD_S = 10.0
"""Others change the clocks of a GPU for some milliseconds at a time."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Owner(msgspec.Struct, frozen=True):
    """Who wants clocks to stay locked: a process, by its number and start, under one boot of the host."""

    boot: str | None
    number: int
    """Which of the locks of its process."""
    holder: Holder

    @property
    def lives(self) -> bool:
        """Whether it may still want them; True where that cannot be seen, as of another container's process.

        The GPU is here, so whoever locked its clocks under another boot has ended.
        """
        return self.boot == boot_id() and not self.holder.has_ended


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to the clocks of a GPU, and for whom."""

    gpu: str
    graphics: int
    """As NVML takes it: MHz, or CLOCK_LIMIT_TDP."""
    memory: int | None
    """MHz; None where the memory's clock was left alone."""
    owners: tuple[Owner, ...]

    @property
    def living(self) -> tuple[Owner, ...]:
        """The owners that may still want it so."""
        return tuple(owner for owner in self.owners if owner.lives)

    def __str__(self) -> str:
        memory = "" if self.memory is None else f" (memory {self.memory} MHz)"
        return clock_text(self.graphics) + memory


def describe_abandoned(record: Record) -> str:
    """Return in one clause whose clocks nobody has given back."""
    whose = f"{record.owners[-1].holder}, which has ended" if record.owners else "nobody"
    return f"the clocks of {record.gpu} were left locked at {record} by {whose}"


def describe_living(record: Record) -> str:
    """Return in one clause for whom clocks are locked."""
    return f"the clocks of {record.gpu} are locked at {record} by {', '.join(str(own.holder) for own in record.living)}"


def boot_id() -> str | None:
    """Return what tells this boot of the host from all others, the same in its containers; None if it is not said."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return None


def record_path(folder: Path, uuid: str) -> Path:
    """Return where the record of a GPU's clocks is."""
    return folder / f"{uuid}{SUFFIX}"


@contextmanager
def guarded(folder: Path, uuid: str) -> Iterator[None]:
    """Keep others from reading and changing the clocks of a GPU and their record; for milliseconds."""
    guard = LockFile(folder, f"{uuid}.clocks")
    obstacle = f"another process that is changing the clocks of {uuid}"
    Patience(GUARD_S, ignore).wait_until(lambda: None if guard.try_acquire() else obstacle)
    try:
        yield
    finally:
        guard.release()


def read_record(path: Path) -> Record | None:
    """Return a record; None where there is none. Raises BadFile for one that is damaged."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from None
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        text = os.read(descriptor, RECORD_BYTES) if regular else b""
    finally:
        os.close(descriptor)
    try:
        record = msgspec.json.decode(text, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise damaged(path, str(error) if regular else "not a regular file") from None
    if record.gpu != path.name.removesuffix(SUFFIX):
        raise damaged(path, "it is of another GPU")
    return record


def damaged(path: Path, why: str) -> BadFile:
    """Return the error for a record that says nothing."""
    gpu = path.name.removesuffix(SUFFIX)
    return BadFile(f"the record of the clocks of {gpu}, {path}, is damaged ({why}), so they may be locked")


def write_record(path: Path, record: Record) -> None:
    """Write a record, all of it or nothing; raise DeviceUnavailable where it cannot be written.

    To be called with the guard held. The folder may be open to all, so nothing that lies in it is written to.
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
    """Remove a record; return why that is impossible, None where it is not."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        return f"{path} cannot be removed ({error.strerror or error}): remove it by hand"
    return None
