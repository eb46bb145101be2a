"""Exact limits on the real thing: races of atomics, and what sees waits and memory; `test_limits` breaks each limit."""

import threading
from collections.abc import Callable, Sequence

import pytest
import torch

from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.results.observed import AllocatedMemory, Observed
from pytest_gpubench.structure import is_deterministic, observe
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import Backward, make_arguments, make_call
from tests.on_gpu.doubling import double
from tests.results.measured import present

ELEMENTS = 2**20
BYTES = 4 * ELEMENTS


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(1024, 1024, device="cuda")


def call_of(function: Callable[..., object], args: Sequence[object], backward: Backward = "forward") -> Call:
    return make_call(function, make_arguments(args), backward, label="double")


def seen(function: Callable[..., object], *args: object) -> Observed:
    call = call_of(function, args)
    for _ in range(3):
        call.prepare()()
    torch.cuda.synchronize()
    return present(observe(call, find_device("cuda")))


def wait_for_an_event(x: torch.Tensor) -> None:
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    event.synchronize()


def test_atomics_that_race_are_found_in_what_a_call_writes_into() -> None:
    """What it adds to is put back each time, or every call would differ."""
    values, places = torch.randn(ELEMENTS, device="cuda"), torch.randint(16, (ELEMENTS,), device="cuda")
    for dtype, names in ((torch.float32, ["args[0]"]), (torch.int64, [])):
        out = torch.zeros(16, dtype=dtype, device="cuda")
        given = (out, 0, places, (100 * values).to(dtype))
        assert is_deterministic(call_of(lambda *given: (torch.Tensor.scatter_add_(*given), None)[1], given)) == names


@pytest.mark.parametrize("backward", ["backward", "both"])
def test_atomics_that_race_are_found_in_gradients(backward: Backward) -> None:
    """The gradient of an embedding by index adds up with atomics."""
    table = torch.randn(16, 64, device="cuda", requires_grad=True)
    places = torch.randint(16, (2**16,), device="cuda")
    scattering = call_of(lambda table: torch.gather(table, 0, places[:, None].expand(-1, 64)), (table,), backward)
    assert is_deterministic(scattering) == ["args[0].grad"]
    assert is_deterministic(call_of(lambda table: table * 2, (table,), backward)) == []


@pytest.mark.parametrize(
    ("wait", "runtime"),
    [
        (lambda x: None, {}),
        (lambda x: x[0, 0].item(), {"cudaStreamSynchronize": 1}),
        (lambda x: torch.cuda.current_stream().synchronize(), {"cudaStreamSynchronize": 1}),
        (lambda x: torch.cuda.synchronize(), {"cudaDeviceSynchronize": 1}),
        (wait_for_an_event, {"cudaEventSynchronize": 1}),
    ],
)
def test_each_wait_is_seen_by_python_and_by_the_runtime(
    wait: Callable[[torch.Tensor], object], runtime: dict[str, int], x: torch.Tensor
) -> None:
    found = seen(lambda x: (double(x), wait(x))[0], x)
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


def test_compiled_functions_can_be_watched(x: torch.Tensor) -> None:
    """Python's profile function does not make torch.compile start again, or wait."""
    compiled = torch.compile(lambda x: torch.nn.functional.gelu(x * 2) + 1)
    found = seen(compiled, x)
    assert (found.waits, found.runtime_waits) == ((), {})
    assert found.memory == AllocatedMemory(allocations=1, allocated_bytes=BYTES, peak_bytes=BYTES, kept_bytes=0)
