"""The candidate's process as the referee controls it, and its isolation."""

import fcntl
import os
import shutil
import site
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge import isolation
from pytest_gpubench.judge import process as process_module
from pytest_gpubench.judge.channel import Channel, Reply
from pytest_gpubench.judge.isolation import seccomp
from pytest_gpubench.judge.judgement import Ended
from pytest_gpubench.judge.process import (
    Process,
    copy_triton_cache,
    ended_by,
    gpu_for_process,
    remove_folder,
)


@pytest.mark.parametrize(
    ("error", "text", "stage", "status"),
    [
        ("BadRequest", "a.py must define f", "load", "refused"),
        ("SyntaxError", "x", "load", "compile_error"),
        ("CompilationError", "at 3:4", "first", "compile_error"),
        ("OutOfMemoryError", "CUDA out of memory", "first", "out_of_memory"),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory", "take", "out_of_memory"),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered", "first", "crash"),
        ("KernelsDiffer", "one more", "warm", "invalid"),
        ("SystemExit", "0", "load", "crash"),
    ],
)
def test_an_error_has_a_status(error: str, text: str, stage: str, status: str) -> None:
    found = ended_by(Reply(kind="failed", error=error, text=text, stage=stage, trace="Traceback"))
    assert (found.status, found.detail) == (status, "" if status == "refused" else "Traceback")


def test_inputs_that_cannot_be_sent_are_an_error_of_the_spec() -> None:
    mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = object.__new__(Process)
    process.allow(1)
    process.channel = Channel(mine)
    with mine, other, pytest.raises(BadRequest, match="the spec's inputs cannot be sent: a message of 200023 bytes"):
        process.ask("case", text="x" * 200_000)


def test_what_a_candidate_writes_is_cut_where_it_is_long() -> None:
    """Its process may send a message of 4 MiB."""
    found = ended_by(Reply(kind="failed", error="KeyError", text="x" * 2**20, trace="y" * 2**20))
    assert len(found.reason) == len(str(found)) == len(found.detail) == 2000
    assert ended_by(Reply(kind="failed", error="KeyError", text="\n\nab\nc")).reason.endswith(" KeyError: ab")


