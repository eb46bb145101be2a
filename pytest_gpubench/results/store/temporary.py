"""The files that runs are written to before they have a name of their own, and those that killed processes left."""

import re
import stat
import time
from contextlib import suppress
from pathlib import Path

__tracebackhide__ = True

ABANDONED_S = 3600.0
"""A temporary file that was not written to for so long is of a process that was killed: writing takes seconds."""


def remove_abandoned(saved: Path, below: int = 0) -> None:
    """Remove what killed processes left beside a file that was just saved, by whose time their age is told.

    below: also the claims of smaller numbers than this. Nobody claims those anew, with a run of this number there: no
    claim can be taken away from somebody who has just made it.
    """
    with suppress(OSError):  # the run is saved, whatever becomes of the rest
        for path in abandoned(saved.parent, saved.stat().st_mtime):
            number = claimed_number(path)
            if number is None or number < below:
                path.unlink(missing_ok=True)


def abandoned(folder: Path, now_s: float | None = None) -> list[Path]:
    """Return the temporary files that killed processes left in a folder, told by name and age.

    now_s: seconds since the epoch; None is the clock of this host. Raises OSError where the folder cannot be read.
    """
    now_s = time.time() if now_s is None else now_s
    return sorted(path for path in folder.iterdir() if is_temporary(path.name) and _age_s(path, now_s) > ABANDONED_S)


def is_temporary(name: str) -> bool:
    """Tell whether a file's name is one that runs have while they are written."""
    return re.fullmatch(r"\.(gpu-bench-[0-9a-f]{16}|\d{4,})\.tmp", name, re.ASCII) is not None


def claimed_number(path: Path) -> int | None:
    """Return the number that a temporary file keeps for a run; None for one that keeps none."""
    return int(path.stem[1:]) if path.stem[1:].isdigit() else None


def _age_s(path: Path, now_s: float) -> float:
    """Return how long ago a file was written to; less than nothing for what is gone, or is no file of its own."""
    try:
        facts = path.lstat()
    except OSError:
        return -1.0
    return now_s - facts.st_mtime if stat.S_ISREG(facts.st_mode) else -1.0
