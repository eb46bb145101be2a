"""A run that is interrupted ends with all that it started."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_gpubench.cli.ab.process import raise_interrupt, signals_handled, waiting_process


@pytest.mark.parametrize("name", ["TERM", "HUP"])
def test_a_run_that_is_interrupted_ends_with_all_it_started(tmp_path: Path, name: str) -> None:
    """SIGTERM, as CI sends it, and SIGHUP, of a connection that is lost, reach what the command started, too."""
    script = f"""
import os, subprocess, threading
from pathlib import Path
from pytest_gpubench.cli.ab.process import INTERRUPTS, raise_interrupt, run_logged, signals_handled
command = ["sh", "-c", "sleep 60 & echo $! > {tmp_path}/pid; kill -{name} " + str(os.getpid()) + "; wait"]
try:
    with signals_handled(raise_interrupt, *INTERRUPTS):
        run_logged(command, Path("/"), dict(os.environ), Path("{tmp_path}/log"))
except KeyboardInterrupt:
    print("interrupted")
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert found.stdout == "interrupted\n", found.stderr
    status = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    for _ in range(6000):  # it is killed, which takes the system a moment
        if not status.exists() or status.read_text().split()[2] == "Z":
            return
        time.sleep(0.01)
    pytest.fail("what the command started goes on")


def test_a_process_that_ends_before_its_turn(tmp_path: Path) -> None:
    with waiting_process(["sh", "-c", "exit 3"], tmp_path, {}, tmp_path / "log") as process:
        process.wait_until_ready()
        assert process.run() == 3


def test_a_process_that_never_has_its_turn_is_ended(tmp_path: Path) -> None:
    script = """
import os, time
with open("pid", "w") as file: file.write(str(os.getpid()))
os.write(int(os.environ["PYTEST_GPUBENCH_TURN_SOCKET"]), b"ready")
time.sleep(60)
"""
    command = [sys.executable, "-c", script]
    with waiting_process(command, tmp_path, {}, tmp_path / "log") as process:
        process.wait_until_ready()
        pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_ignored_hangup_stays_ignored() -> None:
    """`nohup pytest-gpubench ab ...` goes on where its terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_handled(raise_interrupt, signal.SIGHUP):
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
