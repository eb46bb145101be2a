"""Tests with limits on times, as a user would write them; the study `counters times` runs them."""

from collections.abc import Callable

import pytest
import torch

from pytest_gpubench import GpuBench
from tests.on_gpu.study.workloads import normal, rms_norm

Rows = Callable[[torch.Tensor], torch.Tensor]
CALLS: dict[str, tuple[Rows, int, int]] = {
    "small add": (lambda x: x + 1, 256, 1024),
    "softmax": (lambda x: torch.softmax(x, -1), 8192, 8192),
    "long rms norm": (rms_norm, 81920, 4096),
}
"""Calls from 2 us to 2 ms, and the shapes of their inputs."""


@pytest.mark.parametrize("name", CALLS)
def test_time(gpu_bench: GpuBench, name: str) -> None:
    function, rows, columns = CALLS[name]
    gpu_bench.measure(function, (normal(rows, columns),), label=name)


@pytest.mark.perf(min_speedup=0.98)
@pytest.mark.parametrize("name", CALLS)
def test_as_fast(gpu_bench: GpuBench, name: str) -> None:
    function, rows, columns = CALLS[name]
    gpu_bench.compare({name: lambda x: function(x)}, function, args=(normal(rows, columns),))


@pytest.mark.perf(min_speedup=0.9)
@pytest.mark.parametrize("name", CALLS)
def test_slower(gpu_bench: GpuBench, name: str) -> None:
    """A half of the rows is computed twice."""
    function, rows, columns = CALLS[name]

    def slower(x: torch.Tensor) -> torch.Tensor:
        function(x[: rows // 2])
        return function(x)

    gpu_bench.compare({name: slower}, function, args=(normal(rows, columns),))
