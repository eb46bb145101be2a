"""Processes as /proc shows them."""

import os
import subprocess
import sys
from types import SimpleNamespace

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


def test_a_process_is_known_by_its_command_until_it_ends() -> None:
    """NVML may list one that is ending; nothing runs in it."""
    ending = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ending.pid, os.WEXITED | os.WNOWAIT)
    listed = [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in (os.getpid(), ending.pid, 2**30)]
    found = read_gpu(Nvml(Recording(answers={"ComputeRunningProcesses": listed}), "handle"))[0]
    ending.wait()
    assert found is not None
    assert [each.command is not None for each in found] == [True, False, False]
