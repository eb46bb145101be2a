"""What a group of processes has: memory of its processes, and of none; files, and memory of the GPU."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpubench.judge import held
from pytest_gpubench.judge.judgement import Ended


def watch_of(group: int, box: Path, memory_bytes: int, nvml: Any = None) -> held.Watch:
    return held.Watch(group, box, memory_bytes, nvml, lambda number: os.killpg(group, number))


@pytest.mark.parametrize(
    ("processes", "used", "shared", "disk", "on_gpu", "message"),
    [
        (256, 1000, 900, 1000, 1000, ""),
        (257, 1000, 900, 1000, 1000, "the candidate has 257 processes, and may have 256"),
        (256, 1001, 900, 1000, 1000, "the candidate took 1001 B of memory, and may take 1000 B"),
        (256, 1000, 901, 1000, 1000, "the candidate took 1001 B of memory, and may take 1000 B"),
        (256, 1000, 900, 1001, 1000, "the candidate took 1001 B of disk, and may take 1000 B"),
        (256, 1000, 900, 1000, 1001, "the candidate took 1001 B of GPU memory, and may take 1000 B"),
    ],
)
def test_a_group_may_have_so_much(
    monkeypatch: pytest.MonkeyPatch, processes: int, used: int, shared: int, disk: int, on_gpu: int, message: str
) -> None:
    """What takes long is looked at once a second: 100 bytes of no process, too. A GiB is that of a context."""
    looked: list[Path] = []
    monkeypatch.setattr(held, "members_of", lambda group: [Path("/proc/7")] * processes)
    monkeypatch.setattr(held, "_bytes_of", lambda member: used)
    monkeypatch.setattr(held, "_bytes_without_process", lambda members: 100)
    monkeypatch.setattr(held.Watch, "_shared_once", lambda self, members: shared)

    def size_of(folder: Path) -> int:
        looked.append(folder)
        return disk

    monkeypatch.setattr(held, "_bytes_in", size_of)
    ours, other = (SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in ((7, 2**30 + on_gpu), (77, 9)))
    nvml = SimpleNamespace(ask=lambda query: [ours, other] if query == "ComputeRunningProcesses" else None)
    watch = watch_of(6, Path("box"), 1000, nvml)
    with pytest.raises(Ended, match=message) if message else nullcontext():
        watch.look()
        watch.look()
    assert len(looked) <= 1


FORKS = """
import os, sys, time
kept, does = bytearray(2**25), sys.argv[1]
for number in range(2 if does == "opens" else 0):
    opened = os.open("file", os.O_CREAT | os.O_RDWR)
    os.unlink("file")
    os.write(opened, bytes(2**20))
    kept = opened, kept, os.pipe()
for number in range(3):
    if os.fork() == 0: break
if does == "writes":
    for at in range(0, 2**25, 4096): kept[at] = 1
os.write(1, b"x")
time.sleep(1000)
"""


@contextmanager
def forked(does: str, folder: Path) -> Iterator[int]:
    """Give the group of four processes that share 32 MiB, as well as two deleted files of a MiB and two pipes."""
    command = [sys.executable, "-S", "-c", FORKS, does]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, cwd=folder) as popen:
        try:
            assert popen.stdout is not None
            assert popen.stdout.read(4) == b"xxxx"
            yield popen.pid
        finally:
            os.killpg(popen.pid, signal.SIGKILL)


@pytest.mark.parametrize("does", ["shares", "writes", "hides"])
def test_memory_that_processes_share_counts_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, does: str) -> None:
    """Unless one of them hides its own. They go on afterwards."""
    read_text = Path.read_text

    def read(path: Path) -> str:
        if does == "hides" and path.name == "smaps_rollup":
            raise PermissionError
        return read_text(path)

    monkeypatch.setattr(Path, "read_text", read)
    refused = pytest.raises(Ended, match="MiB of memory, and may take 64 MiB")
    with forked(does, tmp_path) as group:
        with nullcontext() if does == "shares" else refused:
            watch_of(group, tmp_path, 2**26).look()
        members = held.members_of(group)
        assert len(members) == 4
        assert "T" not in {(each / "stat").read_text().split()[2] for each in members}


def test_what_files_without_a_name_hold_counts_once(tmp_path: Path) -> None:
    """A file system may add to its files. The third pipe is that of their output."""
    with forked("opens", tmp_path) as group:
        members = held.members_of(group)
        assert 0 <= held._bytes_without_process(members) - 2 * 2**20 - 3 * held.PIPE_BYTES < 2**16
    assert held._bytes_without_process([tmp_path]) == 0, "one that has ended is not there"


def test_a_socket_counts_as_full() -> None:
    """Whatever it holds for its other end."""
    own = [Path("/proc/self")]
    before, pair = held._bytes_without_process(own), socket.socketpair()
    with pair[0], pair[1]:
        assert held._bytes_without_process(own) == before + 2 * held.SOCKET_BYTES


def test_a_process_that_hides_its_files_is_not_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it has ended: then nobody may look, either."""

    def refuse(path: object) -> object:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(Ended, match=r"has a process that hides its files \(Operation not permitted\)"):
        held._bytes_without_process([Path("/proc/self")])
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert held._bytes_without_process([Path("/proc", str(ended.pid))]) == 0


def test_a_process_has_what_was_swapped_and_what_maps_it(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tVmRSS: 8 kB\nVmRSS:\t1 kB\nVmPTE:\t 2 kB\nVmSwap:\t 4 kB\nVmPin: 64 kB\n")
    assert held._bytes_of(tmp_path) == 7 * 1024
    (tmp_path / "smaps_rollup").write_text("1-2 ---p 0 00:00 0 [rollup]\nRss: 99 kB\nPss: 16 kB\nSwapPss: 32 kB\n")
    assert held._bytes_shared_once(tmp_path) == 50 * 1024


class Gone:
    """Stands for an entry of a folder that is removed."""

    def is_dir(self, follow_symlinks: bool) -> bool:
        return False

    def stat(self, follow_symlinks: bool) -> os.stat_result:
        raise FileNotFoundError


def test_a_folder_is_as_large_as_what_its_files_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what they say, and no file outside counts. One that is removed meanwhile takes nothing."""
    scandir = os.scandir
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(bytes(10_000))
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(2**30)
    (tmp_path / "link").symlink_to("/usr")
    assert 10_000 <= held._bytes_in(tmp_path) < 30_000
    assert held._bytes_in(tmp_path / "removed") == 0
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", lambda folder: nullcontext([Gone(), *scandir(folder)]))
        assert held._bytes_in(tmp_path) >= 10_000, "a file that is removed meanwhile hides no others"
    monkeypatch.setattr(held, "MOST_FOLDERS_AND_FILES", 4)
    held._bytes_in(tmp_path)
    monkeypatch.setattr(held, "MOST_FOLDERS_AND_FILES", 3)
    with pytest.raises(Ended, match="made more than 3 folders and files"):
        held._bytes_in(tmp_path)
    with pytest.raises(Ended, match=r"made a folder that cannot be looked at \(File name too long\)"):
        held._bytes_in(tmp_path / ("d" * 300))  # as one that is too deep, or closed to its owner
