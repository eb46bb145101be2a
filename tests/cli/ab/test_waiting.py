"""Runs that are started ahead end before their turn, or without one."""

import os
import sys
from pathlib import Path

import pytest

from pytest_gpubench.cli.ab.runs import waiting_process


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
