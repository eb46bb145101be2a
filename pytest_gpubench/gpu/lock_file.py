"""A lock file in a folder that all users of a host share, held by the operating system."""

import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

import msgspec

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.results.files import UNREADABLE
from pytest_gpubench.settings import LOCK_FOLDER_NAME, Settings

LOCK_HEADER = b"pytest-gpubench lock\n"
"""The first bytes of a lock file; any other file that is not empty belongs to somebody else and is not touched."""
OPEN_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
HOLDER_BYTES = 4096
RACE_PAUSES_S = (0.0, 0.01, 0.02, 0.05, 0.1)
"""Pauses in which another process may set the mode of a folder or file that it has just made."""
REMEDY = "give another with --gpu-bench-lock-folder"


def lock_folder(given: str | Path | None = None, start: Path | None = None) -> Path:
    """Return the given folder; by default that of all users of this host who have the same temp folder (TMPDIR).

    start: the folder that a relative one begins at; None is the working directory.
    """
    try:
        return Path(start or "", Path(given or Path(tempfile.gettempdir(), LOCK_FOLDER_NAME)).expanduser()).absolute()
    except RuntimeError:
        raise BadRequest(f"the lock folder {given} is that of a user who is not known here: {REMEDY}") from None


def lock_folder_of(settings: Settings) -> Path:
    """Return the folder that settings name, wherever tests have changed to since."""
    return lock_folder(settings.lock_folder, settings.started_in)


class LockFile:
    """A file locked by `flock`, which ends with the last process that holds it, however that ends.

    Not filelock's: its releases for Python 3.10 empty whatever file they lock and change its mode, before a caller can
    refuse a file of somebody else; and it opens files by their whole path, in which the folder's owner can put a link.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / re.sub(r"[^A-Za-z0-9._-]", "_", name)
        self.descriptor: int | None = None
        """The descriptor that holds the lock; None where it is not held, as in a forked child of its holder."""
        self.times_taken = 0
        """The number of times that this process has taken the turn of the file, and not yet released it."""
        _FILES.add(self)

    def try_acquire(self, note: Holder | None = None) -> bool:
        """Take the lock if it is free and write who holds it; raise BadRequest where there can be no lock."""
        descriptor = _open_lock_file(self.path)
        taken = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise BadRequest(
                f"the lock folder {self.path.parent} is on a file system without locks ({error}): {REMEDY}"
            ) from None
        else:
            taken = self._has(descriptor)
        finally:
            if not taken:
                os.close(descriptor)
        if taken:
            self.descriptor = descriptor
            self.write(note)
        return taken

    def take_over(self, descriptor: int) -> bool:
        """Hold the lock together with the process that this one inherited the descriptor from; tell whether it does.

        The descriptor itself is locked: where it is no such process's, the lock is taken if it is free, or not at all.
        """
        try:
            if not self._has(descriptor):
                return False
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (OSError, BadRequest):
            return False
        os.set_inheritable(descriptor, False)
        self.descriptor = descriptor
        return True

    def write(self, note: Holder | None) -> None:
        """Write the holder of the lock, None for nobody; do nothing unless it is held."""
        if self.descriptor is None:
            return
        text = LOCK_HEADER + (msgspec.json.encode(note) if note else b"")
        with suppress(OSError):  # a full disk: the lock holds, only the note is missing
            os.pwrite(self.descriptor, text, 0)
            os.ftruncate(self.descriptor, len(text))

    def release(self) -> None:
        """Release the lock if it is held."""
        if self.descriptor is not None:
            self.write(None)
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)  # closing is not enough: a child may not be another program yet
            self.forget()

    def forget(self) -> None:
        """Close the descriptor, if there is one, and leave the lock to those who have it open too."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def holder(self) -> Holder | None:
        """Return the note in the file, which is true only while the lock is held."""
        try:
            text = read_regular(self.path, HOLDER_BYTES)
            return msgspec.json.decode(text.removeprefix(LOCK_HEADER), type=Holder)
        except (OSError, *UNREADABLE):
            return None

    def _has(self, descriptor: int) -> bool:
        """Tell whether a descriptor is of the file that is there now; raise BadRequest where that is not to be seen."""
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.path, follow_symlinks=False))
        except FileNotFoundError:  # a cleaner of temp folders removes files that are open
            return False
        except OSError as error:
            raise BadRequest(_why_not_opened(self.path, error)) from None


