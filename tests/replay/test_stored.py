"""A stored call on inputs that are made up."""

import msgspec
import pytest
import torch

from pytest_gpubench import MeasurementError
from pytest_gpubench.correctness.leaves import tensors_of
from pytest_gpubench.replay import stored
from pytest_gpubench.replay.addresses import input_regions
from pytest_gpubench.replay.capture import CapturedCall
from pytest_gpubench.replay.stored import stored_call, time_stored
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.measurement import Plan
from tests.replay.fake_graphs import FakeFunction
from tests.replay.on_cpu import IMAGE, OnCpu, numbers, raising
from tests.timing.fakes import ArmsTimer, Clock, rep

CPU = torch.device("cpu")
PLAN = Plan("cold", 12, None, 0.005, 1e9)


@pytest.fixture
def on_cpu(on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch) -> OnCpu:
    monkeypatch.setattr(stored, "find_builder", lambda: on_cpu.builder)
    monkeypatch.setattr(stored, "make_timer", lambda *args: ArmsTimer(Clock(), lambda name, at: rep(7.0)))
    return on_cpu


def tensors_of_call(call: Call) -> list[torch.Tensor]:
    assert call.inputs is not None
    return [tensor for _, tensor in tensors_of(call.inputs())]


def test_a_stored_call_is_timed(on_cpu: OnCpu) -> None:
    timing = time_stored(on_cpu.captured(), on_cpu.device, Settings(), PLAN)
    assert (timing.label, timing.reps, timing.median_us) == ("scale", 12, 7.0)
    assert len(on_cpu.cuda.launched) >= 12
    assert on_cpu.cuda.modules == {}


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_whole_numbers_are_zero(dtype: str, on_cpu: OnCpu) -> None:
    """They may be indices."""
    found = on_cpu.captured()
    inputs = tuple(msgspec.structs.replace(each, dtype=dtype) for each in found.data.inputs)
    first, second = tensors_of_call(stored_call(msgspec.structs.replace(found.data, inputs=inputs), CPU))
    assert [bool(first.any()), bool(second.any())] == 2 * [dtype == "float32"]
    assert torch.equal(first, second) == (dtype != "float32")


@pytest.mark.parametrize(
    ("shape", "strides", "filled"),
    [((2, 4), (0, 1), 4), ((3, 3), (1, 2), 7), ((), (), 1), ((0, 4), (9, 1), 0), ((4,), (2,), 7)],
)
def test_inputs_may_overlap_themselves(
    shape: tuple[int, ...], strides: tuple[int, ...], filled: int, on_cpu: OnCpu
) -> None:
    data = on_cpu.captured().data
    first = msgspec.structs.replace(data.inputs[0], shape=shape, strides=strides)
    (found,) = tensors_of_call(stored_call(msgspec.structs.replace(data, inputs=(first,)), CPU))
    assert (found.shape, found.stride()) == (shape, strides)
    whole = found.as_strided((data.regions[first.region].bytes // 4,), (1,))
    assert [bool(each) for each in whole] == [at < filled for at in range(len(whole))]


def test_inputs_are_put_back_before_each_rep(on_cpu: OnCpu) -> None:
    """They are made up, or given as bytes."""
    data = on_cpu.captured().data
    values = {each.names: numbers().view(torch.int8) for each in data.regions if each.kind == "input"}
    for given in (None, values):
        call = stored_call(data, CPU, given)
        call.prepare()
        before = [each.clone() for each in tensors_of_call(call)]
        for _ in range(3):
            for each in tensors_of_call(call):
                each.fill_(99.0)
            call.prepare()
            assert all(map(torch.equal, before, tensors_of_call(call)))
    assert all(torch.equal(each, numbers()) for each in before)


def test_inputs_lie_as_they_lay(on_cpu: OnCpu) -> None:
    """In the same regions by the same names, so that another call of these inputs shares them."""
    data = on_cpu.captured().data
    inputs = stored_call(data, CPU).inputs
    assert inputs is not None
    found = {place.region for place, _ in input_regions(inputs(), CPU)}
    assert found == {each for each in data.regions if each.kind == "input"}


def test_another_compute_capability_is_refused(on_cpu: OnCpu) -> None:
    found = on_cpu.captured()
    other = CapturedCall(msgspec.structs.replace(found.data, capability=(8, 0)), found.images)
    with pytest.raises(MeasurementError, match=r"compiled for compute capability 8\.0, and this GPU has 9\.0"):
        time_stored(other, on_cpu.device, Settings(), PLAN)


def test_an_image_that_does_not_load_is_one_sentence(on_cpu: OnCpu) -> None:
    found = on_cpu.captured()
    on_cpu.cuda.images[IMAGE] = [FakeFunction("other")]
    with pytest.raises(MeasurementError, match=r"^scale cannot be replayed: cuModuleGetFunction of the CUDA driver"):
        time_stored(found, on_cpu.device, Settings(), PLAN)


def test_inputs_that_break_a_call_are_one_sentence(on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a tensor holds addresses: made up, they are 0."""
    error = RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be ...")
    monkeypatch.setattr(stored, "measure_call", raising(error))
    with pytest.raises(MeasurementError, match=r"^scale cannot be replayed: CUDA error: an illegal .* encountered$"):
        time_stored(on_cpu.captured(), on_cpu.device, Settings(), PLAN)
