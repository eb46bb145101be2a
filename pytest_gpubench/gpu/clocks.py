"""Lock the clocks of a GPU for the length of a turn.

Where the process dies in it, the next turn with locked clocks resets them, or `doctor --restore-clocks`.

The turn is exclusive: a record of locked clocks that is found with the turn held was left by a process that died. NVML
does not say whether somebody locked the clocks before, as with `nvidia-smi --lock-gpu-clocks`: a reset leaves them to
the GPU.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from pytest_gpubench.child_process import INTERRUPTS, signals_handled
from pytest_gpubench.errors import DeviceUnavailable, GpuBenchError
from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.gpu.lock import holder_text, ignore
from pytest_gpubench.gpu.lock_file import ForeignFile, LockFile, read_regular
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.results.files import UNREADABLE, replace_file
from pytest_gpubench.settings.parsers import ClockWish

CLOCK_LIMIT_TDP = 0xFFFFFF01
"""NVML_CLOCK_LIMIT_ID_TDP of nvml.h: the base clock, which a GPU keeps under any load; not in MHz."""
INSTEAD = "measure without --gpu-bench-lock-clocks"
SUFFIX = ".clocks.json"
RECORD_BYTES = 2**16
TRUSTED_USERS = (0, os.geteuid())
"""The users whose records are believed: the lock folder is open to all, and a record can reset clocks."""


class ClockRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The clocks that a process locks on a GPU: on disk from before they are set until they are reset."""

    graphics: int
    """As NVML takes it: MHz, or CLOCK_LIMIT_TDP."""
    memory: int
    holder: Holder

    def __str__(self) -> str:
        graphics = "the base clock" if self.graphics == CLOCK_LIMIT_TDP else f"{self.graphics} MHz"
        return f"{graphics} (memory {self.memory} MHz)"


class Restored(NamedTuple):
    """A record of locked clocks that was found, and whether they stay locked."""

    sentence: str
    left: bool


