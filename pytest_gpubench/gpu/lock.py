"""The exclusive use of GPUs and the CPU among the processes, runs and users of one host, and their claims of GPUs."""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pytest_gpubench.errors import BadRequest, DeviceUnavailable
from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.gpu.lock_file import LockFile
from pytest_gpubench.gpu.processes import ancestors
from pytest_gpubench.gpu.visible import VisibleGpu

CPU = "CPU-"
"""The beginning of the name that the locks of a CPU have in place of a UUID."""
POLL_S = 0.01
SAY_AFTER_S = 1.0


def ignore(sentence: str) -> None:
    """Say nothing."""


@dataclass
class Patience:
    """The longest wait for others, None for ever, and the function that is told whom the wait is for."""

    timeout_s: float | None = None
    say: Callable[[str], None] = ignore
    say_after_s: float = SAY_AFTER_S
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self._began_s = self.clock()

    @property
    def waited_s(self) -> float:
        """Seconds since this object was made."""
        return self.clock() - self._began_s

    def wait_until(self, attempt: Callable[[], str | None]) -> None:
        """Repeat an attempt, which returns what is in its way, until it returns None; raise DeviceUnavailable.

        Each obstacle has a time of its own: those who stand in a long queue of short tests wait for none of them long.
        """
        found: str | None = None
        while (obstacle := attempt()) is not None:
            if obstacle != found:
                found, since_s, is_said = obstacle, self.clock(), False
            waited_s = self.clock() - since_s
            if self.timeout_s is not None and waited_s >= self.timeout_s:
                raise DeviceUnavailable(
                    f"waited {waited_s:.0f} s for {obstacle}: wait longer with --gpu-bench-lock-timeout, "
                    f"or end what holds it"
                )
            if waited_s >= self.say_after_s and not is_said:
                self.say(f"waiting for {obstacle}")
                is_said = True
            self.pause(POLL_S)


class GpuLock:
    """The exclusive use of one device, or of several GPUs at once.

    Each device has two lock files: its `turn`, and the place of the process that is `next`. Newcomers queue behind the
    next process, so nobody starves. A process takes all its places in the order of the UUIDs, then all turns or none,
    and waits while it has a turn for the CPU alone, whose holder waits for nothing. So no two wait for each other.

    A process that holds the devices takes them again at once, through any object, so threads do not exclude each other.
    Asking for more than is held, other than for the CPU, raises BadRequest.
    """

    def __init__(self, uuids: str | Iterable[str], folder: Path, note: Holder | None = None) -> None:
        self.uuids = (uuids,) if isinstance(uuids, str) else tuple(sorted(set(uuids)))
        self._folder = folder
        self._note = note
        self._turns = [LockFile(folder, f"{uuid}.turn") for uuid in self.uuids]

    def acquire(self, patience: Patience) -> float:
        """Take the devices and return how many seconds that waited; raise DeviceUnavailable, naming who holds them."""
        if not self._acquire_again():
            self._refuse_inner()
            note = self._note or Holder.of_this_process()
            with ExitStack() as places:
                for uuid, turn in zip(self.uuids, self._turns, strict=True):
                    place = LockFile(self._folder, f"{uuid}.next")
                    places.callback(place.release)
                    patience.wait_until(lambda: None if place.try_acquire(note) else holder_text(turn, place))  # noqa: B023
                patience.wait_until(lambda: _take_all(self._turns, note))
            _note_held(self._turns)
        return patience.waited_s

    def release(self) -> None:
        """Release the devices, once for every time that they were taken."""
        for turn in self._turns:
            held = _HELD[turn.path]
            held.times_taken -= 1
            if held.times_taken == 0:
                _HELD.pop(turn.path).release()

    def _acquire_again(self) -> bool:
        held = {
            path: each for path, each in _HELD.items() if each.descriptor is not None and path.parent == self._folder
        }
        wanted = [turn.path for turn in self._turns]
        if all(path in held for path in wanted):
            for path in wanted:
                held[path].times_taken += 1
            return True
        if held and not all(path.name.startswith(CPU) for path in {*wanted} - held.keys()):
            raise BadRequest(
                f"this process holds {', '.join(path.stem for path in held)} and asks for {', '.join(self.uuids)}: "
                f"GPUs are taken all at once, and before the CPU, so ask for all of them first"
            )
        return False

    def _refuse_inner(self) -> None:
        """Raise DeviceUnavailable where a process holds a device that waits for this one, which it has started."""
        for turn in self._turns:
            holder = turn.holder()
            if holder is not None and holder.is_local and not holder.has_ended and holder.pid in ancestors():
                raise DeviceUnavailable(
                    f"there is no turn at {holder_text(turn)}, which started this process and would wait for it: start "
                    "it in a test without gpu_bench and the marks perf and gpu_turn, so that it takes the turn itself"
                )


_HELD: dict[Path, LockFile] = {}
"""The turns that this process holds; in a forked child those of its parent, which it does not hold."""


def _note_held(turns: Iterable[LockFile]) -> None:
    for turn in turns:
        turn.times_taken = 1
        _HELD[turn.path] = turn


def turns_to_hand_over() -> dict[str, int]:
    """Return the lock files of the turns that this process holds, with their descriptors, for a child to inherit."""
    return {str(path): file.descriptor for path, file in _HELD.items() if file.descriptor is not None}


def take_over_turns(turns: Mapping[str, int]) -> None:
    """Hold the turns that the parent process holds, for as long as this one runs; ignore any that were not inherited.

    The parent still releases them: it has to wait for this process.
    """
    for path, descriptor in turns.items():
        file = LockFile(Path(path).parent, Path(path).name)
        if file.take_over(descriptor):
            _note_held([file])


def _take_all(files: Sequence[LockFile], note: Holder) -> str | None:
    """Take all locks, or none and return which was in the way and who holds it."""
    with ExitStack() as taken:
        for file in files:
            taken.callback(file.release)
            if not file.try_acquire():
                return holder_text(file)
        for file in files:
            file.write(note)
        taken.pop_all()
    return None


def holder_text(turn: LockFile, place: LockFile | None = None) -> str:
    """Return the device of a lock and the process that holds it; if none does, the next one."""
    device = turn.path.stem
    holder, verb = turn.holder(), "held"
    if place is not None and (holder is None or holder.has_ended):
        holder, verb = place.holder(), "next taken"
    if holder is None:
        return f"{device}, held by a process that does not say who it is"
    if holder.has_ended:
        return f"{device}, held by an unnamed process, perhaps a child of {holder}, which has ended"
    return f"{device}, {verb} by {holder}"


# claims, by which the workers of a host spread over its GPUs


@dataclass(frozen=True, eq=False)
class Claim:
    """A GPU that a process has claimed until it ends; others may claim it too, where there are too few GPUs."""

    gpu: VisibleGpu
    file: LockFile


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
