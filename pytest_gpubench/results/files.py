"""Write files whole or not at all, and explain in one sentence why a file cannot be read or written."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_gpubench.errors import BadFile
from pytest_gpubench.units import printable

__tracebackhide__ = True

TEMPORARY_FILES = f".gpu-bench-{'[0-9a-f]' * 16}.tmp"
ABANDONED_S = 3600.0
"""A temporary file this old belongs to a process that was killed: writing takes seconds."""


def write_file(data: bytes, path: Path) -> None:
    """Write a file, whole or not at all, and make the folders it needs; raise BadFile.

    A link stays: the file it leads to is replaced.
    """
    with explaining_os_errors(path, "written"):
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a pipe or a device has nothing to replace; a folder refuses
            return
        target = Path(os.path.realpath(path))
        with suppress(FileExistsError):  # a file where a folder should be: opening the temporary file says so
            target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, data)
        _remove_abandoned(target)


def write_text(text: str, path: Path) -> None:
    """Write a text as UTF-8, whole or not at all; lone surrogates are escaped. Raise BadFile."""
    write_file(text.encode(errors="backslashreplace"), path)


def append_text(text: str, path: Path) -> None:
    """Add a text to a file as UTF-8, whole or not at all; lone surrogates are escaped. Raise BadFile."""
    data = text.encode(errors="backslashreplace")
    with explaining_os_errors(path, "written"), open(path, "ab", buffering=0) as file:
        before = file.tell()
        try:
            while data:
                data = data[file.write(data) :]
        except BaseException:
            if file.seekable():
                file.truncate(before)
            raise


@contextmanager
def explaining_os_errors(path: Path, done: str) -> Iterator[None]:
    """Turn the operating system's errors into BadFile: "PATH cannot be DONE" and why."""
    try:
        yield
    except BadFile:
        raise
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        remedy = _remedy(error.errno, done) if isinstance(error, OSError) else ""
        raise BadFile(f"{shown(path)} cannot be {done}: {reason}{remedy}") from error


def shown(path: Path) -> str:
    """Return a path as text that any terminal can print."""
    return printable(str(path))


def _replace(target: Path, data: bytes) -> None:
    temporary = target.with_name(f".gpu-bench-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _remove_abandoned(written: Path) -> None:
    """Remove the temporary files that killed processes left beside a file that was just written.

    Their age is told by the clock of the file system: that of a host may be ahead.
    """
    with suppress(OSError):  # the file is written; the rest is housekeeping
        oldest_s = written.stat().st_mtime - ABANDONED_S
        for path in written.parent.glob(TEMPORARY_FILES):
            facts = path.lstat()
            if stat.S_ISREG(facts.st_mode) and facts.st_mtime < oldest_s:
                path.unlink(missing_ok=True)


def _remedy(number: int | None, done: str) -> str:
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "; make room there, or name another place"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"; name a place that may be {done}"
    return ""
