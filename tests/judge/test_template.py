"""The process from which those of candidates are forked; judgements are in `test_judge.py`."""

import ctypes
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench import MeasurementError
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge.isolation.libc import libc
from pytest_gpubench.judge.process_pool import ProcessPool
from pytest_gpubench.judge.template import Template


def adopts_and_shows() -> tuple[int, int]:
    """Return whether this process adopts orphans, and whether others may read its memory: by prctl(2)."""
    adopts = ctypes.c_int()
    libc().prctl(37, ctypes.byref(adopts), 0, 0, 0)
    return adopts.value, libc().prctl(3, 0, 0, 0, 0)


def test_a_forked_process_is_a_child_of_this_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It leads a session, and has the folder and the files that it is given; what fails is in its log.

    Until the template is closed, this process adopts orphans and hides its memory.
    """
    before = adopts_and_shows()
    template = Template()
    assert adopts_and_shows() == (1, 0)
    settings: dict[str, Any] = {"device": "cpu", "environment": {"NAME": "value"}, "box": str(tmp_path)}
    with (tmp_path / "log").open("w") as log:
        pid = template.fork(settings, log.fileno(), log.fileno())
    assert os.getsid(pid) == pid
    assert os.waitpid(pid, 0) == (pid, 256)
    assert "KeyError: 'folders'" in (tmp_path / "log").read_text()
    prctl = libc().prctl
    prctl(36, 0, 0, 0, 0)  # as in a process that was forked from this one
    other = Template()
    template.close()
    assert adopts_and_shows() == (1, 0), "another judge needs it"
    other.close()
    assert adopts_and_shows() == before


def test_a_template_that_does_not_start_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = adopts_and_shows()

    def fail(*words: object, **named: object) -> None:
        raise OSError("no process")

    monkeypatch.setattr("subprocess.Popen", fail)
    with pytest.raises(OSError, match="no process"):
        Template()
    assert adopts_and_shows() == before


def test_a_template_that_has_ended_is_replaced() -> None:
    template = Template()
    os.kill(template._process.pid, signal.SIGKILL)
    template._process.wait()
    with pytest.raises(MeasurementError, match="from which those of candidates are forked did not fork one"):
        template.fork({}, 1, 1)
    pool = ProcessPool(cpu_device())
    pool._template = template
    pool.start(1)
    assert pool._template is not template
    pool.close()
