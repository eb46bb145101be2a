"""The lock on the clocks of a GPU: recorded, set, and given back when nobody wants it any more."""

import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import msgspec

from pytest_gpubench.errors import BadFile, DeviceUnavailable
from pytest_gpubench.gpu.clocks.changes import (
    change,
    explain,
    is_refusal,
    is_unsupported,
    open_gpu,
    refuse_mig,
    reset_clocks,
)
from pytest_gpubench.gpu.clocks.ends import Ends
from pytest_gpubench.gpu.clocks.record import (
    Owner,
    Record,
    boot_id,
    describe_abandoned,
    guarded,
    read_record,
    record_path,
    remove_record,
    write_record,
)
from pytest_gpubench.gpu.clocks.target import CLOCK_LIMIT_TDP, Target, choose_target, clock_text
from pytest_gpubench.gpu.lock import Holder, ignore
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.settings import ClockWish

Say = Callable[[str], None]
ENDS: "Ends[ClockLock]" = Ends()
"""Of all the locks of this process."""


class ClockLock:
    """The clocks of one GPU, locked for the length of a `with` block; also used with `acquire` and `release`.

    They are given back at its end, at the end of the process, on SIGINT, SIGTERM and SIGHUP before what these did so
    far, and after any other death by `restore_abandoned`. Locks of several processes or threads share a GPU if they
    want the same clock: the last one gives it back. `say` gets a sentence where things are not quite as asked for.

    folder: where the records are; those who may share a GPU need the same, so it is the folder of the locks.
    nvml: the GPU; None opens it. Only in the main thread do signals give the clocks back.
    """

    _numbers = itertools.count()

    def __init__(self, uuid: str, wish: ClockWish, folder: Path, say: Say = ignore, nvml: Nvml | None = None) -> None:
        self.uuid = uuid
        self.wish = wish
        self.held = False
        self.record: Record | None = None
        """What is locked; None before anything was."""
        self._folder = folder
        self._path = record_path(folder, uuid)
        self._say = say
        self._nvml = nvml
        self._owner: Owner | None = None

    @property
    def graphics_mhz(self) -> int | None:
        """The clock locked; None without one, and for a base clock that NVML knows without saying it."""
        return None if self.record is None or self.record.graphics == CLOCK_LIMIT_TDP else self.record.graphics

    def acquire(self) -> None:
        """Lock the clocks; raise DeviceUnavailable, with nothing changed, where that cannot be."""
        if self.held:
            raise RuntimeError(f"the clocks of {self.uuid} are locked by this object already")
        nvml = self._nvml = self._nvml or open_gpu(self.uuid)
        refuse_mig(nvml, self.uuid)
        target = choose_target(nvml, self.uuid, self.wish)
        ENDS.add(self)
        try:
            with ENDS.postponed(), guarded(self._folder, self.uuid):
                self._lock(nvml, target)
        finally:
            if not self.held:
                ENDS.remove(self)
        if target.remark:
            self._say(target.remark)

    def release(self) -> None:
        """Give the clocks back, unless others want them, too; in a forked child only forget them."""
        owner = self._owner
        if not self.held or owner is None or self._nvml is None:
            return
        if owner.holder.pid != os.getpid():
            self.held = False
            ENDS.remove(self)
            return
        with ENDS.postponed():
            with guarded(self._folder, self.uuid):
                problem = self._unlock(self._nvml, owner)
            self.held = False
            ENDS.remove(self)
        if problem:
            self._say(problem)

    def __enter__(self) -> "ClockLock":
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _lock(self, nvml: Nvml, target: Target) -> None:
        owner = Owner(boot_id(), next(self._numbers), Holder.of_this_process())
        found = self._clear(nvml)
        if found is None:
            record = Record(gpu=self.uuid, graphics=target.graphics, memory=target.memory, owners=(owner,))
            write_record(self._path, record)
            record = self._change_all(nvml, record)
        elif found.graphics == target.graphics:
            record = msgspec.structs.replace(found, owners=(*found.living, owner))
            write_record(self._path, record)
        else:
            raise DeviceUnavailable(
                f"asked to lock the clocks of {self.uuid} at {clock_text(target.graphics)}, but "
                f"{found.living[0].holder} has locked them at {found}: ask for the same, or wait until it has ended"
            )
        self._owner, self.record, self.held = owner, record, True

    def _clear(self, nvml: Nvml) -> Record | None:
        """Return what others have locked; None where nobody has, the clocks being the GPU's own choice then."""
        try:
            found = read_record(self._path)
        except BadFile as error:
            sentence = str(error)
        else:
            if found is None or found.living:
                return found
            sentence = describe_abandoned(found)
        if problem := give_back(nvml, self.uuid, self._path):
            raise DeviceUnavailable(f"{sentence}; {problem}")
        self._say(f"{sentence}; they are given back")
        return None

    def _change_all(self, nvml: Nvml, record: Record) -> Record:
        """Set the clocks of a record that is written; return what was set, or take all of it back and raise."""
        try:
            return self._change(nvml, record)
        except DeviceUnavailable:
            raise
        except BaseException:  # of a timeout's signal, say
            give_back(nvml, self.uuid, self._path)
            raise

    def _change(self, nvml: Nvml, record: Record) -> Record:
        library = nvml.library
        try:
            change(nvml, "SetGpuLockedClocks", record.graphics, record.graphics)
        except library.NVMLError as error:
            problem = None if is_refusal(error, library) else reset_clocks(nvml, self.uuid)
            raise self._failure(nvml, error, problem) from None
        try:
            change(nvml, "SetMemoryLockedClocks", record.memory, record.memory)
        except library.NVMLError as error:
            if not is_unsupported(error, library):
                raise self._failure(nvml, error, reset_clocks(nvml, self.uuid)) from None
            record = msgspec.structs.replace(record, memory=None)
            with suppress(DeviceUnavailable):  # the record names the memory, too, which does no harm
                write_record(self._path, record)
            self._say(f"the memory clock of {self.uuid} cannot be locked, only that of its multiprocessors is")
        return record

    def _failure(self, nvml: Nvml, error: Exception, problem: str | None) -> DeviceUnavailable:
        """Return the error to raise for one of NVML's; forget the record unless there was a problem with undoing it."""
        problem = problem or remove_record(self._path)
        sentence = f"asked to lock the clocks of {self.uuid}, but {explain(error, nvml.library)}"
        return DeviceUnavailable(f"{sentence}; {problem}" if problem else sentence)

    def _unlock(self, nvml: Nvml, owner: Owner) -> str | None:
        """Take this lock out of the record, and the last one the clocks with it; return what went wrong."""
        with suppress(BadFile):
            found = read_record(self._path)
            others = tuple(other for other in found.living if other != owner) if found else ()
            if found and others:
                with suppress(DeviceUnavailable):  # what stays in it is found dead when this process has ended
                    write_record(self._path, msgspec.structs.replace(found, owners=others))
                return None
        return give_back(nvml, self.uuid, self._path)


def give_back(nvml: Nvml, uuid: str, path: Path) -> str | None:
    """Leave the clocks to the GPU again and forget their record; return what was in the way, None where nothing was."""
    return reset_clocks(nvml, uuid) or remove_record(path)


def lock_of(uuid: str | None) -> ClockLock | None:
    """Return the lock that this process holds on the clocks of a GPU; None where it holds none."""
    return next((lock for lock in ENDS.locks if lock.held and lock.uuid == uuid), None)
