"""The memory, the files and the processes that a group of processes has: at most so much."""

import errno
import os
import signal
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_gpubench.gpu.foreign import read_gpu
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.judge.judgement import Ended
from pytest_gpubench.units import format_bytes

MOST_PROCESSES = 256
"""The processes that a candidate may have at a time, as compilers start some."""
MOST_FOLDERS_AND_FILES = 100_000
LOOK_S = 1.0
"""The time between two looks at what takes long: shared memory, its files and the GPU's memory."""
CONTEXT_BYTES = 2**30
"""The memory of the GPU that a process takes before it allocates any; an H200 showed 0.6 GiB."""
PIPE_BYTES, SOCKET_BYTES = 2**16, 2**19
"""The most that a pipe holds, and a socket for its other end with what the kernel adds: a candidate enlarges none."""
HIDDEN = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
"""Errors for what is there and cannot be looked at; by the others it is gone."""


@dataclass
class Watch:
    """A look at a group of processes and its folder; raises Ended where it has more than it may have."""

    group: int
    box: Path
    memory_bytes: int
    nvml: Nvml | None
    send: Callable[[int], object]
    """Sends all of its processes a signal."""
    _looked_s: float = 0.0

    def look(self) -> None:
        """Look at it; at what takes long once in a while."""
        members = members_of(self.group)
        if len(members) > MOST_PROCESSES:
            raise Ended("refused", f"the candidate has {len(members)} processes, and may have {MOST_PROCESSES}")
        own = [*map(_bytes_of, members)]
        self._refuse_more("memory", max(own, default=0))
        if (now_s := time.monotonic()) > self._looked_s:
            others = _bytes_without_process(members)
            held = sum(own) + others
            self._refuse_more("memory", held if held <= self.memory_bytes else self._shared_once(members) + others)
            self._refuse_more("disk", _bytes_in(self.box))
            listed = (read_gpu(self.nvml)[0] if self.nvml else None) or ()  # with other ids in a container
            on_gpu = [each.memory_bytes or 0 for each in listed if Path("/proc", str(each.pid)) in members]
            self._refuse_more("GPU memory", sum(on_gpu) - CONTEXT_BYTES)
            self._looked_s = now_s + LOOK_S

    def _shared_once(self, members: Sequence[Path]) -> int:
        """Return the memory of all; a page that several share counts once. They are stopped for 10 to 30 ms each."""
        self.send(signal.SIGSTOP)
        try:
            return sum(map(_bytes_shared_once, members))
        finally:
            self.send(signal.SIGCONT)

    def _refuse_more(self, what: str, used: int) -> None:
        if used > self.memory_bytes:
            asked = format_bytes(self.memory_bytes)
            raise Ended("out_of_memory", f"the candidate took {format_bytes(used)} of {what}, and may take {asked}")


def members_of(group: int) -> list[Path]:
    """Return the folders of /proc of a group's processes."""
    members = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            if os.getpgid(int(name)) == group:  # a tenth of the time that its stat takes: hosts have thousands
                members.append(Path("/proc", name))
    return members


def _bytes_of(process: Path) -> int:
    """Return the memory that a process holds, also what it shares with others; 0 once it has ended."""
    return _bytes(process / "status", "VmRSS", "VmSwap", "VmPTE")


def _bytes_shared_once(process: Path) -> int:
    """Return the memory that a process holds: of a page that n processes share an n-th."""
    if own := _bytes(process / "smaps_rollup", "Pss", "SwapPss"):
        return own + _bytes(process / "status", "VmPTE")
    return _bytes_of(process)  # it hides its memory, or has ended


def _bytes(path: Path, *names: str) -> int:
    """Return the sum of these numbers of kB in a file of /proc."""
    with suppress(OSError):
        rows = (line.partition(":") for line in path.read_text().splitlines())
        return 1024 * sum(int(value.split()[0]) for name, _, value in rows if name in names)
    return 0


def _bytes_without_process(processes: Sequence[Path]) -> int:
    """Return what open files hold that no process's memory and no folder has: deleted ones, sockets and pipes.

    Raises Ended where a process hides them.
    """
    found: dict[tuple[int, int], int] = {}
    for process in processes:
        try:
            for each in os.scandir(process / "fd"):
                with suppress(FileNotFoundError):  # it was closed meanwhile
                    facts = each.stat()
                    found[facts.st_dev, facts.st_ino] = _unnamed_bytes(facts)
        except OSError as error:
            if error.errno in HIDDEN and _bytes_of(process):  # it lives
                raise Ended("refused", f"the candidate has a process that hides its files ({error.strerror})") from None
    return sum(found.values())


def _unnamed_bytes(facts: os.stat_result) -> int:
    if stat.S_ISSOCK(facts.st_mode):
        return SOCKET_BYTES
    return PIPE_BYTES if stat.S_ISFIFO(facts.st_mode) else 0 if facts.st_nlink else 512 * facts.st_blocks


def _bytes_in(folder: Path) -> int:
    """Return the size of the files in a folder; raise Ended where they are too many, or one cannot be looked at."""
    total, found, waiting = 0, 0, [folder]
    too_many = Ended("refused", f"the candidate made more than {MOST_FOLDERS_AND_FILES} folders and files")
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    found += 1
                    if found > MOST_FOLDERS_AND_FILES:
                        raise too_many
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                        continue
                    with suppress(FileNotFoundError):  # it was removed meanwhile
                        total += 512 * entry.stat(follow_symlinks=False).st_blocks
        except OSError as error:
            if error.errno in HIDDEN:
                raise Ended(
                    "refused", f"the candidate made a folder that cannot be looked at ({error.strerror})"
                ) from None
    return total
