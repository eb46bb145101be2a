"""The clocks of a GPU held at one value for a while, and given back however the process ends.

NVML says nowhere whether somebody locked the clocks before, with `nvidia-smi --lock-gpu-clocks` say: what is given back
is the GPU's own choice. A record on disk, written before the clocks are changed, says whose they are meanwhile.
"""

import atexit
import itertools
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import msgspec

from pytest_gpubench.errors import BadFile, DeviceUnavailable, GpuBenchError
from pytest_gpubench.gpu.lock import Holder, LockFile, Patience, ignore
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.settings import ClockWish

CLOCK_LIMIT_TDP = 0xFFFFFF01
"""NVML_CLOCK_LIMIT_ID_TDP of nvml.h: for NVML the base clock, which a GPU keeps under any load; no MHz."""
SUFFIX = ".clocks.json"
RECORD_BYTES = 2**16
GUARD_S = 10.0
"""Others change the clocks of a GPU for some milliseconds at a time."""
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

Say = Callable[[str], None]
Opener = Callable[[str], Nvml]


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


@dataclass(frozen=True)
class Target:
    """The clocks to lock, as NVML takes them, and what is to be said of how they were chosen."""

    graphics: int
    memory: int
    remark: str | None = None


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
        self.first_reading_mhz: int | None = None
        """The clock that NVML told right after locking it, without load; None where it cannot, or others locked it."""
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
        _ENDS.add(self)
        try:
            with _ENDS.postponed(), guarded(self._folder, self.uuid):
                self._lock(nvml, target)
        finally:
            if not self.held:
                _ENDS.remove(self)
        if target.remark:
            self._say(target.remark)

    def release(self) -> None:
        """Give the clocks back, unless others want them, too; in a forked child only forget them."""
        owner = self._owner
        if not self.held or owner is None or self._nvml is None:
            return
        if owner.holder.pid != os.getpid():
            self.held = False
            _ENDS.remove(self)
            return
        with _ENDS.postponed():
            with guarded(self._folder, self.uuid):
                problem = self._unlock(self._nvml, owner)
            self.held = False
            _ENDS.remove(self)
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
        if problem := reset_clocks(nvml, self.uuid) or remove_record(self._path):
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
            _ = reset_clocks(nvml, self.uuid) or remove_record(self._path)
            raise

    def _change(self, nvml: Nvml, record: Record) -> Record:
        library = nvml.library
        try:
            change(nvml, "SetGpuLockedClocks", record.graphics, record.graphics)
        except library.NVMLError as error:
            problem = None if is_refusal(error, library) else reset_clocks(nvml, self.uuid)
            raise self._failure(error, problem) from None
        try:
            change(nvml, "SetMemoryLockedClocks", record.memory, record.memory)
        except library.NVMLError as error:
            if not is_unsupported(error, library):
                raise self._failure(error, reset_clocks(nvml, self.uuid)) from None
            record = msgspec.structs.replace(record, memory=None)
            with suppress(DeviceUnavailable):  # the record names the memory, too, which does no harm
                write_record(self._path, record)
            self._say(f"the memory clock of {self.uuid} cannot be locked, only that of its multiprocessors is")
        self.first_reading_mhz = nvml.ask("ClockInfo", library.NVML_CLOCK_SM)
        return record

    def _failure(self, error: Exception, problem: str | None) -> DeviceUnavailable:
        """Return the error to raise for one of NVML's; forget the record unless there was a problem with undoing it."""
        problem = problem or remove_record(self._path)
        sentence = f"asked to lock the clocks of {self.uuid}, but {explain(error, self._library)}"
        return DeviceUnavailable(f"{sentence}; {problem}" if problem else sentence)

    @property
    def _library(self) -> Any:
        assert self._nvml is not None
        return self._nvml.library

    def _unlock(self, nvml: Nvml, owner: Owner) -> str | None:
        """Take this lock out of the record, and the last one the clocks with it; return what went wrong."""
        with suppress(BadFile):
            found = read_record(self._path)
            others = tuple(other for other in found.living if other != owner) if found else ()
            if found and others:
                with suppress(DeviceUnavailable):  # what stays in it is found dead when this process has ended
                    write_record(self._path, msgspec.structs.replace(found, owners=others))
                return None
        return reset_clocks(nvml, self.uuid) or remove_record(self._path)


def lock_of(uuid: str | None) -> ClockLock | None:
    """Return the lock that this process holds on the clocks of a GPU; None where it holds none."""
    return next((lock for lock in _ENDS.locks if lock.held and lock.uuid == uuid), None)


@dataclass(frozen=True)
class Restored:
    """What became of the records of locked clocks: a sentence each, and how many had to stay as they are."""

    sentences: tuple[str, ...]
    left: int


