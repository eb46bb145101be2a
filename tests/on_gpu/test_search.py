"""A search on a real GPU: shapes that do not fit, kernels that are compiled for a shape, a shape that breaks CUDA."""

import gc
import re
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import triton
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from pytest_gpubench import GpuBench
from pytest_gpubench.search import intercepting_examples
from pytest_gpubench.timing.compilations import counting_compilations
from tests.on_gpu import doubling
from tests.on_gpu.hosts import RealHost

GIB = 2**30
SHORT = settings(
    max_examples=8, database=None, derandomize=True, deadline=None, phases=[Phase.explicit, Phase.generate]
)


def test_what_does_not_fit_is_rejected_and_given_back(gpu_bench: GpuBench) -> None:
    """The input fits; the copies that a comparison makes of it and of the outputs do not."""
    total = torch.cuda.get_device_properties(gpu_bench.device).total_memory
    seen, warnings = list[int](), list[str]()

    @SHORT
    @example(share=3)
    @given(share=st.just(10**6))
    def compared(share: int) -> None:
        seen.append(torch.cuda.memory_allocated(gpu_bench.device))
        x = torch.ones(total // share, dtype=torch.uint8, device=gpu_bench.device)
        gpu_bench.compare(lambda x: x + 1, lambda x: 1 + x, args=(x,), names=("add", "again"))

    gc.collect()  # what other tests left
    before = torch.cuda.memory_allocated(gpu_bench.device)
    with intercepting_examples(compared, lambda example: None, {}, "reject", warnings.append):
        cast(Any, compared)()
    assert warnings == ["1 example did not fit into GPU memory (share=3)"]
    assert len(seen) >= 2
    assert max(*seen, torch.cuda.memory_allocated(gpu_bench.device)) < before + GIB


def test_kernels_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Widths that are multiples of 16 share a kernel, and so do the others."""
    monkeypatch.setattr(doubling, "_double", triton.jit(doubling._double.fn))
    with counting_compilations() as found:
        for width in (64, 128, 65, 67, 64):
            doubling.double(torch.ones(width, device="cuda"))
        torch.cuda.synchronize()
    assert found.kernels == 2
    assert found.elapsed_s > 0


def test_graphs_are_counted() -> None:
    compiled = torch.compile(lambda x: torch.softmax(x, -1) * 2, dynamic=False)
    with counting_compilations() as found:
        for width in (640, 641, 640):
            compiled(torch.ones(4, width, device="cuda"))
        torch.cuda.synchronize()
    assert found.graphs == 2
    assert found.kernels == 0
    assert found.elapsed_s > 0


SUITE = """
import pytest, torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest_gpubench import strategies as gst

@pytest.mark.perf(min_speedup=0.01)
@settings(database=None, derandomize=True)
@given(n=st.integers(1, 4096))
def test_search(gpu_bench, n):
    x = torch.ones(n, device=gpu_bench.device)

    def broken(x):
        if n >= 1000:
            return x[torch.tensor([2**40], device=x.device)]
        return x + 1

    gpu_bench.compare(broken, lambda x: x + 1, args=(x,), names=("broken", "sound"))

def test_after(gpu_bench):
    gpu_bench.measure(torch.ones(2**20, device=gpu_bench.device).neg, reps=20)
"""


def test_a_shape_that_breaks_cuda_is_reported(tmp_path: Path) -> None:
    """With xdist the next test runs in a new worker; both runs at once, by turns."""
    host = RealHost(tmp_path)
    host.write(SUITE)
    endings = {"-n0": "1 failed, 1 skipped", "-n1": "1 failed, 1 passed"}
    runs = [host.start(workers) for workers in endings]
    for run, ending in zip(runs, endings.values(), strict=True):
        output, _ = run.communicate(timeout=400)
        assert run.returncode == 1, output
        shape = re.search(r"context broke in this example, not shrunk: @example\(n=(\d+)\)", output)
        assert shape is not None, output
        assert int(shape[1]) >= 1000
        assert "CUDA context is broken" in output
        assert ending in output, output
