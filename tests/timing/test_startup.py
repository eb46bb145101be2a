"""The profiler's start in the background, and the parts of the profiler that need no GPU."""

import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from pytest_gpubench import DeviceUnavailable, NothingRecorded, ProfilerBusy
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.timing import profiler
from pytest_gpubench.timing.profiler import ProfilerTimer, open_profile, read_records
from pytest_gpubench.timing.sentinels import mean_clock_mhz
from pytest_gpubench.timing.startup import others_waiting
from tests.timing.fakes import ProfilerEvent


def test_profilers_of_others_wait_until_it_is_up() -> None:
    order: list[str] = []

    def profile_something() -> None:
        with torch.autograd.profiler.profile():
            order.append("theirs")

    with others_waiting():
        thread = threading.Thread(target=profile_something)
        thread.start()
        time.sleep(0.05)
        with torch.autograd.profiler.profile():
            order.append("ours")
    thread.join()
    assert order == ["ours", "theirs"]


def test_graph_captures_of_others_wait_until_it_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Graph:
        def capture_begin(self) -> None:
            order.append("capture")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    with others_waiting():
        thread = threading.Thread(target=Graph().capture_begin)
        thread.start()
        time.sleep(0.05)
        order.append("up")
    thread.join()
    assert order == ["up", "capture"]


FIRST_SESSION_IN_A_THREAD = """
import os
import torch
from pytest_gpubench.timing import startup

def session():
    with torch.autograd.profiler.profile(use_kineto=True):
        pass
    print("it ran")

startup.begin_startup(session)
startup.wait_for_startup()
print(os.environ.get("KINETO_LOG_LEVEL"))
"""


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("level", [None, "5"])
def test_the_first_session_in_the_background_prints_nothing(level: str | None) -> None:
    """At level 5, which is kept where the user has set it, there may be log lines, but no error."""
    environment = os.environ | {"KINETO_LOG_LEVEL": level or ""}
    if level is None:
        del environment["KINETO_LOG_LEVEL"]
    command = [sys.executable, "-c", FIRST_SESSION_IN_A_THREAD]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["it ran", str(level)]
    assert "registerClient" not in done.stderr
    assert level or not done.stderr


def test_nothing_stays_patched() -> None:
    before = torch.autograd.profiler.profile._prepare_trace
    with pytest.raises(ValueError, match="broken"), others_waiting():
        raise ValueError("broken")
    assert torch.autograd.profiler.profile._prepare_trace is before


def test_a_profiler_that_is_on_is_noticed() -> None:
    with (
        torch.autograd.profiler.profile(),
        pytest.raises(ProfilerBusy, match="a torch profiler is already on"),
    ):
        open_profile()


def test_empty_results_name_the_tool_that_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    session = profiler.ProfilerSession(SimpleNamespace())  # type: ignore[arg-type]
    for name in profiler.TOOL_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NothingRecorded, match="another tool holds CUPTI"):
        session.reps()
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "7")
    with pytest.raises(NothingRecorded, match="NSYS_PROFILING_SESSION_ID is set"):
        session.reps()


@pytest.mark.parametrize("value", ["1", "true", "ON"])
def test_the_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", value)
    with pytest.raises(DeviceUnavailable, match="TRITON_INTERPRET=1 is set"):
        ProfilerTimer(cpu_device(), "hot")


def test_a_missing_triton_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setitem(__import__("sys").modules, "triton", None)
    with pytest.raises(DeviceUnavailable, match=r"install triton, or use --gpu-bench-timer=wall"):
        ProfilerTimer(cpu_device(), "hot")


@pytest.mark.parametrize(
    ("begin", "end", "clock_mhz"),
    [
        ((1000, 50_000), (1_981_000, 1_050_000), 1980.0),
        ((1000, 50_000), (9_000, 54_000), None),  # too short to tell
        ((9000, 50_000), (1000, 1_050_000), None),  # not the same counter
        ((0, 0), (1000, 1_000_000), None),  # never written
    ],
)
def test_the_clock_between_two_readings(begin: tuple[int, int], end: tuple[int, int], clock_mhz: float | None) -> None:
    assert mean_clock_mhz(begin, end) == clock_mhz


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy DtoD (Device -> Device)", "memcpy"),
        ("Memset (Device)", "memset"),
        ("memcpy_kernel", "kernel"),
        ("MemcpyLike", "kernel"),
        ("Memset", "kernel"),
        ("void at::native::vectorized_elementwise_kernel", "kernel"),
    ],
)
def test_kinds_are_told_by_name(name: str, kind: str) -> None:
    profile = SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: [ProfilerEvent(name, 10)]))
    assert [record.kind for record in read_records(profile)] == [kind]


def test_only_work_of_the_gpu_is_read_in_the_order_it_started() -> None:
    events = [
        ProfilerEvent("late", 30),
        ProfilerEvent("cudaLaunchKernel", 5),
        ProfilerEvent("early", 10),
        ProfilerEvent("cudaLaunchKernel", 25),
        ProfilerEvent("ProfilerStep#1", 1),
        ProfilerEvent("Context Sync", 40),
        ProfilerEvent("cudaLaunchKernel", 50, on_gpu=True),
    ]
    profile = SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: events))
    names = [record.name for record in read_records(profile)]
    assert names == ["early", "late", "cudaLaunchKernel"]  # the last is a kernel that is named like a call of the host
