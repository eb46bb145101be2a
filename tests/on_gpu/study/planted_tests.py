"""Searches of the planted kernels, as a user would write them; the study `search` runs them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpubench import GpuBench
from pytest_gpubench import strategies as gst
from tests.on_gpu import planted

called = [0]
"""How often hypothesis has called the test that runs."""

usual = settings(deadline=None, database=None)
wide = gst.shapes(dims=2, max_bytes="64MiB")


def input_of(shape: tuple[int, int]) -> torch.Tensor:
    called[0] += 1
    return gst.tensor(shape)


@pytest.mark.perf(min_speedup=0.9)
@usual
@given(shape=wide)
def test_slow_widths(gpu_bench: GpuBench, shape: tuple[int, int]) -> None:
    gpu_bench.compare(planted.scale_with_tail, planted.scale, args=(input_of(shape),))


@pytest.mark.perf(min_speedup=0.1)
@usual
@given(shape=wide)
def test_partial_tiles(gpu_bench: GpuBench, shape: tuple[int, int]) -> None:
    gpu_bench.compare(planted.scale_whole_tiles, planted.scale, args=(input_of(shape),), rtol=0, atol=0)


@pytest.mark.perf(min_speedup=0.9)
@usual
@given(shape=wide)
def test_many_rows(gpu_bench: GpuBench, shape: tuple[int, int]) -> None:
    gpu_bench.compare(planted.scale_in_grids, planted.scale, args=(input_of(shape),))


@pytest.mark.perf(min_speedup=0.1)
@usual
@given(
    x=gst.tensors(
        gst.shapes(dims=2, min_side=(1, 2), max_side=(None, 16384)), values=gst.values("normal", "zeros", "peaked")
    )
)
def test_peaked_logits(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    called[0] += 1
    gpu_bench.compare(planted.surprise_of_clamped, planted.torch_surprise, args=(x,))


@pytest.mark.perf(min_speedup=0.97)
@settings(usual, max_examples=20)
@given(shape=wide, columns=st.just(0))
def test_sound(gpu_bench: GpuBench, shape: tuple[int, int], columns: int) -> None:
    """The true ratio is 1: 3 % better than the limit."""
    x = input_of(shape)
    gpu_bench.compare(planted.scale, lambda x: planted.scale(x), args=(x,), names=("scale", "again"))
