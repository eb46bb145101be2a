"""A GPU of one stream whose queue follows the launches: events, streams and graphs of torch, without CUDA."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import pytest
import torch

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing import events, graph
from pytest_gpubench.timing.base import Call, Rep
from pytest_gpubench.timing.events import EventsTimer

LAUNCH_US = 5.0
CAPTURING = "CUDA error: operation not permitted when stream is capturing"


@dataclass
class FakeGpu:
    """One stream, and a host clock that launching and waiting move on; both in microseconds."""

    now_us: float = 0.0
    done_us: float = 0.0
    elsewhere_us: float = 0.0
    """Until when another stream works."""
    waiting_us: float = 0.0
    """What the host takes to wait for a GPU, even an idle one."""
    log: list[str] = field(default_factory=list)

    def perf_counter(self) -> float:
        return self.now_us / 1e6

    def launch(self, name: str, gpu_us: float, host_us: float = LAUNCH_US) -> None:
        self.log.append(name)
        self.now_us += host_us
        self.done_us = max(self.done_us, self.now_us) + gpu_us

    def synchronize(self) -> None:
        self.log.append("synchronize")
        self.now_us = max(self.now_us, self.done_us, self.elsewhere_us) + self.waiting_us

    def sleep(self, cycles: int) -> None:
        self.launch("sleep", cycles / events.ASSUMED_CLOCK_MHZ)

    def begin(self, slot: int) -> None:
        self.launch(f"sentinel {slot}", 2)

    end = begin

    def read_clocks(self, reps: int) -> list[float | None]:
        return [1000.0 + number for number in range(reps)]


@dataclass
class FakeEvent:
    gpu: FakeGpu
    happened_us: float = -1.0

    def record(self) -> None:
        self.gpu.launch("event", 0, 1)
        self.happened_us = self.gpu.done_us

    def query(self) -> bool:
        return self.happened_us <= self.gpu.now_us

    def synchronize(self) -> None:
        self.gpu.now_us = max(self.gpu.now_us, self.happened_us)

    def elapsed_time(self, end: "FakeEvent") -> float:
        return (end.happened_us - self.happened_us) / 1e3


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    gpu = FakeGpu()
    monkeypatch.setattr(events, "time", gpu)
    monkeypatch.setattr(events, "make_flush", lambda device, cache: lambda: gpu.launch(f"flush {cache}", 30.0))
    monkeypatch.setattr(events, "sentinels_of", lambda device: gpu)
    monkeypatch.setattr(events, "new_event", lambda: FakeEvent(gpu))
    monkeypatch.setattr("torch.cuda._sleep", gpu.sleep)
    monkeypatch.setattr(Device, "synchronize", lambda device: gpu.synchronize())
    return gpu


def take(timer: EventsTimer, call: Call, reps: int = 1, idle_s: float = 0.0) -> list[Rep]:
    session = timer.session()
    with session:
        for _ in range(reps):
            session.take(call, idle_s)
    return list(session.reps())


# streams and graphs


class FakeStream:
    device = torch.device("cpu")

    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name

    def wait_stream(self, other: "FakeStream") -> None:
        self.log.append(f"{self.name} waits for {other.name}")


class FakeGraph:
    """Capture by listening to the fake GPU's log, and replay as one launch."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu
        self.end_error: Exception | None = None

    def capture_begin(self, pool: object, capture_error_mode: str) -> None:
        self.gpu.log.append(f"capture {capture_error_mode}")

    def capture_end(self) -> None:
        self.gpu.log.append("captured")
        if self.end_error:
            raise self.end_error

    def replay(self) -> None:
        self.gpu.launch("replay", 7)

    def reset(self) -> None:
        self.gpu.log.append("reset")


@pytest.fixture
def streams(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    def on(stream: FakeStream) -> AbstractContextManager[None]:
        gpu.log.append(f"on {stream.name}")
        return nullcontext()

    monkeypatch.setattr("torch.cuda.Stream", lambda device: FakeStream(gpu.log, "side"))
    monkeypatch.setattr("torch.cuda.current_stream", lambda device: FakeStream(gpu.log, "main"))
    monkeypatch.setattr("torch.cuda.stream", on)
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: gpu.log.append("empty cache"))
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: (0, 7))
    monkeypatch.setattr("torch.cuda.CUDAGraph", lambda: FakeGraph(gpu))
    monkeypatch.setattr(graph, "_unfinished", [])
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *each: gpu.log.append("end pool"), raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda *each: gpu.log.append("release pool"), raising=False)
    return gpu
