"""The measured copy: how large, how often, the fastest counts, and no answer without room."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.model import DeviceFacts
from pytest_gpubench.timing import bandwidth
from pytest_gpubench.timing.bandwidth import LEAST_COPIED_BYTES, copy_bandwidth
from pytest_gpubench.timing.base import Call, Rep, Session


class FakeProfiler:
    """Play these times, and remember what was taken."""

    def __init__(self, times_us: Sequence[float]) -> None:
        self.times_us = times_us
        self.calls: list[Call] = []
        self.caches: list[str] = []

    def __call__(self, device: Device, cache: str) -> "FakeProfiler":
        self.caches.append(cache)
        return self

    def session(self) -> "FakeSession":
        return FakeSession(self)


class FakeSession(Session):
    def __init__(self, timer: FakeProfiler) -> None:
        self.timer = timer

    def take(self, call: Call, idle_s: float) -> None:
        call.prepare()
        self.timer.calls.append(call)

    def reps(self) -> Sequence[Rep]:
        return [Rep(time_us) for time_us in self.timer.times_us]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Keep the buffers off this machine's memory; the list tells what was asked for."""
    asked: list[Any] = []
    zeros = torch.zeros

    def small(elements: int, **options: Any) -> torch.Tensor:
        asked.append((elements, options["dtype"]))
        return zeros(4, dtype=options["dtype"])

    monkeypatch.setattr(torch, "zeros", small)
    monkeypatch.setattr(bandwidth, "flush_buffer", lambda device: asked.append("flush"))
    return asked


def device(cache_bytes: int) -> Device:
    return Device(torch.device("cpu"), DeviceFacts(type="cuda", name="fake", host="here", cache_bytes=cache_bytes))


@pytest.mark.parametrize(
    ("cache_bytes", "copied_bytes"),
    [
        (50 * 2**20, LEAST_COPIED_BYTES),
        (LEAST_COPIED_BYTES // 4, LEAST_COPIED_BYTES),
        (LEAST_COPIED_BYTES // 4 + 1, LEAST_COPIED_BYTES + 4),
        (2**30, 2**32),
    ],
)
def test_the_fastest_copy_read_and_written(
    monkeypatch: pytest.MonkeyPatch, made: list[Any], cache_bytes: int, copied_bytes: int
) -> None:
    profiler = FakeProfiler([130.0, 125.0, 1000.0])
    monkeypatch.setattr(bandwidth, "ProfilerTimer", profiler)
    assert copy_bandwidth(device(cache_bytes)) == 2 * copied_bytes / 125
    assert made == ["flush", (copied_bytes // 4, torch.int32)]
    assert (profiler.caches, len(profiler.calls)) == (["cold"], bandwidth.REPS)


def test_the_call_is_a_copy(monkeypatch: pytest.MonkeyPatch, made: list[Any]) -> None:
    profiler = FakeProfiler([1.0])
    monkeypatch.setattr(bandwidth, "ProfilerTimer", profiler)
    copy_bandwidth(device(1))
    target: Any = profiler.calls[0].prepare()()
    assert target.tolist() == [0, 0, 0, 0]


def test_once_for_each_device(monkeypatch: pytest.MonkeyPatch, made: list[Any]) -> None:
    monkeypatch.setattr(bandwidth, "ProfilerTimer", FakeProfiler([1.0]))
    one, other = device(1), device(1)
    for each in (one, one, other, one):
        copy_bandwidth(each)
    assert made.count("flush") == 2


def test_without_room_there_is_no_number(monkeypatch: pytest.MonkeyPatch, made: list[Any]) -> None:
    def full(*args: object, **options: object) -> None:
        raise torch.OutOfMemoryError("full")

    there: Callable[..., object] = torch.empty_like
    monkeypatch.setattr(bandwidth, "ProfilerTimer", FakeProfiler([1.0]))
    monkeypatch.setattr(torch, "empty_like", full)
    full_device = device(1)
    assert copy_bandwidth(full_device) is None
    monkeypatch.setattr(torch, "empty_like", there)
    assert copy_bandwidth(full_device) is not None, "there may be room the next time"
