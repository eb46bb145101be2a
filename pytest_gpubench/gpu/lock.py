"""Locks on the GPUs of one host, among processes, pytest runs and users, held by the operating system."""

import fcntl
import getpass
import os
import re
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pytest_gpubench.errors import BadRequest, DeviceUnavailable
from pytest_gpubench.settings import LOCK_FOLDER_NAME
from pytest_gpubench.units import printable

HEADER = b"pytest-gpubench lock\n"
"""What every lock file that is not empty begins with: any other file is somebody's and is not touched."""
OPEN_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NOTE_BYTES = 4096
POLL_S = 0.01
SAY_AFTER_S = 1.0
RACE_PAUSES_S = (0.0, 0.01, 0.02, 0.05, 0.1)
"""How long another process may take from making a folder or file to giving it its mode."""


def default_folder() -> Path:
    """Return the lock folder of all users of this host: they meet only if their temp folder (TMPDIR) is the same."""
    return Path(tempfile.gettempdir()) / LOCK_FOLDER_NAME


def ignore(sentence: str) -> None:
    """Say nothing."""


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lock, as the holder wrote it; anybody may write the file, so no safety may hang on it."""

    pid: int
    started: int | None
    namespace: str | None
    host: str
    user: str
    command: str
    test: str
    since_s: float

    @classmethod
    def of_this_process(cls, test: str = "", command: str | None = None) -> "Holder":
        """Return the note of this process; `command` None takes the one that it was started with."""
        return cls(
            pid=os.getpid(),
            started=start_of(os.getpid()),
            namespace=pid_namespace(),
            host=socket.gethostname(),
            user=user_name(),
            command=shorten(command_line(sys.argv) if command is None else command),
            test=shorten(test),
            since_s=time.time(),
        )

    @property
    def is_local(self) -> bool:
        """Whether its process id means something here: it is of this host and of this container."""
        return self.namespace is not None and (self.host, self.namespace) == (socket.gethostname(), pid_namespace())

    @property
    def has_ended(self) -> bool:
        """Whether the process is known to be gone, its number used again or not; False where that cannot be seen."""
        return self.is_local and self.started is not None and start_of(self.pid) != self.started

    def __str__(self) -> str:
        where = "" if self.is_local else f" on {shorten(self.host)} or in a container there"
        test = f", {shorten(self.test)}" if self.test else ""
        return f"pid {self.pid} of {shorten(self.user)}{where} ({shorten(self.command)}{test}, since {self._since()})"

    def _since(self) -> str:
        style = "%H:%M:%S" if abs(time.time() - self.since_s) < 43200 else "%Y-%m-%d %H:%M:%S"
        try:
            return time.strftime(style, time.localtime(self.since_s))
        except (OverflowError, ValueError, OSError):
            return "an unknown time"


class LockFile:
    """One lock file, held through `flock`, which ends with its last process however that ends.

    Not filelock's: up to 3.20 and later it empties the file of the holder when it opens it, with the note in it; it
    opens a FIFO and waits; it takes any file for a lock file, looks the folder up anew for each name, so that its
    owner can put a link in its place, and on file systems without flock it takes to files that outlive a crash.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / re.sub(r"[^A-Za-z0-9._-]", "_", name)
        self._held: tuple[int, int] | None = None

    def try_acquire(self, note: Holder | None = None) -> bool:
        """Take the lock if it is free and write who holds it; raise BadRequest where there can be no lock."""
        descriptor = open_lock_file(self.path)
        try:
            taken = self._flock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        if not taken:
            os.close(descriptor)
            return False
        self._held = descriptor, os.getpid()
        self.write(note)
        return True

    def write(self, note: Holder | None) -> None:
        """Write who holds the lock, or for None that nobody says so; only while it is held."""
        if self._held is None:
            return
        text = HEADER + (msgspec.json.encode(note) if note else b"")
        with suppress(OSError):  # a full disk, say: the lock holds, only the name is missing
            os.pwrite(self._held[0], text, 0)
            os.ftruncate(self._held[0], len(text))

    def release(self) -> None:
        """Give the lock back; in a forked child only forget it, it is the parent's."""
        if self._held is None:
            return
        descriptor, pid = self._held
        if pid == os.getpid():
            self.write(None)
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # not only closed: a forked child may have it open, too
        self._held = None
        os.close(descriptor)

    def holder(self) -> Holder | None:
        """Return what the file says of its holder; it is true only while the lock is held."""
        try:
            descriptor = os.open(self.path, OPEN_FLAGS & ~os.O_RDWR)
        except OSError:
            return None
        try:
            text = os.read(descriptor, NOTE_BYTES)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        try:
            return msgspec.json.decode(text.removeprefix(HEADER), type=Holder)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _flock(self, descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise BadRequest(
                f"the lock folder {self.path.parent} is on a file system without locks ({error}): "
                f"give another with --gpu-bench-lock-folder"
            ) from None
        with suppress(FileNotFoundError):  # whoever cleans temp folders may have removed it since it was opened
            return os.path.samestat(os.fstat(descriptor), os.stat(self.path, follow_symlinks=False))
        return False


@dataclass
class Patience:
    """How long somebody waits, and what is said meanwhile; `timeout_s` None waits for ever."""

    timeout_s: float | None
    say: Callable[[str], None]
    say_after_s: float = SAY_AFTER_S
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self._began_s = self.clock()
        self._said: str | None = None

    @property
    def waited_s(self) -> float:
        """How long it has been."""
        return self.clock() - self._began_s

    def wait_until(self, attempt: Callable[[], str | None]) -> None:
        """Repeat an attempt, which returns what is in its way, until it returns None; raise DeviceUnavailable."""
        while (obstacle := attempt()) is not None:
            if self.timeout_s is not None and self.waited_s >= self.timeout_s:
                raise DeviceUnavailable(
                    f"waited {self.waited_s:.0f} s for {obstacle}: wait longer with --gpu-bench-lock-timeout, "
                    f"or end what holds it"
                )
            if self.waited_s >= self.say_after_s and obstacle != self._said:
                self._said = obstacle
                self.say(f"waiting for {obstacle}")
            self.pause(POLL_S)


class GpuLock:
    """The exclusive use of one GPU, or of several at once, among all who ask for it on this host.

    There are two locks for each GPU: its *turn*, and the place of who is *next*. Newcomers stand behind who is next, so
    nobody starves. All places are taken in the order of the UUIDs, then all turns at once or none; who has a turn never
    waits for another. So no two can wait for each other.

    A process that holds the GPUs already takes them again at once, through whichever object; so threads do not exclude
    each other. Asking for more than is held raises BadRequest.
    """

    def __init__(self, uuids: str | Iterable[str], folder: Path | None = None, note: Holder | None = None) -> None:
        self.uuids = (uuids,) if isinstance(uuids, str) else tuple(sorted(set(uuids)))
        self._folder = folder or default_folder()
        self._note = note
        self._turns = [LockFile(self._folder, f"{uuid}.turn") for uuid in self.uuids]
        self._depth = 0

    def acquire(
        self, timeout_s: float | None = None, say: Callable[[str], None] = ignore, patience: Patience | None = None
    ) -> float:
        """Take the GPUs and return how many seconds that waited.

        `timeout_s` None waits for ever and 0 not at all; `say` gets a sentence when there is somebody to wait for, and
        whenever it is another. Raises DeviceUnavailable, naming the holder, when the time is up.
        """
        patience = patience or Patience(timeout_s, say)
        if not self._hold_again():
            self._wait_in_line(patience, self._note or Holder.of_this_process())
            _HOLDS.update({turn.path: _Hold(turn) for turn in self._turns})
        self._depth += 1
        return patience.waited_s

    def release(self) -> None:
        """Give the GPUs back, once for every time that they were taken."""
        if self._depth == 0:
            raise RuntimeError(f"{', '.join(self.uuids)} was given back without being held")
        self._depth -= 1
        for turn in self._turns:
            hold = _HOLDS[turn.path]
            hold.depth -= 1
            if hold.depth == 0:
                del _HOLDS[turn.path]
                hold.file.release()

    def _hold_again(self) -> bool:
        held = {path: hold for path, hold in _HOLDS.items() if hold.pid == os.getpid() and path.parent == self._folder}
        wanted = [turn.path for turn in self._turns]
        if all(path in held for path in wanted):
            for path in wanted:
                held[path].depth += 1
            return True
        if held:
            raise BadRequest(
                f"this process holds {', '.join(path.stem for path in held)} and asks for {', '.join(self.uuids)}: "
                f"GPUs are taken all at once, so ask for all of them first"
            )
        return False

    def _wait_in_line(self, patience: Patience, note: Holder) -> None:
        places = [LockFile(self._folder, f"{uuid}.next") for uuid in self.uuids]
        try:
            for place, turn in zip(places, self._turns, strict=True):
                patience.wait_until(lambda: None if place.try_acquire(note) else describe(turn, place))  # noqa: B023
            patience.wait_until(lambda: take_all(self._turns, note))
        finally:
            release_all(places)


@dataclass
class _Hold:
    """A turn that this process holds, and how many times it took it."""

    file: LockFile
    depth: int = 1

    def __post_init__(self) -> None:
        self.pid = os.getpid()


_HOLDS: dict[Path, _Hold] = {}


def take_all(files: Sequence[LockFile], note: Holder) -> str | None:
    """Take all locks, or none: then return which was in the way and who holds it."""
    taken: list[LockFile] = []
    try:
        for file in files:
            if not file.try_acquire():
                return describe(file)
            taken.append(file)
        for file in taken:
            file.write(note)
        taken = []
    finally:
        release_all(taken)
    return None


def release_all(files: Iterable[LockFile]) -> None:
    """Give locks back, those that are held."""
    for file in files:
        file.release()


def describe(turn: LockFile, place: LockFile | None = None) -> str:
    """Return which GPU a lock is of and who has it; where nobody has the turn, who is next."""
    gpu = turn.path.stem
    holder, verb = turn.holder(), "held"
    if place is not None and (holder is None or holder.has_ended):
        holder, verb = place.holder(), "next taken"
    if holder is None:
        return f"{gpu}, held by a process that does not say who it is"
    if holder.has_ended:
        return f"{gpu}, held by an unnamed process, perhaps a child of {holder}, which has ended"
    return f"{gpu}, {verb} by {holder}"


def open_lock_file(path: Path) -> int:
    """Open a lock file, made with its folder where it is missing; raise BadRequest where it cannot be one."""
    for pause_s in RACE_PAUSES_S:
        time.sleep(pause_s)
        folder: int | None = None
        try:
            folder = open_folder(path.parent)
            descriptor = open_or_create(path.name, folder)
            break
        except OSError as error:
            problem = error
        finally:
            if folder is not None:
                os.close(folder)
    else:
        raise BadRequest(explain(path, problem))
    if refusal := refuse(descriptor):
        os.close(descriptor)
        raise BadRequest(f"{path} {refusal}: remove it, or give another folder with --gpu-bench-lock-folder")
    return descriptor


def open_folder(path: Path) -> int:
    """Open the lock folder; one that is missing is made, for all users to make files in and to remove only theirs."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    os.mkdir(path)
    descriptor = os.open(path, flags)
    os.fchmod(descriptor, 0o1777)
    return descriptor


def open_or_create(name: str, folder: int) -> int:
    """Open a file in an open folder, or make it readable and writable for all."""
    with suppress(FileNotFoundError):
        return os.open(name, OPEN_FLAGS, dir_fd=folder)  # not with O_CREAT: see fs.protected_regular in proc(5)
    descriptor = os.open(name, OPEN_FLAGS | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
    os.fchmod(descriptor, 0o666)
    return descriptor


def refuse(descriptor: int) -> str | None:
    """Return why an open file is not a lock file; None where it is one."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_nlink > 1:
        return "is a hard link to a file that has another name, too"
    if status.st_size and os.pread(descriptor, len(HEADER), 0) != HEADER:
        return "is a file of somebody else"
    return None


def explain(path: Path, error: OSError) -> str:
    """Return in one sentence why a lock file cannot be opened."""
    folder = path.parent
    remedy = "give another with --gpu-bench-lock-folder"
    if folder.is_symlink():
        return f"the lock folder {folder} is a symbolic link, which is not followed: remove it, or {remedy}"
    if folder.exists() and not folder.is_dir():
        return f"the lock folder {folder} is not a folder: remove it, or {remedy}"
    if path.is_symlink():
        return f"{path} is a symbolic link, which is not followed: remove it, or {remedy}"
    return f"the lock folder {folder} cannot be used ({error.strerror or error}): {remedy}"


def start_of(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; None where there is none, or it cannot be seen."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def pid_namespace() -> str | None:
    """Return in which namespace process ids count, a container's or the host's; None where it cannot be told."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def user_name() -> str:
    """Return the user's name, or number where it has no name, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def command_line(arguments: Sequence[str]) -> str:
    """Return a command as a reader would type it."""
    program = Path(arguments[0] if arguments else "python")
    name = program.parent.name if program.name == "__main__.py" else program.name
    return " ".join([name, *arguments[1:]])


def shorten(text: str, length: int = 80) -> str:
    """Return a text fit to be shown in a line, with an ellipsis where it is cut."""
    text = printable(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"
