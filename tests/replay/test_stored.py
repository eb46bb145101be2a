"""A stored call on inputs that are made up."""

import msgspec
import pytest
import torch

from pytest_gpubench.errors import MeasurementError
from pytest_gpubench.replay import stored
from pytest_gpubench.replay.capture import CapturedCall, capture_call
from pytest_gpubench.replay.replayed import memory_for, replaying
from pytest_gpubench.replay.stored import fill_inputs, time_stored
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.measurement import Plan
from tests.replay.fake_graphs import FakeFunction
from tests.replay.on_cpu import IMAGE, OnCpu, make_on_cpu, numbers
from tests.timing.fakes import ArmsTimer, Clock, rep
from tests.timing.test_events import FakeGpu, gpu
from tests.timing.test_graph import streams

__all__ = ["gpu", "streams"]  # fixtures

PLAN = Plan("cold", 12, None, 0.005, 1e9)


@pytest.fixture
def on_cpu(streams: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> OnCpu:
    found = make_on_cpu(streams, monkeypatch)
    monkeypatch.setattr(stored, "find_builder", lambda: found.builder)
    monkeypatch.setattr(stored, "make_timer", lambda *args: ArmsTimer(Clock(), lambda name, at: rep(7.0)))
    return found


def captured(on_cpu: OnCpu) -> CapturedCall:
    return capture_call(on_cpu.call(numbers(), on_cpu.y), on_cpu.device, on_cpu.builder)


def test_a_stored_call_is_timed(on_cpu: OnCpu) -> None:
    timing = time_stored(captured(on_cpu), on_cpu.device, Settings(), PLAN)
    assert (timing.label, timing.reps, timing.median_us) == ("scale", 12, 7.0)
    assert len(on_cpu.cuda.launched) >= 12
    assert on_cpu.cuda.modules == {}


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_whole_numbers_are_zero(dtype: str, on_cpu: OnCpu) -> None:
    """They may be indices."""
    found = captured(on_cpu)
    inputs = tuple(msgspec.structs.replace(each, dtype=dtype) for each in found.data.inputs)
    data = msgspec.structs.replace(found.data, inputs=inputs)
    memory = memory_for(data.regions, torch.device("cpu"))
    with replaying(data, found.images, memory, on_cpu.builder, on_cpu.device) as replayed:
        fill_inputs(replayed)
        filled = [bool(replayed.tensor(each).any()) for each in data.inputs]
    assert filled == 2 * [dtype == "float32"]


def test_another_compute_capability_is_refused(on_cpu: OnCpu) -> None:
    found = captured(on_cpu)
    other = CapturedCall(msgspec.structs.replace(found.data, capability=(8, 0)), found.images)
    with pytest.raises(MeasurementError, match=r"compiled for compute capability 8\.0, and this GPU has 9\.0"):
        time_stored(other, on_cpu.device, Settings(), PLAN)


def test_an_old_driver_is_refused(on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "find_builder", lambda: None)
    with pytest.raises(MeasurementError, match="too old to build graphs"):
        time_stored(captured(on_cpu), on_cpu.device, Settings(), PLAN)


def test_an_image_that_does_not_load_is_one_sentence(on_cpu: OnCpu) -> None:
    found = captured(on_cpu)
    on_cpu.cuda.images[IMAGE] = [FakeFunction("other")]
    with pytest.raises(MeasurementError, match=r"^scale cannot be replayed: cuModuleGetFunction of the CUDA driver"):
        time_stored(found, on_cpu.device, Settings(), PLAN)
