"""Write files whole or not at all, and explain in one sentence why a file cannot be read or written."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_gpubench.errors import BadFile
from pytest_gpubench.units import printable


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


def write_text(text: str, path: Path) -> None:
    """Write a text as UTF-8, whole or not at all; lone surrogates are escaped. Raise BadFile."""
    write_file(text.encode(errors="backslashreplace"), path)


@contextmanager
def explaining_os_errors(path: Path, done: str) -> Iterator[None]:
    """Turn the operating system's errors into BadFile: "PATH cannot be DONE" and why."""
    try:
        yield
    except BadFile:  # which is a ValueError
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


def _remedy(number: int | None, done: str) -> str:
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "; make room there, or name another place"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"; name a place that may be {done}"
    return ""
