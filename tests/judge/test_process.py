"""The candidate's process as the referee controls it, and its isolation."""

import os
import signal
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.judge.channel import LONGEST_TEXT, Reply
from pytest_gpubench.judge.isolation import seccomp
from pytest_gpubench.judge.process import Ended, Process, ended_by, remove_folder


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


def test_what_a_candidate_writes_is_cut_where_it_is_long() -> None:
    """Its process may send a message of 4 MiB."""
    found = ended_by(Reply(kind="failed", error="KeyError", text="x" * 2**20, trace="y" * 2**20))
    assert len(found.reason) == len(str(found)) == len(found.detail) == LONGEST_TEXT


def test_a_process_that_ran_while_it_was_stopped_is_found() -> None:
    """Whatever woke it, and though it stopped itself again."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as sleeper:
        process = Process.__new__(Process)
        process.pid, process.frozen = sleeper.pid, False
        process.allow(100)
        for _ in range(2):
            process.freeze()
            process.thaw()
        for signals in ([signal.SIGCONT], [signal.SIGCONT, signal.SIGSTOP]):
            process.freeze()
            for number in signals:
                os.killpg(sleeper.pid, number)
            until_stopped = os.WSTOPPED | os.WCONTINUED | os.WNOWAIT
            assert os.waitid(os.P_PID, sleeper.pid, until_stopped) is not None
            with pytest.raises(Ended, match="should have been stopped"):
                process.thaw()
            process.thaw()
        sleeper.kill()


def test_a_folder_too_deep_for_python_is_removed(tmp_path: Path) -> None:
    """And one that is closed to its owner."""
    box = tmp_path / "box"
    subprocess.run(["mkdir", "-p", box / "/".join(1200 * "d")], check=True)  # three times as fast as Path.mkdir
    (box / "shut").mkdir(mode=0)
    remove_folder(box)
    assert not box.exists()


@pytest.mark.parametrize("machine", seccomp.FORBIDDEN)
def test_the_filter_stays_within_itself(machine: str) -> None:
    """No jump leads past the end, and the last row returns."""
    rows = list(struct.iter_unpack("<HBBI", seccomp.program(machine, 1234)))
    assert rows[-1][0] == seccomp.RETURN
    for place_, (code, true, false, _) in enumerate(rows):
        if code in (seccomp.JUMP_EQUAL, seccomp.JUMP_ABOVE):
            assert place_ + 1 + max(true, false) < len(rows)


def test_a_process_runs_while_a_message_is_sent() -> None:
    """It has to read a long one meanwhile."""
    process: Any = Process.__new__(Process)
    done: list[str] = []
    for name in ("thaw", "tell", "hear", "freeze"):
        setattr(process, name, lambda *given, name=name, **more: done.append(name))
    process.ask("load")
    assert done == ["thaw", "tell", "hear", "freeze"]