FILES = ["/dev/nvidia-caps", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia11", "/dev/nvidiactl"]
SHARED = [FILES[0], FILES[1], FILES[5]]


@pytest.mark.parametrize(
    ("uuid", "minor", "mig", "place", "files"),
    [
        ("GPU-5", 1, False, "0", [*SHARED[:2], "/dev/nvidia1", SHARED[2]]),
        ("GPU-5", 2, False, "1", FILES),
        ("GPU-5", None, False, "1", FILES),
        ("GPU-5", 1, True, "1", FILES),
        (None, 1, False, "1", FILES),
    ],
)
def test_a_process_may_use_no_other_gpu_than_its_own(
    monkeypatch: pytest.MonkeyPatch, uuid: str | None, minor: int | None, mig: bool, place: str, files: list[str]
) -> None:
    """Where its file is not known it may use all, under the numbers that the referee knows them by."""
    monkeypatch.setattr(Path, "glob", lambda self, pattern: map(Path, reversed(FILES)))
    variables = {"CUDA_VISIBLE_DEVICES": "3,4"}
    device: Any = SimpleNamespace(
        type="cuda",
        facts=SimpleNamespace(uuid=uuid, mig=mig),
        torch_device=SimpleNamespace(index=1),
        nvml=SimpleNamespace(ask={"MinorNumber": minor}.get),
    )
    assert gpu_for_process(device, variables) == (place, files)
    assert variables["CUDA_VISIBLE_DEVICES"] == ("3,4" if place == "1" else uuid)


def test_a_process_finds_packages_where_the_referee_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In folders of PYTHONPATH; not what else may lie there, as specs beside a folder that is named like a package."""
    (tmp_path / "specs" / "torch").mkdir(parents=True)
    flat, specs = str(tmp_path / "flat"), str(tmp_path / "specs")
    monkeypatch.setattr(msgspec.__spec__, "origin", f"{flat}/msgspec/__init__.py")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", specs, os.path.relpath(flat)]))
    assert isolation.environment(tmp_path)["PYTHONPATH"].split(os.pathsep) == [str(isolation.PACKAGE.parent), flat]
    monkeypatch.setattr(sys, "path", [specs, flat])
    assert Path(flat) in isolation._readable_folders()
    assert Path(specs) not in isolation._readable_folders()


@pytest.mark.parametrize("is_enabled", [True, False, None])
def test_a_process_finds_packages_of_the_user_if_the_referee_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_enabled: bool | None
) -> None:
    """By itself their folder depends on HOME; `python -s`, virtual environments and root's processes do without."""
    monkeypatch.setattr(site, "ENABLE_USER_SITE", is_enabled)
    found = {
        name: value for name, value in isolation.environment(tmp_path).items() if "USER" in name and "PYTHON" in name
    }
    assert found == ({"PYTHONUSERBASE": site.getuserbase()} if is_enabled else {"PYTHONNOUSERSITE": "1"})


def test_a_candidate_reads_no_library_beside_the_spec(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the folders from which this process loaded any."""
    monkeypatch.chdir(tmp_path)
    paths = (
        f"{tmp_path}/a.so",
        f"{tmp_path}/b/c.so",
        f"{tmp_path}2/d.so",
        "/usr/lib/e.so.6",
        "/f.so",
        "/usr/bin/g",
        "",
    )
    maps = "\n".join(f"7f00-8f00 r-xp 00000000 00:00 0 {path}" for path in paths)
    monkeypatch.setattr(Path, "read_text", lambda self: maps)
    assert isolation.library_folders() == sorted(["/usr/lib", f"{tmp_path}2"])


@contextmanager
def process_of(*command: str) -> Iterator[tuple[Any, Channel]]:
    """Return a process as the referee has it, and the other end of its channel."""
    process: Any = Process.__new__(Process)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.settimeout(0.01)
    with subprocess.Popen(command, start_new_session=True) as popen, mine, theirs:
        process.channel, process.pid = Channel(mine), popen.pid
        process.tail, process._look = (lambda: ""), lambda: None
        process.allow(100)
        try:
            yield process, Channel(theirs)
        finally:
            popen.kill()


def test_a_process_that_has_ended_is_over() -> None:
    """Whoever of its children answers."""
    with process_of("true") as (process, theirs):
        theirs.send(Reply(kind="done"))
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(Ended, match="the candidate's process ended with exit status 0"):
            process.ask("first")
        assert os.waitpid(process.pid, os.WNOHANG)[0] == process.pid, "`kill` frees its id"


def test_an_answer_is_seen_however_many_files_are_open() -> None:
    with process_of("sleep", "1000") as (process, theirs):
        end = process.channel.socket
        with socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 1024)) as process.channel.socket:
            assert not process.has_answered
            theirs.send(Reply(kind="done"))
            assert process.has_answered
        process.channel.socket = end


def test_only_time_that_a_process_is_waited_for_is_its_own() -> None:
    with process_of("sleep", "1000") as (process, theirs):
        done = list[str]()

        def wait(look: Callable[[], None]) -> None:
            time.sleep(1)
            process._look = lambda: done.append("looked at")
            look()
            process._look = lambda: None

        time.sleep(0.02)
        assert process.left_s == 100
        threading.Timer(0.02, theirs.send, [Reply(kind="done")]).start()
        assert process.ask("first", meanwhile=wait).kind == "done"
        assert done == ["looked at"]
        assert process.left_s > 99
        threading.Timer(0.02, theirs.send, [Reply(kind="done")]).start()
        assert process.ask("first").kind == "done"
        assert 99 < process.left_s < 99.99


def test_a_process_that_was_killed_is_sent_no_signal() -> None:
    """Its id may be another's by then."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as sleeper:
        process: Any = Process.__new__(Process)
        process.pid = sleeper.pid
        process.kill()
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
        process.pid = other.pid
        process.kill()
        assert other.poll() is None
        other.kill()


def test_a_process_that_does_not_end_lingers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it does, as one that waits for a disk."""
    monkeypatch.setattr(process_module, "STOP_S", 0.01)
    with process_of("true") as (process, _):
        with monkeypatch.context() as stuck:
            stuck.setattr(os, "waitpid", lambda group, options: (0, 0))
            process.kill()
        assert process.lingers
        os.waitpid(process.pid, 0)
        assert not process.lingers


@pytest.mark.parametrize("fails", ["copy_triton_cache", "library_folders"])
def test_a_process_that_cannot_be_started_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: str
) -> None:
    def fail(*given: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(process_module, fails, fail)
    template: Any = SimpleNamespace(fork=lambda *given: 1)
    with pytest.raises(OSError, match="no space"):
        Process(template, cpu_device(), 1000, tmp_path if fails == "copy_triton_cache" else None)
    assert not [*tmp_path.iterdir()]


def test_a_copy_of_tritons_cache_is_one(tmp_path: Path) -> None:
    """Without a cache each process would compile the kernels of a measurement, for a second."""
    pytest.importorskip("triton")
    from triton.runtime.cache import get_cache_manager

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path / "first"))
        cache = get_cache_manager("ab12")
        cache.put_group("kernel.json", {"kernel.json": cache.put("{}", "kernel.json")})
        copy_triton_cache(tmp_path / "first", tmp_path / "copy")
        shutil.rmtree(tmp_path / "first")
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path / "copy"))
        assert get_cache_manager("ab12").get_group("kernel.json") == {
            "kernel.json": next(str(each) for each in (tmp_path / "copy").glob("*/kernel.json"))
        }


def test_a_folder_too_deep_for_python_is_removed(tmp_path: Path) -> None:
    """And one that is closed to its owner."""
    box = tmp_path / "box"
    subprocess.run(["mkdir", "-p", box / "/".join(1200 * "d")], check=True)  # three times as fast as Path.mkdir
    (box / "shut").mkdir(mode=0)
    remove_folder(box)
    assert not box.exists()


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_the_filter_stays_within_itself(machine: str) -> None:
    """No jump leads past the end, and the last row returns. A call that is newer than the list does not exist."""
    rows = list(struct.iter_unpack("<HBBI", seccomp.program(machine, 1234, shares_memory=False)))
    assert rows[-1][0] == seccomp.RETURN
    for place_, (code, true, false, _) in enumerate(rows):
        if code in (seccomp.JUMP_EQUAL, seccomp.JUMP_FROM):
            assert place_ + 1 + max(true, false) < len(rows)
    assert rows[4:6] == [
        (seccomp.JUMP_FROM, 0, 1, 450),
        (seccomp.RETURN, 0, 0, seccomp.ERRNO_ENOSYS),
    ]
