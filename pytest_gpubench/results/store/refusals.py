"""What the operating system refuses to do to a file, in one sentence."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_gpubench.errors import BadFile
from pytest_gpubench.units import printable

__tracebackhide__ = True


@contextmanager
def telling_why(path: Path, done: str) -> Iterator[None]:
    """Turn what the operating system refuses into one sentence; done: what cannot be done to the path."""
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, BadFile):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        number = error.errno if isinstance(error, OSError) else None
        raise BadFile(f"{shown(path)} cannot be {done}: {reason}{_remedy(number, done)}") from error


def _remedy(number: int | None, done: str) -> str:
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "; make room there, or name another place"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"; name a place that may be {done}"
    return ""


def shown(path: Path) -> str:
    """Return a path as text that can be printed, whatever is in it."""
    return printable(str(path))
