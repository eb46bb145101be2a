"""Tests that a user would keep baselines of; the study `baselines` runs them.

PLANTED=1.05 gives the candidates 5 % more rows.
"""

import os
from collections.abc import Callable

import pytest
import torch

from pytest_gpubench import GpuBench
from tests.on_gpu.study.workloads import normal

PLANTED = float(os.environ.get("PLANTED", "1"))


def more(rows: int) -> int:
    return round(rows * PLANTED)


MEASURED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, int]]] = {
    "add": (lambda x: x + x, (16384, 4096)),
    "softmax": (lambda x: torch.softmax(x, -1), (4096, 4096)),
    "row_sum": (lambda x: x.sum(-1), (8192, 8192)),
    "copy": (lambda x: x.clone(), (32768, 4096)),
    "rms_norm": (lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True)), (4096, 4096)),
    "gelu": (lambda x: torch.nn.functional.gelu(x), (8192, 4096)),
}


@pytest.mark.parametrize("name", MEASURED)
def test_time(gpu_bench: GpuBench, name: str) -> None:
    function, (rows, columns) = MEASURED[name]
    gpu_bench.measure(function, (normal(more(rows), columns),), label=name)


@pytest.mark.parametrize("name", MEASURED)
def test_speedup(gpu_bench: GpuBench, name: str) -> None:
    """The reference keeps its rows, whatever is planted; arms with different work return the same nothing."""
    function, (rows, columns) = MEASURED[name]
    mine, its = normal(more(rows), columns), normal(rows, columns)

    def candidate() -> int:
        function(mine)
        return 0

    def reference() -> int:
        function(its)
        return 0

    gpu_bench.compare(candidate, reference, names=(name, "reference"), bytes=0)
