"""Processes as /proc shows them."""

import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from pytest_gpubench.gpu.foreign import read_gpu
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.gpu.processes import family
from tests.gpu.recording_nvml import Recording


def test_a_family_is_all_that_descends_and_who_waits() -> None:
    script = "import subprocess, sys; p = subprocess.Popen(['cat']); print(p.pid, flush=True); p.wait()"
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    try:
        assert {os.getpid(), child.pid, grandchild} <= family([os.getpid()])
        waiting = family([])
        assert os.getppid() in waiting
        assert not {os.getpid(), child.pid, grandchild} & waiting
        assert family([child.pid]) - waiting == {child.pid, grandchild}
        assert family([child.pid, 2**30]) - waiting == {child.pid, grandchild, 2**30}
    finally:
        child.communicate("")


@pytest.mark.parametrize(("find", "known"), [(os.getpid, True), (lambda: 2**30, False)])
def test_a_process_is_known_by_its_command(find: Callable[[], int], known: bool) -> None:
    assert (command_of(find()) is not None) == known


def command_of(pid: int) -> str | None:
    """Return the command by which a process on the GPU is known."""
    answers = {"ComputeRunningProcesses": [SimpleNamespace(pid=pid, usedGpuMemory=None)]}
    found = read_gpu(Nvml(Recording(answers=answers), "handle")).processes
    assert found is not None
    return found[0].command


def test_a_process_that_is_ending_has_no_command() -> None:
    """NVML may list it still; nothing runs in it."""
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert command_of(child.pid) is None
    child.communicate()
