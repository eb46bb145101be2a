"""What a group of processes holds: the memory of its processes, of files without a name, and its folder."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_gpubench.judge import held
from pytest_gpubench.judge.held import Uncounted, bytes_in, bytes_of, bytes_without_process, members_of


def test_a_folder_is_as_large_as_what_its_files_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what they say, and no file outside counts."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(bytes(10_000))
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(2**30)
    (tmp_path / "link").symlink_to("/usr")
    assert 10_000 <= bytes_in(tmp_path) < 30_000
    monkeypatch.setattr(held, "MOST_FOLDERS_AND_FILES", 4)
    bytes_in(tmp_path)
    monkeypatch.setattr(held, "MOST_FOLDERS_AND_FILES", 3)
    with pytest.raises(Uncounted, match="made more than 3 folders and files"):
        bytes_in(tmp_path)


def test_a_folder_that_cannot_be_looked_at_is_not_overlooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is too deep, or closed to its owner. What is removed meanwhile takes nothing."""
    assert bytes_in(tmp_path / "removed") == 0
    with pytest.raises(Uncounted, match=r"made a folder that cannot be looked at \(File name too long\)"):
        bytes_in(tmp_path / ("d" * 300))


HOLDS = """
import os, sys, time
kept = []
for number in range(2):
    kept.append(os.open(sys.argv[1], os.O_CREAT | os.O_RDWR))
    os.unlink(sys.argv[1])
    os.write(kept[-1], bytes(2**20))
same, pipe = os.dup(kept[-1]), os.pipe()
os.fork()
os.write(1, b"x")
time.sleep(1000)
"""


@contextmanager
def holding(path: Path) -> Iterator[list[Path]]:
    """Give two processes that have the same files open: two deleted ones of a MiB, a pipe, and that of their output."""
    command = [sys.executable, "-S", "-c", HOLDS, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as popen:
        assert popen.stdout is not None
        try:
            assert popen.stdout.read(2) == b"xx"
            yield members_of(popen.pid)
        finally:
            os.killpg(popen.pid, signal.SIGKILL)


def test_what_files_without_a_name_hold_counts_once(tmp_path: Path) -> None:
    with holding(tmp_path / "file") as members:
        assert len(members) == 2
        more = bytes_without_process(members) - 2 * 2**20 - 2 * held.PIPE_BYTES
        assert 0 <= more < 2**16, "a file system may add to its files"
    assert bytes_without_process(members) == 0, "they have ended"


def test_a_socket_counts_as_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it holds for its other end; two more are no files of this process's before."""
    before = bytes_without_process([Path("/proc/self")])
    one, other = socket.socketpair()
    with one, other:
        assert bytes_without_process([Path("/proc/self")]) == before + 2 * held.SOCKET_BYTES


def test_a_process_that_hides_its_files_is_not_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it has ended: then nobody may look, either."""

    def refuse(path: object) -> object:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(Uncounted, match=r"has a process that hides its files \(Operation not permitted\)"):
        bytes_without_process([Path("/proc/self")])
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert bytes_without_process([Path("/proc", str(ended.pid))]) == 0


def test_a_process_holds_what_was_moved_away_and_what_maps_it(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tVmRSS: 8 kB\nVmRSS:\t1 kB\nVmPTE:\t 2 kB\nVmSwap:\t 4 kB\nVmPin: 64 kB\n")
    assert bytes_of(tmp_path) == 7 * 1024
    (tmp_path / "smaps_rollup").write_text("1-2 ---p 0 00:00 0 [rollup]\nRss: 99 kB\nPss: 16 kB\nSwapPss: 32 kB\n")
    assert held.bytes_shared_once(tmp_path) == 50 * 1024
