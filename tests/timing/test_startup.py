"""The profiler's start in the background, and the parts of the profiler that need no GPU."""

import gc
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_gpubench import DeviceUnavailable, NothingRecorded
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.timing import events, kernels, make_timer, profiler, startup
from pytest_gpubench.timing.base import Record
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.timing.events import EventsTimer
from pytest_gpubench.timing.profiler import ProfilerTimer, read_records
from tests.timing.fakes import ProfilerEvent
from tests.timing.test_regions import FakeGpu, gpu, timer_of  # noqa: F401 # a fixture

START_IN_A_THREAD = """
import os, threading, time
import torch
from pytest_gpubench.timing import startup

order, begun = [], threading.Event()

class Graph:
    def capture_begin(self):
        order.append("a capture of others")

torch.cuda.CUDAGraph = Graph
before = Graph.capture_begin, torch.autograd.profiler.profile._prepare_trace

def capture():
    begun.wait()
    Graph().capture_begin()

def session():
    begun.set()
    time.sleep(0.05)
    with torch.autograd.profiler.profile(use_kineto=True):
        order.append("ours")
    raise ValueError("broken")

startup.begin_startup(session)
capturing = threading.Thread(target=capture)
capturing.start()
begun.wait()
with torch.autograd.profiler.profile():
    startup.wait_for_startup()
    order.append("theirs")
capturing.join()
assert (Graph.capture_begin, torch.autograd.profiler.profile._prepare_trace) == before
print(order[0], *sorted(order[1:]), os.environ.get("KINETO_LOG_LEVEL"), sep=", ")
"""


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("level", [None, "5"])
def test_others_wait_for_the_start_in_the_background_which_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, level: str | None
) -> None:
    """At level 5, which is kept where the user has set it, there may be log lines, but no error."""
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    if level is not None:
        monkeypatch.setenv("KINETO_LOG_LEVEL", level)
    done = subprocess.run([sys.executable, "-c", START_IN_A_THREAD], capture_output=True, text=True)
    assert done.stdout == f"ours, a capture of others, theirs, {level}\n"
    assert "registerClient" not in done.stderr
    assert level or not done.stderr


def test_in_the_background_a_rep_is_taken_where_there_is_a_timer(
    monkeypatch: pytest.MonkeyPatch,
    gpu: FakeGpu,  # noqa: F811
) -> None:
    """The garbage collector is that of the thread of the tests."""
    taken: list[object] = []

    def make(device: Device, cache: str) -> ProfilerTimer:
        if taken:
            raise DeviceUnavailable("full")
        monkeypatch.setattr(gpu, "noop", lambda: taken.append((device.type, cache, gc.isenabled())))
        return timer_of(gpu)

    monkeypatch.setattr(profiler, "ProfilerTimer", make)
    monkeypatch.setattr(startup, "begin_startup", lambda start: start())
    for _ in range(2):
        startup.start_in_background(cpu_device())
    assert taken == [("cpu", "cold", True)]


@pytest.mark.parametrize("name", ["wall", "events"])
def test_no_timer_takes_reps_while_the_profiler_starts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    over, waited = threading.Event(), list[bool]()
    monkeypatch.setattr(events, "new_event", lambda: None)
    monkeypatch.setattr(startup, "_startup", None)
    timer: Any = object.__new__(EventsTimer) if name == "events" else make_timer(name, cpu_device(), "hot")
    timer.sentinels = SimpleNamespace(read_clocks=lambda reps: [])
    startup.begin_startup(over.wait)
    threading.Timer(0.05, over.set).start()
    with timer.session():
        waited.append(over.is_set())
    assert waited == [True]


SESSION = """
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.timing.profiler import tracing

with tracing(cpu_device(), host=True):
    pass
"""


@pytest.mark.usefixtures("forked")
def test_a_session_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of torch 2.13 has two lines for each at its highest level."""
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    done = subprocess.run([sys.executable, "-c", SESSION], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_empty_results_name_the_tool_that_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    session = profiler.ProfilerSession(SimpleNamespace())  # type: ignore[arg-type]
    for name in profiler.TOOL_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NothingRecorded, match="another tool holds CUPTI"):
        session.reps()
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "7")
    with pytest.raises(NothingRecorded, match="NSYS_PROFILING_SESSION_ID is set"):
        session.reps()


@pytest.mark.parametrize(
    ("interpret", "said"),
    [*((on, "TRITON_INTERPRET=1 is set") for on in ("1", "true", "ON")), ("0", "install triton, or use --gpu-bench-t")],
)
def test_without_compiled_triton_it_is_said_what_to_do(
    monkeypatch: pytest.MonkeyPatch, interpret: str, said: str
) -> None:
    """Though gpu_bench's own kernels were compiled before."""
    monkeypatch.setattr("pytest_gpubench.timing.sentinels._compiled", kernels.Sentinels)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    ProfilerTimer(cpu_device(), "hot")
    monkeypatch.setenv("TRITON_INTERPRET", interpret)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(DeviceUnavailable, match=said):
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
    assert kernels.mean_clock_mhz(begin, end) == clock_mhz


def test_clocks_are_read_once_in_whatever_mode_the_first_test_was() -> None:
    with torch.inference_mode():
        sentinels = kernels.Sentinels(cpu_device())
    sentinels.buffer[:2] = torch.tensor([[1000, 50_000], [1_981_000, 1_050_000]])
    assert [sentinels.read_clocks(1) for _ in range(2)] == [[1980.0], [None]]


def read_of(*events: ProfilerEvent) -> list[Record]:
    return read_records(SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: events)))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy DtoD (Device -> Device)", "memcpy"),
        ("Memset (Device)", "memset"),
        ("Memset (Unknown)", "memset"),
        ("memcpy_kernel", "kernel"),
        ("MemcpyLike", "kernel"),
        ("Memset", "kernel"),
    ],
)
def test_kinds_are_told_by_name(name: str, kind: str) -> None:
    """A fill has one name in graphs and elsewhere."""
    (found,) = read_of(ProfilerEvent(name, 10))
    assert (found.kind, found.name) == (kind, name.replace("Unknown", "Device"))


def test_only_work_of_the_gpu_is_read_in_the_order_it_started() -> None:
    found = read_of(
        ProfilerEvent("late", 30),
        ProfilerEvent("cudaLaunchKernel", 5),
        ProfilerEvent("early", 10),
        ProfilerEvent("cudaLaunchKernel", 25),
        ProfilerEvent("ProfilerStep#1", 1),
        ProfilerEvent("Context Sync", 40),
        ProfilerEvent("cudaLaunchKernel", 50, on_gpu=True),  # a kernel that is named like a call of the host
    )
    assert [record.name for record in found] == ["early", "late", "cudaLaunchKernel"]


def test_a_first_session_whose_records_are_lost_is_taken_again(gpu: FakeGpu) -> None:  # noqa: F811
    gpu.losing = {"gpu_bench_end"}
    assert [each.elapsed_us for each in profiler.take_reps_of_noop(timer_of(gpu), 2)] == [0.001] * 2


def test_a_rep_is_its_records_less_the_tax_of_tracing(gpu: FakeGpu) -> None:  # noqa: F811
    timer: Any = timer_of(gpu)
    taxed, free = (make_call(lambda: gpu.launch("any", 104_000), label=name) for name in ("taxed", "free"))
    timer.taxes = SimpleNamespace(of={taxed: 0.04, free: 0.0}.get)
    with timer.session() as session:
        session.take(taxed, 0)
        session.take(free, 0)
    assert [(each.elapsed_us, each.flags) for each in session.reps()] == [(100, ("traced +4.0 %",)), (104, ())]
