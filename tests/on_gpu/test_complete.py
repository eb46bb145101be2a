"""Nothing that a call does on the GPU is missed, and the three sums of its records are right."""

import ctypes
import time
from typing import Literal

import pytest
import torch

from pytest_gpubench import GpuBench
from tests.on_gpu.doubling import double_into

SLEEP_CYCLES = 100_000
CACHES: tuple[Literal["hot", "cold", "dirty"], ...] = ("hot", "cold", "dirty")


def sleep(cycles: int) -> None:
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def test_memset_counts(gpu_bench: GpuBench) -> None:
    x = torch.empty(2**20, dtype=torch.uint8, device=gpu_bench.device)
    major = (torch.version.cuda or "").split(".")[0]
    memset = ctypes.CDLL(f"libcudart.so.{major}").cudaMemset
    memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    timing = gpu_bench.measure(lambda: memset(x.data_ptr(), 1, x.numel()), label="cudaMemset")
    assert [(each.kind, each.launches) for each in timing.kernels] == [("memset", 1)]


def test_side_stream_counts(gpu_bench: GpuBench, side_stream: torch.cuda.Stream) -> None:
    x = torch.randn(2**22, device=gpu_bench.device)

    def on_the_side() -> None:
        with torch.cuda.stream(side_stream):
            x.add(1)

    assert gpu_bench(on_the_side).median_us == pytest.approx(gpu_bench(x.add, 1).median_us, rel=0.1)


@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")  # torch's, in its autograd thread
def test_autograd_thread_counts(gpu_bench: GpuBench) -> None:
    x = torch.randn(1024, 1024, device=gpu_bench.device, requires_grad=True)
    forward = gpu_bench.measure(torch.mm, (x, x), label="mm")
    backward = gpu_bench.measure(torch.mm, (x, x), backward="backward", label="mm backward")
    both = gpu_bench.measure(torch.mm, (x, x), backward="both", label="mm both")
    assert forward.launches == 1
    assert backward.launches >= 2  # a product for each side, and their sum
    assert both.launches == forward.launches + backward.launches
    assert both.median_us == pytest.approx(forward.median_us + backward.median_us, rel=0.25)


def test_graph_replay_is_counted_kernel_by_kernel(gpu_bench: GpuBench) -> None:
    x = torch.randn(2**22, device=gpu_bench.device)

    def chain() -> torch.Tensor:
        return x.neg().exp().sum()

    chain()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain()
    replayed, eager = gpu_bench(graph.replay), gpu_bench(chain)
    assert replayed.launches == eager.launches
    assert replayed.median_us == pytest.approx(eager.median_us, rel=0.05)


def test_overlapping_streams_against_a_hand_made_truth(gpu_bench: GpuBench, side_stream: torch.cuda.Stream) -> None:
    """Two sleeps of known length at once: the sum is both, busy and span are little more than the longer one."""
    short = gpu_bench.measure(lambda: sleep(SLEEP_CYCLES), label="one sleep")
    long_ = gpu_bench.measure(lambda: sleep(4 * SLEEP_CYCLES), label="four sleeps")

    def both() -> None:
        sleep(4 * SLEEP_CYCLES)
        with torch.cuda.stream(side_stream):
            sleep(SLEEP_CYCLES)

    timing = gpu_bench(both)
    assert timing.median_us == pytest.approx(short.median_us + long_.median_us, rel=0.1)
    assert timing.median_busy_us == pytest.approx(long_.median_us, rel=0.1)
    assert timing.median_span_us == pytest.approx(long_.median_us, rel=0.1)
    assert "overlap" in timing.flags


def test_a_gap_is_in_the_span_only(gpu_bench: GpuBench) -> None:
    x = torch.randn(2**20, device=gpu_bench.device)

    def with_a_gap() -> None:
        x.neg()
        torch.cuda.synchronize()
        time.sleep(0.002)
        x.neg()

    timing = gpu_bench.measure(with_a_gap, reps=20)
    assert timing.samples_us == timing.busy_us
    assert timing.median_span_us is not None
    assert timing.median_span_us > 2000 > timing.median_us
    assert "idle" in timing.flags


def test_setup_and_flush_are_outside(gpu_bench: GpuBench) -> None:
    x = torch.randn(2**24, device=gpu_bench.device)
    alone = gpu_bench.measure(torch.neg, (x,), label="alone")
    after_setup = gpu_bench.measure(torch.neg, setup=lambda: (x.clone(),), label="after a setup")
    assert after_setup.launches == 1
    assert after_setup.median_us == pytest.approx(alone.median_us, rel=0.03)


def test_inputs_that_are_overwritten_are_put_back(gpu_bench: GpuBench) -> None:
    """In arguments, in a closure, in a module, by Triton and by torch; the time is that without it."""
    x = torch.randn(2**24, device=gpu_bench.device)
    held, norm = x.clone(), torch.nn.BatchNorm1d(64, device=gpu_bench.device)
    rows, given = torch.randn(4096, 64, device=gpu_bench.device), x.clone()
    alone = gpu_bench.measure(torch.mul, (x.clone(), 2.0), {"out": torch.empty_like(x)}, label="alone")
    timings = [
        gpu_bench.measure(torch.Tensor.mul_, (x, 2.0), label="torch"),
        gpu_bench.measure(lambda: held.mul_(2.0), label="closure"),
        gpu_bench.measure(norm, (rows,), label="module"),
        gpu_bench.measure(lambda: double_into(held, held), label="Triton"),
    ]
    assert [timing.flags.count("overwrites") for timing in timings] == [1] * 4
    assert torch.equal(x, 2 * given)
    assert norm.num_batches_tracked is not None
    assert int(norm.num_batches_tracked) == 1
    assert timings[0].median_us < alone.median_us * 1.1


def test_cold_is_slower_than_hot_and_dirty_slower_than_cold(gpu_bench: GpuBench, cached: torch.Tensor) -> None:
    out = torch.empty_like(cached)
    hot, cold, dirty = (
        gpu_bench.measure(torch.neg, (cached,), {"out": out}, cache=cache, label=cache).median_us for cache in CACHES
    )
    assert hot < cold < dirty


def test_clock_is_read_from_the_multiprocessor(gpu_bench: GpuBench) -> None:
    timing = gpu_bench.measure(lambda: sleep(SLEEP_CYCLES), label="sleep")
    assert timing.median_sm_clock_mhz is not None
    assert timing.median_us * timing.median_sm_clock_mhz == pytest.approx(SLEEP_CYCLES, rel=0.03)
