"""Processes of commands: their status, their ends, and interrupts, which end them with all that they started."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.child_process import ending, interrupts_raised, logged_process, run_logged, signals_handled
from pytest_gpubench.gpu.clocks import signals_deferred

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("name", ["TERM", "HUP"])
def test_a_run_that_is_interrupted_ends_with_all_it_started(tmp_path: Path, name: str) -> None:
    """SIGTERM, as CI sends it, and SIGHUP, of a connection that is lost, reach what the command started, too."""
    script = f"""
import os, subprocess, threading
from pathlib import Path
from pytest_gpubench.child_process import run_logged
command = ["sh", "-c", "sleep 600 & echo $! > {tmp_path}/pid; kill -{name} " + str(os.getpid()) + "; wait"]
try:
    run_logged(command, Path("/"), dict(os.environ), Path("{tmp_path}/log"))
except KeyboardInterrupt:
    print("interrupted")
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert found.stdout == "interrupted\n", found.stderr
    status = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    for _ in range(3000):  # it is killed, which takes the system a moment
        if not status.exists() or status.read_text().split()[2] == "Z":
            return
        time.sleep(0.01)
    pytest.fail("what the command started goes on")


def test_no_interrupt_finds_the_old_handler_while_a_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set once before it starts: between two handlers SIGTERM would end the process and leave the command running."""
    before, seen = [signal.getsignal(number) for number in INTERRUPTS], list[int]()
    set_handler = signal.signal

    def noting(number: int, handler: Any) -> Any:
        seen.append(number)
        return set_handler(number, handler)

    monkeypatch.setattr("signal.signal", noting)
    with logged_process(["true"], tmp_path, {}, tmp_path / "log") as process:
        assert sorted(seen) == sorted(INTERRUPTS)
        process.wait()
    assert [signal.getsignal(number) for number in INTERRUPTS] == before


@pytest.mark.parametrize(
    ("script", "timeout_s", "status"),
    [("exit 3", None, 3), ("kill -9 $$", None, -9), ("exit 3", 50.0, 3), ("sleep 60", 0.01, None)],
)
def test_a_command_runs_to_its_end_or_its_limit(
    tmp_path: Path, script: str, timeout_s: float | None, status: int | None
) -> None:
    assert run_logged(["sh", "-c", script], tmp_path, {}, tmp_path / "log", timeout_s=timeout_s) == status


def test_a_command_has_its_folder_its_environment_and_no_input(tmp_path: Path) -> None:
    log = tmp_path / "log"
    status = run_logged(["sh", "-c", "read line; echo $A $PWD $line; echo error >&2"], tmp_path, {"A": "a"}, log)
    assert ending(status, log) == f"(exit status 0); it ended with:\n    a {tmp_path}\n    error"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exit status 0"),
        (3, "exit status 3"),
        (-9, "SIGKILL"),
        (-200, "exit status -200"),
        (None, "not within 2 s"),
    ],
)
def test_an_end_in_words(tmp_path: Path, status: int | None, words: str) -> None:
    (tmp_path / "log").touch()
    assert ending(status, tmp_path / "log", 2.0) == f"({words}); it ended with:\n    (nothing)"
    assert status is None or ending(status, tmp_path / "log") == ending(status, tmp_path / "log", 2.0)


def raised(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def test_an_ignored_hangup_stays_ignored_and_another_thread_handles_none() -> None:
    """`nohup pytest-gpubench ab ...` goes on where its terminal is closed."""

    def handled() -> bool:
        with signals_handled(raised, signal.SIGHUP):
            return signal.getsignal(signal.SIGHUP) is raised

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert not handled()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert handled()
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(handled).result()


def test_signals_wait_until_the_end() -> None:
    done: list[str] = []

    def interrupted() -> None:
        with interrupts_raised(), signals_deferred():
            signal.raise_signal(signal.SIGTERM)
            done.append("in the context")
        done.append("after it")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["in the context"]


def test_a_signal_ends_a_forked_child_as_ever() -> None:
    with interrupts_raised():
        child = os.fork()
        if child == 0:
            signal.raise_signal(signal.SIGTERM)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
