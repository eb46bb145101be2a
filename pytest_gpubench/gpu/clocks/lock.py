"""The lock on the clocks of a GPU: recorded, set, and reset when nobody wants it any more."""

import atexit
import itertools
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import msgspec

from pytest_gpubench.errors import BadFile, DeviceUnavailable
from pytest_gpubench.gpu.clocks.changes import (
    CLOCK_LIMIT_TDP,
    Target,
    choose_target,
    clock_text,
    explain,
    is_refusal,
    is_unsupported,
    open_gpu,
    set_clock,
)
from pytest_gpubench.gpu.clocks.record import (
    ClockRecord,
    Owner,
    boot_id,
    guarded,
    look_up,
    read_record,
    record_path,
    remove_record,
    reset_recorded,
    write_record,
)
from pytest_gpubench.gpu.clocks.signals import EndSignals
from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.gpu.lock import ignore
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.settings.parsers import ClockWish
from pytest_gpubench.units import safe_line


class ClockLock:
    """The clocks of one GPU, locked for the length of a `with` block; also used with `acquire` and `release`.

    They are reset at the end of the block, at the end of the process, before SIGINT, SIGTERM and SIGHUP in the main
    thread, and after any other death by `restore_abandoned`. Locks of several processes or threads share a GPU if they
    want the same clock, and the last one resets it.

    folder: where the records are, the same for all who may share a GPU: the lock folder.
    say: gets a sentence where the clocks are not quite as asked for.
    """

    _numbers = itertools.count()

    def __init__(self, uuid: str, wish: ClockWish, folder: Path, say: Callable[[str], None] = ignore) -> None:
        self.uuid = uuid
        self.wish = wish
        self.record: ClockRecord | None = None
        """The last clocks locked; None before any were."""
        self._folder = folder
        self._path = record_path(folder, uuid)
        self._say = say
        self._held: tuple[Nvml, Owner] | None = None

    @property
    def held(self) -> bool:
        """True if this object holds the clocks."""
        return self._held is not None

    @property
    def graphics_mhz(self) -> int | None:
        """The locked clock; None without one, and for a base clock, whose MHz NVML does not say."""
        return None if self.record is None or self.record.graphics == CLOCK_LIMIT_TDP else self.record.graphics

    def acquire(self) -> None:
        """Lock the clocks; raise DeviceUnavailable, with nothing changed, where that cannot be."""
        if self.held:
            raise RuntimeError(f"the clocks of {self.uuid} are locked by this object already")
        nvml = open_gpu(self.uuid)
        target = choose_target(nvml, self.uuid, self.wish)
        LOCKS.append(self)
        SIGNALS.install()
        try:
            with SIGNALS.postponed(), guarded(self._folder, self.uuid):
                self._lock(nvml, target)
        finally:
            if not self.held:
                self._forget()
        if target.remark:
            self._say(target.remark)

    def release(self) -> None:
        """Reset the clocks unless other locks want them too; a forked child only forgets the lock."""
        if self._held is None:
            return
        nvml, owner = self._held
        if owner.holder.pid != os.getpid():
            self._forget()
            return
        with SIGNALS.postponed():
            with guarded(self._folder, self.uuid):
                problem = self._unlock(nvml, owner)
            self._forget()
        if problem:
            self._say(problem)

    def __enter__(self) -> "ClockLock":
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _forget(self) -> None:
        self._held = None
        if self in LOCKS:
            LOCKS.remove(self)
        if not LOCKS:
            SIGNALS.remove()

    def _lock(self, nvml: Nvml, target: Target) -> None:
        owner = Owner(boot_id(), next(self._numbers), Holder.of_this_process())
        found = self._living_record(nvml)
        if found is None:
            record = ClockRecord(gpu=self.uuid, graphics=target.graphics, memory=target.memory, owners=(owner,))
            write_record(self._path, record)
            record = self._set(nvml, record, target.memory)
        elif found.graphics == target.graphics:
            record = msgspec.structs.replace(found, owners=(*found.living, owner))
            write_record(self._path, record)
        else:
            raise DeviceUnavailable(
                f"asked to lock the clocks of {self.uuid} at {clock_text(target.graphics)}, but "
                f"{found.living[0].holder} has locked them at {found}: ask for the same, or wait until it has ended"
            )
        self.record, self._held = record, (nvml, owner)

    def _living_record(self, nvml: Nvml) -> ClockRecord | None:
        """Return the clocks that others have locked; None if nobody has, after resetting those left locked."""
        found, abandoned = look_up(self._path)
        if abandoned is None:
            return found
        if problem := reset_recorded(nvml, self.uuid, self._path):
            raise DeviceUnavailable(f"{abandoned}; {problem}")
        self._say(f"{abandoned}; they are given back")
        return None

    def _set(self, nvml: Nvml, record: ClockRecord, memory: int) -> ClockRecord:
        """Set the clocks of a written record; return what was set, or undo it and raise."""
        graphics_set = False
        try:
            set_clock(nvml, "Gpu", record.graphics)
            graphics_set = True
            set_clock(nvml, "Memory", memory)
            return record
        except nvml.library.NVMLError as error:
            if graphics_set and is_unsupported(error, nvml.library):
                return self._without_memory(record)
            changed = graphics_set or not is_refusal(error, nvml.library)
            problem = reset_recorded(nvml, self.uuid, self._path) if changed else remove_record(self._path)
            sentence = f"asked to lock the clocks of {self.uuid}, but {explain(error, nvml.library)}"
            raise DeviceUnavailable(f"{sentence}; {problem}" if problem else sentence) from None
        except BaseException:  # as raised by the signal of a timeout
            reset_recorded(nvml, self.uuid, self._path)
            raise

    def _without_memory(self, record: ClockRecord) -> ClockRecord:
        record = msgspec.structs.replace(record, memory=None)
        with suppress(DeviceUnavailable):  # the record on disk then names the memory too, which does no harm
            write_record(self._path, record)
        self._say(f"the memory clock of {self.uuid} cannot be locked, only that of its multiprocessors is")
        return record

    def _unlock(self, nvml: Nvml, owner: Owner) -> str | None:
        """Take this lock out of the record, and reset the clocks after the last; return why that failed."""
        with suppress(BadFile):
            found = read_record(self._path)
            others = tuple(other for other in found.living if other != owner) if found else ()
            if found and others:
                with suppress(DeviceUnavailable):  # an owner that stays in it is found dead later
                    write_record(self._path, msgspec.structs.replace(found, owners=others))
                return None
        return reset_recorded(nvml, self.uuid, self._path)


LOCKS: list[ClockLock] = []
"""The locks that this process holds, or is about to."""


def release_all() -> None:
    """Release all locks, even if one of them fails."""
    for lock in list(LOCKS):
        try:
            lock.release()
        except Exception as error:
            with suppress(Exception):  # there may be no stderr any more
                sys.stderr.write(safe_line(f"gpu_bench: {error}") + "\n")


SIGNALS = EndSignals(release_all)
atexit.register(release_all)


def lock_of(uuid: str | None) -> ClockLock | None:
    """Return the lock that this process holds on the clocks of a GPU; None where it holds none."""
    return next((lock for lock in LOCKS if lock.held and lock.uuid == uuid), None)