_FILES: "WeakSet[LockFile]" = WeakSet()


def _forget_all() -> None:
    """Leave the locks to the parent that has forked this process: they end with it, whatever children it leaves."""
    for file in _FILES:
        file.forget()


os.register_at_fork(after_in_child=_forget_all)


class ForeignFile(OSError):
    """Raised for a file of a user who is not trusted."""


def read_regular(path: Path, most_bytes: int, owners: Container[int] | None = None) -> bytes:
    """Read a file in a folder that is open to all; raise OSError for a link, a pipe, a folder or no file.

    owners: the users whose files are read, None for all; raise ForeignFile for a file of others, or with another name.
    """
    descriptor = os.open(path, os.O_RDONLY | OPEN_FLAGS)
    try:
        status = os.fstat(descriptor)
        linked = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
        if owners is not None and (status.st_uid not in owners or linked):
            raise ForeignFile(f"it belongs to user {status.st_uid}")
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        return os.read(descriptor, most_bytes)
    finally:
        os.close(descriptor)


def _open_lock_file(path: Path) -> int:
    """Open a lock file, creating it and its folder where they are missing; raise BadRequest where it cannot be one."""
    for pause_s in RACE_PAUSES_S:
        time.sleep(pause_s)
        try:
            folder = _open_folder(path.parent)
            try:
                descriptor = _open_or_create(path.name, folder)
            finally:
                os.close(folder)
            break
        except OSError as error:
            problem = error
    else:
        raise BadRequest(_why_not_opened(path, problem))
    if refusal := _refusal(descriptor):
        os.close(descriptor)
        raise BadRequest(f"{path} {refusal}: remove it, or give another folder with --gpu-bench-lock-folder")
    return descriptor


def _open_or_create(name: str, folder: int) -> int:
    """Open a file in an open folder, or create it readable and writable for all users."""
    with suppress(FileNotFoundError):
        return os.open(name, os.O_RDWR | OPEN_FLAGS, dir_fd=folder)  # O_CREAT fails: fs.protected_regular in proc(5)
    descriptor = os.open(name, os.O_RDWR | OPEN_FLAGS | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
    os.fchmod(descriptor, 0o666)
    return descriptor


def _open_folder(path: Path) -> int:
    """Open the lock folder, or create it: all users may create files in it and remove only their own."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    os.mkdir(path)
    descriptor = os.open(path, flags)
    os.fchmod(descriptor, 0o1777)
    return descriptor


def _refusal(descriptor: int) -> str | None:
    """Return the reason why an open file is not a lock file; None if it is one."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_nlink > 1:
        return "is a hard link to a file that has another name, too"
    if status.st_size and os.pread(descriptor, len(LOCK_HEADER), 0) != LOCK_HEADER:
        return "is a file of somebody else"
    return None


def _why_not_opened(path: Path, error: OSError) -> str:
    """Return in one sentence why a lock file cannot be opened, or not be seen any more."""
    folder = path.parent
    if os.path.islink(folder):  # pathlib's raise where that is not to be seen either
        return f"the lock folder {folder} is a symbolic link, which is not followed: remove it, or {REMEDY}"
    if os.path.exists(folder) and not os.path.isdir(folder):
        return f"the lock folder {folder} is not a folder: remove it, or {REMEDY}"
    if os.path.islink(path):
        return f"{path} is a symbolic link, which is not followed: remove it, or {REMEDY}"
    return f"the lock folder {folder} cannot be used ({error.strerror or error}): {REMEDY}"
