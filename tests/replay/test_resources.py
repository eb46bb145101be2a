"""Resources of a call's kernels: from the walk to the kernels that were timed, or to the reason why there are none."""

import sys
import warnings
from types import SimpleNamespace

import msgspec
import pytest

from pytest_gpubench import Timing
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.replay import images, resources
from pytest_gpubench.replay.driver import Driver
from pytest_gpubench.replay.resources import side_stream, with_resources
from pytest_gpubench.results.model import Code
from pytest_gpubench.timing.base import Call, call_of
from tests.replay.fake_graphs import NUMBERS, FakeGraphs, FakeNode
from tests.results.measured import BARE_GPU, kernel, timing_of
from tests.timing.fake_gpu import CAPTURING, FakeGpu, FakeStream, gpu, streams

__all__ = ["gpu", "streams"]  # fixtures

MANGLED = "_ZN2at6native6kernelIfEEvPT_"
DEMANGLED = "void at::native::kernel<float>(float*)"
LIBRARY = FakeGraphs()
ONE = LIBRARY.function("one", attributes={4: 64})
OTHER = LIBRARY.function(MANGLED, attributes={4: 9}, blocks_per_sm=3)
LAUNCHES = ((ONE, 264), (OTHER, 5), (ONE, 132), (ONE, 264))
NODES = [FakeNode(0, (), function, (blocks, 1, 1)) for function, blocks in LAUNCHES]
LIBRARY.captured = LIBRARY.graph(FakeNode(NUMBERS["memcpy"]), *NODES)
COPY = kernel("Memcpy DtoD (Device -> Device)", kind="memcpy")
NO_CAPTURE = "it cannot be captured as a CUDA graph"
TAKEN = timing_of((5.0,), kernels=(kernel("one", 3), kernel(DEMANGLED), COPY))


@pytest.fixture
def device(streams: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A GPU whose driver finds the graph above in every capture."""
    monkeypatch.setattr(FakeStream, "cuda_stream", 77, raising=False)
    monkeypatch.setattr(resources, "find_driver", lambda: Driver(LIBRARY))
    side_stream.cache_clear()
    found = Device(cpu_device().torch_device, BARE_GPU)
    monkeypatch.setattr(Device, "synchronize", lambda self: None)
    return found


def counted(fails_at: int = 0, error: Exception | None = None) -> tuple[Call, list[int]]:
    """Return a call that raises in its n-th call, and the list of its calls."""
    called: list[int] = []

    def function() -> None:
        called.append(1)
        if len(called) == fails_at and error is not None:
            raise error

    return call_of("mine", function), called


def found(device: Device, taken: Timing = TAKEN, call: Call | None = None) -> Timing:
    return with_resources(taken, call or counted()[0], device)


def test_each_kernel_has_what_its_kinds_of_launches_take(device: Device) -> None:
    one, other, copy = found(device).kernels
    assert [(each.launches, each.grid[0], each.registers) for each in one.resources] == [(2, 264, 64), (1, 132, 64)]
    assert [(each.launches, each.grid[0], each.blocks_per_sm) for each in other.resources] == [(1, 5, 3)]
    assert copy == COPY
    assert LIBRARY.asked[0] == 77
    assert side_stream(device.torch_device) is side_stream(device.torch_device), "all captures are on one stream"


def test_a_call_is_made_on_another_stream_then_captured_then_as_ever(device: Device, streams: FakeGpu) -> None:
    """The last is what computes what the call keeps: a capture computes nothing."""
    call, called = counted()
    found(device, call=call)
    assert len(called) == 3
    assert [each for each in streams.log if each in ("on side", "capture thread_local", "captured")] == [
        *("on side", "on side", "on side"),
        *("capture thread_local", "on side", "captured"),
        "on side",  # where the driver is asked
    ]


def test_kernels_of_tritons_have_their_code(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    code = Code(constants={"num_warps": "4"})
    monkeypatch.setattr(resources, "codes_of", lambda compiled: {OTHER: code})
    one, other, _ = found(device).kernels
    assert [[each.code for each in kernel.resources] for kernel in (one, other)] == [[None, None], [code]]


def test_kernels_of_tritons_are_noted_for_their_images(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    class CompiledKernel:
        def __init__(self) -> None:
            self.function = ONE

        def launch_metadata(self) -> None: ...

    compiled, kernel = SimpleNamespace(CompiledKernel=CompiledKernel), CompiledKernel()
    monkeypatch.setitem(sys.modules, "triton.compiler.compiler", compiled)
    monkeypatch.setattr(images, "_launched", {})
    found(device, call=call_of("mine", lambda: kernel.launch_metadata()))
    assert images._launched[ONE]() is kernel


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError(CAPTURING), f"{NO_CAPTURE}: it waits for the GPU or copies to or from the host"),
        (
            RuntimeError("Cannot prepare for replay during capturing stage."),
            f"{NO_CAPTURE}: it replays a CUDA graph, which",
        ),
        (RuntimeError("something else"), f"{NO_CAPTURE}: RuntimeError: something else"),
        (KeyError("mine"), "captured as a CUDA graph, it raises KeyError: 'mine'"),
    ],
)
def test_a_call_that_cannot_be_captured_says_why(device: Device, error: Exception, reason: str) -> None:
    """It is made once more all the same."""
    call, called = counted(2, error)
    taken = found(device, call=call)
    assert taken.no_resources.startswith(reason)
    assert taken.kernels == TAKEN.kernels
    assert len(called) == 3


def test_an_error_of_the_call_itself_goes_through(device: Device) -> None:
    call, _ = counted(3, ValueError("mine"))
    with pytest.raises(ValueError, match="mine"):
        found(device, call=call)


def test_an_error_of_the_driver_is_a_reason(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIBRARY, "fails", "cuFuncGetName")
    assert found(device).no_resources.endswith("DriverError: cuFuncGetName of the CUDA driver fails with error 1")


def test_other_kernels_than_those_that_were_timed_are_no_answer(device: Device) -> None:
    other = msgspec.structs.replace(TAKEN, kernels=(kernel("one", 3), kernel("two")))
    taken = found(device, other)
    assert taken.no_resources == (
        f"captured as a CUDA graph, it launches other kernels: 1 x two only when timed; "
        f"1 x {DEMANGLED} only when captured"
    )
    assert not taken.resources


def test_graphs_of_torch_compile_are_not_captured(
    device: Device, streams: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be recorded anew."""
    monkeypatch.setattr(resources, "has_cuda_graphs", lambda: True)
    monkeypatch.setattr(resources, "used_cuda_graphs", lambda: True)
    call, called = counted()
    assert found(device, call=call).no_resources.startswith(f"{NO_CAPTURE}: it replays a CUDA graph, which")
    assert (streams.log, len(called)) == ([], 2), "to see what it does, and as ever"
    monkeypatch.setattr(resources, "used_cuda_graphs", lambda: False)
    assert found(device).resources


def test_warnings_of_these_calls_are_not_passed_on(device: Device) -> None:
    assert found(device, call=call_of("mine", lambda: warnings.warn("mine", stacklevel=1))).resources


def test_where_nothing_can_be_asked_nothing_is_called(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, where no kernels are known or nothing was measured, and without a driver."""
    call, called = counted()
    assert with_resources(TAKEN, call, cpu_device()) == TAKEN
    for taken in (timing_of((5.0,), timer="events"), timing_of((), unmeasured="switched off")):
        assert with_resources(taken, call, device) == taken
    monkeypatch.setattr(resources, "find_driver", lambda: None)
    assert with_resources(TAKEN, call, device) == TAKEN
    assert called == []
