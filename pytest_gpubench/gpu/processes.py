"""Processes of this host, as far as /proc shows them."""

import os
from collections.abc import Iterable
from pathlib import Path


def start_of(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; None where it has ended or cannot be seen."""
    fields = stat_fields(pid)
    return None if len(fields) < 20 or fields[0] in ("Z", "X") else int(fields[19])


def pid_namespace() -> str | None:
    """Return the namespace of process ids, that of a container or of the host; None where it is not known."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def family(roots: Iterable[int]) -> frozenset[int]:
    """Return the ids of processes, of all their descendants, and of this process's ancestors, which wait for it."""
    found = set(roots)
    pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    parents = {pid: int(fields[1]) for pid in pids if (fields := stat_fields(pid))}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return frozenset(found | ancestors())


def ancestors() -> set[int]:
    """Return the ids of the processes that this one descends from, as far as they are of this container."""
    found, pid = set[int](), os.getppid()
    while fields := stat_fields(pid):
        found.add(pid)
        pid = int(fields[1])
    return found


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on, the process's state; nothing where it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
