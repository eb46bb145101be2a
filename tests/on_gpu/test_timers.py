"""The timers by events and by graphs on the real thing: what they read and refuse, and what they leave behind."""

import time
from collections.abc import Callable
from typing import Literal

import pytest
import torch

from pytest_gpubench import GpuBench, MeasurementError
from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.timing.base import Call, Rep
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.timing.events import EventsTimer
from pytest_gpubench.timing.graph import GraphTimer
from pytest_gpubench.timing.profiler import ProfilerTimer
from tests.on_gpu.doubling import double
from tests.on_gpu.study.harness import take_reps
from tests.on_gpu.test_complete import sleep
from tests.results.measured import present

HOST_BOUND = "host-bound"
ELEMENTS = 2**24


def median_us(timer: EventsTimer | ProfilerTimer, call: Call, reps: int = 40) -> float:
    times_us = sorted(rep.elapsed_us for rep in take_reps(timer, call, reps))
    return times_us[len(times_us) // 2]


def reps_of(timer: EventsTimer, call: Call, reps: int = 20) -> list[Rep]:
    call.prepare()()
    return [*take_reps(timer, call, reps)]


def normal(count: int) -> torch.Tensor:
    return torch.randn(count, device="cuda")


def check_usable() -> None:
    """Whatever failed before: streams, allocator, random numbers, and the next capture work."""
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert not torch.cuda.is_current_stream_capturing()
    torch.cuda.synchronize()
    x = torch.rand(2**20, device="cuda")
    assert 0.4 < x.mean().item() < 0.6
    del x
    torch.cuda.empty_cache()
    out = torch.empty(1000, device="cuda")
    ones = torch.ones(1000, device="cuda")
    call = make_call(lambda: torch.add(ones, ones, out=out))
    assert len(reps_of(GraphTimer(find_device("cuda"), "hot"), call, 3)) == 3
    assert out.sum().item() == 2000


@pytest.mark.parametrize("timer", [EventsTimer, GraphTimer])
@pytest.mark.parametrize("cache", ["cold", "hot"])
def test_a_long_kernel_takes_what_the_profiler_says(timer: type[EventsTimer], cache: Literal["cold", "hot"]) -> None:
    x, out = normal(8 * ELEMENTS), torch.empty(8 * ELEMENTS, device="cuda")
    call, device = make_call(lambda: torch.neg(x, out=out)), find_device("cuda")
    expected_us = median_us(ProfilerTimer(device, cache), call)
    assert expected_us < median_us(timer(device, cache), call) < 1.05 * expected_us + 10


def test_many_small_kernels_are_queued_first() -> None:
    x, device = normal(1024), find_device("cuda")

    def chain() -> None:
        for _ in range(50):
            x.neg_()
            until_s = time.perf_counter() + 2e-5
            while time.perf_counter() < until_s:
                pass

    reps = reps_of(EventsTimer(device, "hot"), make_call(chain))
    waiting = reps_of(EventsTimer(device, "hot", ahead=False), make_call(chain))
    assert all(rep.flags == () for rep in reps)
    assert max(rep.elapsed_us for rep in reps) < 500
    assert min(rep.host_us for rep in reps) > 1000
    assert min(rep.elapsed_us for rep in waiting) > 950


def test_work_on_the_side_is_not_left_out(side_stream: torch.cuda.Stream) -> None:
    def elsewhere() -> None:
        with torch.cuda.stream(side_stream):
            sleep(2_000_000)

    with pytest.raises(MeasurementError, match="on a stream that the current one does not wait for"):
        reps_of(EventsTimer(find_device("cuda"), "hot"), make_call(elsewhere), 3)


def test_the_default_generator_can_be_captured() -> None:
    x = torch.empty(ELEMENTS, device="cuda")
    assert len(reps_of(GraphTimer(find_device("cuda"), "hot"), make_call(x.normal_), 5)) == 5
    check_usable()


def test_a_generator_of_ones_own_is_explained_or_captured() -> None:
    generator = torch.Generator("cuda")
    call = make_call(lambda: torch.rand(1000, device="cuda", generator=generator))
    random = "it draws random numbers from a generator that the graph does not know"
    said = random  # where torch registers the generator with the graph, nothing is said
    try:
        reps_of(GraphTimer(find_device("cuda"), "hot"), call, 3)
    except MeasurementError as error:
        said = str(error)
    assert random in said
    check_usable()


UNCAPTURED: dict[str, Callable[[], Callable[[], object]]] = {
    "item after a random number": lambda: lambda: normal(1000).sum().item(),
    "from host": lambda: lambda: torch.tensor([1.0, 2.0], device="cuda"),
    "synchronize": lambda: torch.cuda.synchronize,
    "nonzero": lambda: normal(1000).nonzero,
}


@pytest.mark.parametrize("name", UNCAPTURED)
def test_what_cannot_be_captured_is_explained_and_leaves_the_process_usable(name: str) -> None:
    function = UNCAPTURED[name]()
    before = torch.cuda.memory_allocated()
    with pytest.raises(MeasurementError, match="cannot be captured as a CUDA graph") as caught:
        reps_of(GraphTimer(find_device("cuda"), "hot"), make_call(function, label=name), 3)
    assert "it waits for the GPU or copies to or from the host" in str(caught.value)
    del caught
    check_usable()
    assert torch.cuda.memory_allocated() <= before + 2**20


def test_a_comparison_by_several_timers_says_what_launching_costs(gpu_bench: GpuBench) -> None:
    x = torch.randn(1024, 1024, device=gpu_bench.device)
    calls = {"many": lambda x: x.mul(1).mul(1).mul(2), "double": double}
    found = gpu_bench.compare(calls, lambda x: x * 2, args=(x,), timers=("profiler", "graph"))
    many, one = (present(found.candidates[name].overhead) for name in ("many", "double"))
    assert (many.host_us or 0) > 5
    assert (many.graph_speedup or 0) > 1
    assert many.gap_us > one.gap_us
