"""The memory and the files that a group of processes holds."""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

MOST_FOLDERS_AND_FILES = 100_000
PIPE_BYTES, SOCKET_BYTES = 2**16, 2**19
"""The most that a pipe holds, and a socket for its other end with what the kernel adds: a candidate enlarges none."""
GONE = (FileNotFoundError, NotADirectoryError, ProcessLookupError)


class Uncounted(Exception):
    """Raised for what cannot be counted, with the end of a sentence that begins with its owner."""


def members_of(group: int) -> list[Path]:
    """Return the folders of /proc of a group's processes."""
    members = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            if os.getpgid(int(name)) == group:  # a tenth of the time that its stat takes: hosts have thousands
                members.append(Path("/proc", name))
    return members


def bytes_of(process: Path) -> int:
    """Return the memory that a process holds, also what it shares with others; 0 once it has ended."""
    return _bytes(process / "status", "VmRSS", "VmSwap", "VmPTE")


def bytes_shared_once(process: Path) -> int:
    """Return the memory that a process holds: of a page that n processes share an n-th."""
    if own := _bytes(process / "smaps_rollup", "Pss", "SwapPss"):
        return own + _bytes(process / "status", "VmPTE")
    return bytes_of(process)  # it hides its memory, or has ended


def _bytes(path: Path, *names: str) -> int:
    """Return the sum of these numbers of kB in a file of /proc."""
    with suppress(OSError):
        rows = (line.partition(":") for line in path.read_text().splitlines())
        return 1024 * sum(int(value.split()[0]) for name, _, value in rows if name in names)
    return 0


def bytes_without_process(processes: Sequence[Path]) -> int:
    """Return what open files hold that no process's memory and no folder has: deleted ones, sockets and pipes.

    Raises Uncounted where a process hides them.
    """
    found: dict[tuple[int, int], int] = {}
    for process in processes:
        try:
            for each in os.scandir(process / "fd"):
                with suppress(*GONE):
                    facts = each.stat()
                    found[facts.st_dev, facts.st_ino] = _unnamed_bytes(facts)
        except GONE:
            continue
        except OSError as error:
            if bytes_of(process):  # it lives
                raise Uncounted(f"has a process that hides its files ({error.strerror})") from None
    return sum(found.values())


def _unnamed_bytes(facts: os.stat_result) -> int:
    if stat.S_ISSOCK(facts.st_mode):
        return SOCKET_BYTES
    return PIPE_BYTES if stat.S_ISFIFO(facts.st_mode) else 0 if facts.st_nlink else 512 * facts.st_blocks


def bytes_in(folder: Path) -> int:
    """Return the size of the files in a folder; raise Uncounted where they are too many, or one cannot be looked at."""
    total, found = 0, 0
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    found += 1
                    if found > MOST_FOLDERS_AND_FILES:
                        raise Uncounted(f"made more than {MOST_FOLDERS_AND_FILES} folders and files")
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    else:
                        total += 512 * entry.stat(follow_symlinks=False).st_blocks
        except GONE:
            continue
        except OSError as error:
            raise Uncounted(f"made a folder that cannot be looked at ({error.strerror})") from None
    return total
