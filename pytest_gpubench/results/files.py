"""Write files whole or not at all, and explain in one sentence why a file cannot be read or written."""

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from pytest_gpubench.errors import BadFile
from pytest_gpubench.units import printable, shortened_inside

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of msgspec for data that is not as it should be."""


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
        replace_file(target, data)


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
        number, reason = (error.errno, error.strerror) if isinstance(error, OSError) else (None, None)
        remedy = "; make room there, or name another place" if number in (errno.ENOSPC, errno.EDQUOT) else ""
        if number in (errno.EACCES, errno.EPERM, errno.EROFS):
            remedy = f"; name a place that may be {done}"
        raise BadFile(f"{shown(path)} cannot be {done}: {reason or error}{remedy}") from error


def shown(path: Path) -> str:
    """Return a path as text that any terminal can print."""
    return printable(str(path))


def replace_file(target: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file, whole or not at all; a link is replaced, and no file that is there is written to.

    mode: its permissions, less those that the process leaves out.
    """
    temporary = target.with_name(f".gpu-bench-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


ENDING = ".json.gz"
LONGEST_TEST = 120
LONGEST_LABEL = 40
DIGEST = 12
"""Hexadecimal digits that tell names apart which are the same when shortened, or but for capitals."""


def trace_name(nodeid: str, label: str, number: int = 1, example: str = "") -> str:
    """Return the name of the file that holds the trace of a call: safe on any file system, and no other call's.

    number: which it is of the test's measurements with this label, from 1. example: as in `Measurement`.
    """
    whole = "\0".join([nodeid, label, str(number), example])
    digest = hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()[:DIGEST]
    path, _, test = nodeid.partition("::")
    name = _file_part(f"{path.rpartition('/')[2].removesuffix('.py')}.{test}" if test else nodeid, LONGEST_TEST)
    return "-".join([*filter(None, [name, _file_part(label, LONGEST_LABEL)]), digest]) + ENDING


def _file_part(name: str, most: int) -> str:
    """Return a name without the characters that are not safe in a file's, shortened inside where it is too long."""
    return shortened_inside(re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-."), most, "..")