class ClockLock:
    """The clocks of one GPU, locked for the length of a `with` block by the process that holds the GPU's turn.

    folder: that of the turn's lock file. say: gets a sentence where the clocks are not quite as asked for.
    """

    def __init__(self, uuid: str, wish: ClockWish, folder: Path, say: Callable[[str], None] = ignore) -> None:
        self._uuid = uuid
        self._wish = wish
        self._path = folder / f"{uuid}{SUFFIX}"
        self._say = say
        self._nvml: Nvml
        self._record: ClockRecord
        self.graphics_mhz: int | None = None
        """The locked clock; None for a base clock, whose MHz NVML does not say."""

    def __enter__(self) -> "ClockLock":
        """Lock the clocks; raise DeviceUnavailable, with nothing changed, where that cannot be."""
        if own := LOCKS.get(self._uuid):
            raise DeviceUnavailable(f"this process has locked the clocks of {self._uuid} already, at {own._record}")
        try:
            self._nvml = nvml = Nvml.open(self._uuid)
        except RuntimeError as error:
            raise _refusal(self._uuid, error) from None
        if self._uuid.startswith("MIG-") or nvml.mig():
            why = "the GPU is split into MIG instances, which share its clocks"
            raise _refusal(self._uuid, f"{why}: {INSTEAD}, or on a whole GPU")
        self._record = record = _choose_clocks(self._nvml, self._uuid, self._wish)
        self.graphics_mhz = None if record.graphics == CLOCK_LIMIT_TDP else record.graphics
        if restored := _unlock_left(self._path, self._nvml):
            if restored.left:
                raise DeviceUnavailable(restored.sentence)
            self._say(restored.sentence)
        try:
            replace_file(self._path, msgspec.json.encode(record), 0o644)
        except OSError as error:
            why = (
                f"the record that they are given back by cannot be written to {self._path} ({error.strerror or error})"
            )
            raise _refusal(self._uuid, f"{why}: give another folder with --gpu-bench-lock-folder") from None
        LOCKS[self._uuid] = self
        self._set()
        if self._wish not in ("base", "max", record.graphics):
            locked = f"its clocks are locked at {record.graphics} MHz, the nearest that it does"
            self._say(f"{self._uuid} does not support {self._wish} MHz: {locked}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if problem := self.release():
            self._say(problem)

    def release(self, changed: bool = True) -> str | None:
        """Reset the clocks; return why that failed, None where it did not. A forked child only forgets the lock."""
        problem = None
        if self._record.holder.pid == os.getpid():
            with signals_deferred():
                problem = _reset(self._nvml, self._path) if changed else _remove_record(self._path)
        LOCKS.pop(self._uuid, None)
        return problem

    def _set(self) -> None:
        library, changed = self._nvml.library, False
        try:
            library.nvmlDeviceSetGpuLockedClocks(self._nvml.handle, *2 * [self._record.graphics])
            changed = True
            library.nvmlDeviceSetMemoryLockedClocks(self._nvml.handle, *2 * [self._record.memory])
        except library.NVMLError as error:
            unsupported = _is_unsupported(error, library)
            if changed and unsupported:
                self._say(f"the memory clock of {self._uuid} cannot be locked, only that of its multiprocessors is")
                return
            if unsupported:
                why = f"the GPU or its driver cannot do that ({error}): {INSTEAD}"
            elif no_rights := isinstance(error, library.NVMLError_NoPermission):
                why = f"this user has not the rights: run as root, or {INSTEAD}"
            else:
                why = f"NVML failed ({error}): see nvidia-smi"
            problem = self.release(changed or not (unsupported or no_rights))
            raise _refusal(self._uuid, f"{why}; {problem}" if problem else why) from None
        except BaseException:  # as raised by the signal of a timeout
            self.release()
            raise


LOCKS: dict[str, ClockLock] = {}
"""The locks that this process holds, by GPU."""


def restore_abandoned(folder: Path) -> list[Restored]:
    """Reset the clocks of every GPU with a record in this folder, unless its turn is held; return what was found.

    Without records no GPU is opened.
    """
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        uuid = path.name.removesuffix(SUFFIX)
        turn = LockFile(folder, f"{uuid}.turn")
        try:
            if not turn.try_acquire(Holder.of_this_process()):
                found.append(Restored(f"the clocks of {holder_text(turn)}, may be locked: they are left alone", True))
            elif restored := _unlock_left(path):
                found.append(restored)
        except (GpuBenchError, RuntimeError) as error:
            found.append(Restored(f"the clocks of {uuid} may be locked, and are not given back: {error}", True))
        finally:
            turn.release()
    return found


def _unlock_left(path: Path, nvml: Nvml | None = None) -> Restored | None:
    """Reset clocks that were left locked, with the turn held; None where they were not. nvml: None opens the GPU."""
    gpu = path.name.removesuffix(SUFFIX)
    try:
        record = msgspec.json.decode(read_regular(path, RECORD_BYTES, TRUSTED_USERS), type=ClockRecord)
        ended = ", which has ended" if record.holder.has_ended else ""
        why = f"the clocks of {gpu} were left locked at {record} by {record.holder}{ended}"
    except (FileNotFoundError, ForeignFile):
        return None
    except (OSError, *UNREADABLE) as error:
        damage = getattr(error, "strerror", None) or error
        why = f"the record of the clocks of {gpu}, {path}, is damaged ({damage}), so they may be locked"
    problem = _reset(nvml or Nvml.open(gpu), path)
    return Restored(f"{why}; {problem or 'they are given back'}", left=problem is not None)


def _refusal(uuid: str, why: object) -> DeviceUnavailable:
    return DeviceUnavailable(f"asked to lock the clocks of {uuid}, but {why}")


def _remove_record(path: Path) -> str | None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        return f"{path} cannot be removed ({error.strerror or error}): remove it by hand"
    return None


def _choose_clocks(nvml: Nvml, uuid: str, wish: ClockWish) -> ClockRecord:
    """Return the clocks to lock; raise DeviceUnavailable where the GPU does not say which it supports.

    The memory clock is the highest, as under any load. The default applications clock is the base clock only where it
    is below the highest: on an H200 both are the same.
    """
    memory = max(nvml.ask("SupportedMemoryClocks") or (0,))
    supported: Sequence[int] = (nvml.ask("SupportedGraphicsClocks", memory) or ()) if memory else ()
    if not supported:
        raise _refusal(uuid, f"the GPU does not say which clocks it supports: {INSTEAD}")
    graphics = max(supported)
    if wish == "base":
        default = nvml.ask("DefaultApplicationsClock", nvml.library.NVML_CLOCK_GRAPHICS)
        graphics = _nearest(supported, default) if default and default < graphics else CLOCK_LIMIT_TDP
    elif wish != "max":
        graphics = _nearest(supported, wish)
    return ClockRecord(graphics=graphics, memory=memory, holder=Holder.of_this_process())


def _nearest(supported: Sequence[int], wanted_mhz: int) -> int:
    """Return the supported clock nearest to a wanted one, the lower of two."""
    return min(supported, key=lambda clock: (abs(clock - wanted_mhz), clock))


def _reset(nvml: Nvml, path: Path) -> str | None:
    """Leave the clocks to the GPU again and remove their record; return why that failed, None where it did not."""
    for domain in ("Gpu", "Memory"):
        try:
            getattr(nvml.library, f"nvmlDeviceReset{domain}LockedClocks")(nvml.handle)
        except nvml.library.NVMLError as error:
            if not _is_unsupported(error, nvml.library):
                uuid = path.name.removesuffix(SUFFIX)
                return (
                    f"they could not be given back ({error}): as root, run `nvidia-smi -i {uuid} -rgc` and the same "
                    "with -rmc, or `pytest-gpubench doctor --restore-clocks`"
                )
    return _remove_record(path)


def _is_unsupported(error: Exception, library: Any) -> bool:
    """Tell whether the GPU or its driver cannot do what was asked."""
    kinds = ("NVMLError_NotSupported", "NVMLError_FunctionNotFound", "NVMLError_Deprecated")
    return isinstance(error, tuple(getattr(library, kind) for kind in kinds if hasattr(library, kind)))


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Let the signals that end a run wait until the end."""
    came: list[int] = []
    with signals_handled(lambda number, _: came.append(number), *INTERRUPTS):
        yield
    for number in came[:1]:
        signal.raise_signal(number)
