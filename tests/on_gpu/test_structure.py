"""Exact limits on the real thing: races of atomics, and what sees waits and memory; `test_limits` breaks each limit."""

import sys
import threading
import warnings
from collections.abc import Callable, Sequence

import pytest
import torch

from pytest_gpubench import Timing
from pytest_gpubench.gpu.device import Device, find_device
from pytest_gpubench.results.observed import AllocatedMemory, Observed
from pytest_gpubench.structure import is_deterministic, observe
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import Backward, make_arguments, make_call
from pytest_gpubench.timing.measurement import Plan, measure_call
from pytest_gpubench.timing.profiler import ProfilerTimer
from tests.on_gpu.doubling import double

ELEMENTS = 2**20
BYTES = 4 * ELEMENTS
PLAN = Plan(cache="hot", reps=5, warmup=3, precision=0.02, max_time_s=20)


@pytest.fixture
def device() -> Device:
    return find_device("cuda")


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(1024, 1024, device="cuda")


def call_of(function: Callable[..., object], args: Sequence[object], backward: Backward = "forward") -> Call:
    return make_call(function, make_arguments(args), backward, label="double")


def timing_of(call: Call, device: Device) -> Timing:
    return measure_call(call, ProfilerTimer(device, "hot"), device, PLAN, lambda timing: True, lambda text: None)


def seen(function: Callable[..., object], *args: object) -> Observed:
    call = call_of(function, args)
    for _ in range(3):
        call.prepare()()
    torch.cuda.synchronize()
    found = observe(call, find_device("cuda"))
    assert found is not None
    return found


# waits


def with_a_hidden_item(x: torch.Tensor) -> torch.Tensor:
    if x[0, 0].item() > 1e9:
        return x
    return double(x)


def with_a_synchronize(x: torch.Tensor) -> torch.Tensor:
    out = double(x)
    torch.cuda.synchronize()
    return out


def with_a_stream_synchronize(x: torch.Tensor) -> torch.Tensor:
    out = double(x)
    torch.cuda.current_stream().synchronize()
    return out


def with_an_event_synchronize(x: torch.Tensor) -> torch.Tensor:
    out = double(x)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    event.synchronize()
    return out


# an atomics race


def scatter_into(out: torch.Tensor, values: torch.Tensor, places: torch.Tensor) -> None:
    out.scatter_add_(0, places, values)


@pytest.fixture
def scattered() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(ELEMENTS, device="cuda"), torch.randint(16, (ELEMENTS,), device="cuda")


def test_atomics_that_race_are_found_in_what_a_call_writes_into(scattered: tuple[torch.Tensor, torch.Tensor]) -> None:
    """What it adds to is put back each time, or every call would differ."""
    values, places = scattered
    out = torch.zeros(16, device="cuda")
    assert is_deterministic(call_of(scatter_into, (out, values, places))) == ["args[0]"]
    counts = torch.zeros(16, dtype=torch.int64, device="cuda")
    assert is_deterministic(call_of(scatter_into, (counts, (100 * values).long(), places))) == []


@pytest.mark.parametrize("backward", ["backward", "both"])
def test_atomics_that_race_are_found_in_gradients(backward: Backward) -> None:
    """The gradient of an embedding by index adds up with atomics."""
    table = torch.randn(16, 64, device="cuda", requires_grad=True)
    places = torch.randint(16, (2**16,), device="cuda")
    scattering = call_of(lambda table: torch.gather(table, 0, places[:, None].expand(-1, 64)), (table,), backward)
    assert is_deterministic(scattering) == ["args[0].grad"]
    assert is_deterministic(call_of(lambda table: table * 2, (table,), backward)) == []


# what sees what


@pytest.mark.parametrize(
    ("function", "runtime"),
    [
        (double, {}),
        (with_a_hidden_item, {"cudaStreamSynchronize": 1}),
        (with_a_stream_synchronize, {"cudaStreamSynchronize": 1}),
        (with_a_synchronize, {"cudaDeviceSynchronize": 1}),
        (with_an_event_synchronize, {"cudaEventSynchronize": 1}),
    ],
)
def test_each_wait_is_seen_by_python_and_by_the_runtime(
    function: Callable[..., object], runtime: dict[str, int], x: torch.Tensor
) -> None:
    found = seen(function, x)
    assert len(found.waits) == len(runtime)
    assert found.runtime_waits == runtime


def test_a_wait_in_another_thread_is_seen_by_the_runtime(x: torch.Tensor) -> None:
    def elsewhere(x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=torch.cuda.synchronize)
        thread.start()
        thread.join()
        return double(x)

    found = seen(elsewhere, x)
    assert not found.waits
    assert found.runtime_waits == {"cudaDeviceSynchronize": 1}


def test_a_wait_in_a_backward_pass_is_seen(x: torch.Tensor, device: Device) -> None:
    class Waiting(torch.autograd.Function):
        @staticmethod
        def forward(context: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(context: object, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * (1 if gradient[0, 0].item() else 2)

    call = call_of(lambda x: Waiting.apply(x), (x.requires_grad_(),), "backward")  # type: ignore[no-untyped-call]
    call.prepare()()
    found = observe(call, device)
    assert found is not None
    assert sum(found.runtime_waits.values()) == 1


def test_memory_the_allocator_asks_the_driver_for_is_seen() -> None:
    """A block larger than any it keeps has to come from cudaMalloc."""

    kept_bytes = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    elements = 2**28 + kept_bytes // 2**22 * 2**20

    def large() -> torch.Tensor:
        torch.cuda.empty_cache()
        return torch.empty(elements, device="cuda")

    found = seen(large)
    assert found.driver_allocations["cudaMalloc"] >= 1
    assert found.memory == AllocatedMemory(
        allocations=1, allocated_bytes=4 * elements, peak_bytes=4 * elements, kept_bytes=0
    )


def test_watching_leaves_everything_as_it_was(x: torch.Tensor) -> None:
    torch.cuda.set_sync_debug_mode(0)
    shown, filters = warnings.showwarning, list(warnings.filters)
    seen(with_a_hidden_item, x)
    assert torch.cuda.get_sync_debug_mode() == 0
    assert (warnings.showwarning, list(warnings.filters), sys.getprofile()) == (shown, filters, None)
    device = find_device("cuda")
    before, after = timing_of(call_of(double, (x,)), device), timing_of(call_of(double, (x,)), device)
    assert before.kernels[0].name == after.kernels[0].name == "_double"


def test_compiled_functions_can_be_watched(x: torch.Tensor) -> None:
    """Python's profile function does not make torch.compile start again, or wait."""
    compiled = torch.compile(lambda x: torch.nn.functional.gelu(x * 2) + 1)
    found = seen(compiled, x)
    assert (found.waits, found.runtime_waits) == ((), {})
    assert found.memory == AllocatedMemory(allocations=1, allocated_bytes=BYTES, peak_bytes=BYTES, kept_bytes=0)