def restore_abandoned(folder: Path, open_nvml: Opener = Nvml.open) -> list[str]:
    """Give back the clocks that processes left locked when they died; return a sentence for each GPU.

    Living owners are not mentioned. Without records nothing is opened.
    """
    return [outcome.sentence for outcome in _restore(folder, open_nvml) if not outcome.in_use]


def restore_all(folder: Path, open_nvml: Opener = Nvml.open) -> Restored:
    """Do as `restore_abandoned`, and say which clocks stay locked because their owners live."""
    outcomes = list(_restore(folder, open_nvml))
    return Restored(tuple(outcome.sentence for outcome in outcomes), sum(outcome.left for outcome in outcomes))


@dataclass(frozen=True)
class _Outcome:
    sentence: str
    left: bool = False
    in_use: bool = False


def _restore(folder: Path, open_nvml: Opener) -> Iterator[_Outcome]:
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        uuid = path.name.removesuffix(SUFFIX)
        try:
            with _ENDS.postponed(), guarded(folder, uuid):
                outcome = _restore_one(path, uuid, open_nvml)
        except GpuBenchError as error:
            outcome = _Outcome(f"the clocks of {uuid} may be locked, and are not given back: {error}", left=True)
        if outcome is not None:
            yield outcome


def _restore_one(path: Path, uuid: str, open_nvml: Opener) -> _Outcome | None:
    found: Record | None = None
    try:
        found = read_record(path)
    except BadFile as error:
        sentence = str(error)
    else:
        if found is None:
            return None  # its owner has just given them back
        if found.living:
            return _Outcome(f"{describe_living(found)}: they are left alone", left=True, in_use=True)
        sentence = describe_abandoned(found)
    try:
        nvml = open_nvml(uuid)
    except RuntimeError as error:
        if found and all(owner.boot != boot_id() for owner in found.owners):
            return None  # another host's, which has the folder, too
        return _Outcome(f"{sentence}, and are not given back: {error}", left=True)
    if problem := reset_clocks(nvml, uuid) or remove_record(path):
        return _Outcome(f"{sentence}; {problem}", left=True)
    return _Outcome(f"{sentence}; they are given back")


def describe_abandoned(record: Record) -> str:
    """Return in one clause whose clocks nobody has given back."""
    whose = f"{record.owners[-1].holder}, which has ended" if record.owners else "nobody"
    return f"the clocks of {record.gpu} were left locked at {record} by {whose}"


def describe_living(record: Record) -> str:
    """Return in one clause for whom clocks are locked."""
    return f"the clocks of {record.gpu} are locked at {record} by {', '.join(str(own.holder) for own in record.living)}"


def open_gpu(uuid: str) -> Nvml:
    """Open a GPU by its UUID; raise DeviceUnavailable where NVML cannot."""
    try:
        return Nvml.open(uuid)
    except RuntimeError as error:
        raise DeviceUnavailable(f"asked to lock the clocks of {uuid}, but {error}") from None


def refuse_mig(nvml: Nvml, uuid: str) -> None:
    """Raise DeviceUnavailable for a GPU split into instances: its clocks are those of all of them."""
    if uuid.startswith("MIG-") or nvml.mig():
        raise DeviceUnavailable(
            f"asked to lock the clocks of {uuid}, but the GPU is split into MIG instances, which share its clocks: "
            "measure without --gpu-bench-lock-clocks, or on a whole GPU"
        )


def choose_target(nvml: Nvml, uuid: str, wish: ClockWish) -> Target:
    """Return the clocks to lock for a wish; raise DeviceUnavailable where the GPU does not say what it supports.

    The memory's is the highest, as under any load. An H200's default applications clock is its highest clock, so it is
    taken for the base clock only where it is below that.
    """
    memory = max(nvml.ask("SupportedMemoryClocks") or (0,))
    supported: Sequence[int] = (nvml.ask("SupportedGraphicsClocks", memory) or ()) if memory else ()
    if not supported:
        raise DeviceUnavailable(
            f"asked to lock the clocks of {uuid}, but the GPU does not say which clocks it supports: "
            "measure without --gpu-bench-lock-clocks"
        )
    highest = max(supported)
    if wish == "max":
        return Target(highest, memory)
    if wish == "base":
        default = nvml.ask("DefaultApplicationsClock", nvml.library.NVML_CLOCK_GRAPHICS)
        base = nearest(supported, default) if default and default < highest else CLOCK_LIMIT_TDP
        return Target(base, memory)
    chosen = nearest(supported, wish)
    remark = f"{uuid} does not support {wish} MHz: its clocks are locked at {chosen} MHz, the nearest that it does"
    return Target(chosen, memory, None if chosen == wish else remark)


def nearest(supported: Sequence[int], wanted_mhz: int) -> int:
    """Return the supported clock nearest to a wanted one, the lower of two."""
    return min(supported, key=lambda clock: (abs(clock - wanted_mhz), clock))


