"""`cache=producer` on real kernels: the call finds what the producer left in the L2 cache, and is timed alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import torch

from pytest_gpubench import GpuBench
from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.settings.cache import Producer
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.timing.traces import take_trace
from tests.on_gpu.test_complete import sleep
from tests.timing.test_traces import events_in

LONG_CYCLES = 2_000_000
"""About a millisecond."""


@pytest.fixture
def x(cached: torch.Tensor) -> torch.Tensor:
    return cached


@pytest.fixture
def scale(x: torch.Tensor) -> Callable[[], object]:
    """A neighbour whose output is the call's input."""
    half = x / 2

    def scale() -> None:
        torch.mul(half, 2, out=x)

    return scale


@pytest.mark.parametrize("timer", ["profiler", "events", "graph"])
def test_the_call_finds_what_the_producer_left(
    gpu_bench: GpuBench, x: torch.Tensor, scale: Callable[[], object], timer: Literal["profiler", "events", "graph"]
) -> None:
    out = torch.empty_like(x)
    cold, produced = (
        gpu_bench.measure(torch.neg, (x,), {"out": out}, cache=cache, timer=timer) for cache in ("cold", scale)
    )
    assert produced.cache == "producer scale"
    assert produced.median_us < cold.median_us
    assert [each.name for each in produced.kernels] == [each.name for each in cold.kernels]


def test_candidates_are_compared_after_a_producer(
    gpu_bench: GpuBench, x: torch.Tensor, scale: Callable[[], object]
) -> None:
    """It is left out where their inputs have other values, in one session with where it is not."""
    comparison = gpu_bench.compare(torch.neg, lambda x: x * -1, (x,), cache=scale)
    assert comparison.reference.cache == "producer scale"


def test_a_producer_of_other_memory_leaves_the_call_cold(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    """The inputs, which the call before read, are flushed first."""
    out, other = torch.empty_like(x), torch.ones(32, device=gpu_bench.device)
    cold = gpu_bench.measure(torch.neg, (x,), {"out": out})
    produced = gpu_bench.measure(torch.neg, (x,), {"out": out}, cache=lambda: other.mul_(1))
    assert produced.median_us == pytest.approx(cold.median_us, rel=0.05)


def test_nothing_of_a_long_producer_is_counted(
    gpu_bench: GpuBench, x: torch.Tensor, side_stream: torch.cuda.Stream
) -> None:
    """It launches kernels of the call's name, and works on, on a stream that nothing waits for."""
    alone = gpu_bench(torch.neg, x)

    def works_on() -> None:
        torch.neg(x)
        with torch.cuda.stream(side_stream):
            sleep(LONG_CYCLES)

    produced = gpu_bench.measure(torch.neg, (x,), cache=works_on)
    assert produced.launches == alone.launches == 1
    assert produced.median_us < 1.5 * alone.median_us


def test_a_trace_is_of_the_call_alone(x: torch.Tensor, tmp_path: Path) -> None:
    path = take_trace(
        make_call(lambda: torch.neg(x)), find_device("cuda"), tmp_path / "t.json.gz", cache=Producer(x.exp)
    )
    kernels = [each["name"] for each in events_in(path) if each.get("cat") == "kernel"]
    assert len(kernels) == 3
    assert not [name for name in kernels if "exp" in name]
