"""Copy bandwidth: its size, its reps, the fastest counts, and no number without room."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_gpubench import DeviceFacts
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing import peaks
from pytest_gpubench.timing.base import Rep
from pytest_gpubench.timing.peaks import copy_bandwidth
from tests.timing.fakes import Clock, FakeTimer

LEAST_COPIED_BYTES = 2**28


def timer_of(monkeypatch: pytest.MonkeyPatch, *times_us: float) -> FakeTimer:
    """Have reps take these times, in turn."""
    timer = FakeTimer(Clock(), lambda number: Rep(times_us[number % len(times_us)]))

    def cold(device: Device, cache: str) -> FakeTimer:
        assert cache == "cold"
        return timer

    monkeypatch.setattr(peaks, "ProfilerTimer", cold)
    return timer


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Keep the buffers off this machine's memory; the list tells what was asked for."""
    asked: list[Any] = []
    zeros = torch.zeros

    def small(elements: int, **options: Any) -> torch.Tensor:
        asked.append((elements, options["dtype"]))
        return zeros(4, dtype=options["dtype"])

    monkeypatch.setattr(torch, "zeros", small)
    monkeypatch.setattr(Device, "synchronize", lambda device: None)
    monkeypatch.setattr(peaks, "flush_buffer", lambda device: asked.append("flush"))
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
    timer = timer_of(monkeypatch, 130.0, 125.0, 1000.0)
    assert copy_bandwidth(device(cache_bytes)) == 2 * copied_bytes / 125
    assert made == ["flush", (copied_bytes // 4, torch.int32)]
    assert timer.sizes == [peaks.BANDWIDTH_REPS]


def test_the_call_is_a_copy(monkeypatch: pytest.MonkeyPatch, made: list[Any]) -> None:
    target = torch.ones(4, dtype=torch.int32)
    monkeypatch.setattr(torch, "empty_like", lambda source: target)
    timer_of(monkeypatch, 1.0)
    copy_bandwidth(device(1))
    assert target.tolist() == [0, 0, 0, 0]


def test_once_for_each_device(monkeypatch: pytest.MonkeyPatch, made: list[Any]) -> None:
    timer_of(monkeypatch, 1.0)
    one, other = device(1), device(1)
    for each in (one, one, other, one):
        copy_bandwidth(each)
    assert made.count("flush") == 2


def test_without_room_there_is_no_number(monkeypatch: pytest.MonkeyPatch, made: list[Any]) -> None:
    def full(*args: object, **options: object) -> None:
        raise torch.OutOfMemoryError("full")

    there: Callable[..., object] = torch.empty_like
    timer_of(monkeypatch, 1.0)
    monkeypatch.setattr(torch, "empty_like", full)
    full_device = device(1)
    assert copy_bandwidth(full_device) is None
    monkeypatch.setattr(torch, "empty_like", there)
    assert copy_bandwidth(full_device) is not None, "there may be room the next time"