def change(nvml: Nvml, what: str, *arguments: Any) -> None:
    """Call one of the functions of NVML that change something; raise its NVMLError."""
    getattr(nvml.library, f"nvmlDevice{what}")(nvml.handle, *arguments)


def reset_clocks(nvml: Nvml, uuid: str) -> str | None:
    """Leave the clocks to the GPU again; return what was in the way, None where nothing was."""
    problem = None
    for domain in ("Gpu", "Memory"):
        try:
            change(nvml, f"Reset{domain}LockedClocks")
        except nvml.library.NVMLError as error:
            if not is_unsupported(error, nvml.library):
                problem = (
                    f"they could not be given back ({error}): as root, run `nvidia-smi -i {uuid} -rgc` and the same "
                    "with -rmc, or `pytest-gpubench doctor --restore-clocks`"
                )
    return problem


def is_unsupported(error: Exception, library: Any) -> bool:
    """Tell whether the GPU, or its driver, cannot do what was asked."""
    kinds = ("NVMLError_NotSupported", "NVMLError_FunctionNotFound", "NVMLError_Deprecated")
    return isinstance(error, tuple(getattr(library, kind) for kind in kinds if hasattr(library, kind)))


def is_refusal(error: Exception, library: Any) -> bool:
    """Tell whether NVML has changed nothing, by its error."""
    return is_unsupported(error, library) or isinstance(error, library.NVMLError_NoPermission)


def explain(error: Exception, library: Any) -> str:
    """Return in one clause why clocks cannot be locked, and what to do."""
    if isinstance(error, library.NVMLError_NoPermission):
        return "this user has not the rights: run as root, or measure without --gpu-bench-lock-clocks"
    if is_unsupported(error, library):
        return f"the GPU or its driver cannot do that ({error}): measure without --gpu-bench-lock-clocks"
    return f"NVML failed ({error}): see nvidia-smi"


def clock_text(graphics: int) -> str:
    """Return a clock, as NVML takes it, for a reader."""
    return "the base clock" if graphics == CLOCK_LIMIT_TDP else f"{graphics} MHz"


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


@dataclass
class _Ends:
    """Gives all clocks back when the process ends: at its exit, and at signals, which then do what they did before."""

    locks: list[ClockLock] = field(default_factory=list)
    handlers: list["_Handler"] = field(default_factory=list)
    waiting: list["_Handler"] = field(default_factory=list)
    depth: int = 0
    registered: bool = False

    def add(self, lock: ClockLock) -> None:
        """Give the clocks of this lock back, too."""
        if not self.registered:
            atexit.register(self.release_all)
            self.registered = True
        self.locks.append(lock)
        if not self.handlers and in_main_thread():
            self.handlers = [handler for number in ENDINGS if (handler := _Handler.install(number, self))]

    def remove(self, lock: ClockLock) -> None:
        """Forget a lock, and with the last one the signals."""
        if lock in self.locks:
            self.locks.remove(lock)
        if not self.locks and in_main_thread():
            for handler in self.handlers:
                handler.remove()
            self.handlers = []

    def release_all(self) -> None:
        """Give all clocks back, whatever one of them says to it."""
        for lock in list(self.locks):
            try:
                lock.release()
            except Exception as error:
                with suppress(Exception):  # there may be no stderr any more
                    sys.stderr.write(f"gpu_bench: {error}\n")

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """Let signals wait meanwhile: a handler that runs in the midst of it could not take the guard."""
        if not in_main_thread():
            yield
            return
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
            while self.waiting and not self.depth:
                handler = self.waiting.pop(0)
                handler(handler.number, None)


@dataclass(eq=False)
class _Handler:
    """What is done at one signal, and what was done at it before: a chain, if others put theirs before it."""

    number: signal.Signals
    previous: Any
    ends: _Ends

    @classmethod
    def install(cls, number: signal.Signals, ends: _Ends) -> "_Handler | None":
        """Handle a signal; not one that is ignored, nor one that something other than Python handles."""
        previous = signal.getsignal(number)
        if previous in (signal.SIG_IGN, None):
            return None
        handler = cls(number, previous, ends)
        signal.signal(number, handler)
        return handler

    def remove(self) -> None:
        """Put the previous handler back, unless somebody has put another in this one's place."""
        current: object = signal.getsignal(self.number)
        if current is self:
            signal.signal(self.number, self.previous)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Give the clocks back and go on to the previous handler."""
        if self.ends.depth:
            self.ends.waiting.append(self)
            return
        self.ends.release_all()
        if callable(self.previous):
            self.previous(number, frame)
            return
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def in_main_thread() -> bool:
    """Tell whether signals may be handled here."""
    return threading.current_thread() is threading.main_thread()


_ENDS = _Ends()
