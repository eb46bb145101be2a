"""The tracing tax on the real thing: times as they are outside of any session, and ratios that noise does not move."""

import pytest
import torch

from pytest_gpubench import GpuBench
from tests.on_gpu.margins_planted import values
from tests.on_gpu.study.true import untraced_us
from tests.on_gpu.study.workloads import CUDA, WORKLOADS

CHAIN, FUSED = "rms_norm eager 8192x8192 fp32", "rms_norm fused 8192x8192 fp32"


@pytest.mark.parametrize("name", ["x * column 8192x8192 fp32", "x * row 8192x8192 fp32", "softmax 4096x4096 fp32"])
def test_a_time_is_that_of_an_untraced_call(gpu_bench: GpuBench, name: str) -> None:
    function = WORKLOADS[name]()
    timing, expected_us = gpu_bench(function), untraced_us(function, 1)
    assert timing.median_us == pytest.approx(expected_us, abs=1.0 + 0.006 * expected_us)
    taxed = [flag for flag in timing.flags if flag.startswith("traced +")]
    assert bool(taxed) == (timing.median_us < 0.996 * (timing.median_busy_us or 0))


def test_a_replayed_graph_pays_as_its_kernels_do(gpu_bench: GpuBench) -> None:
    chain, graph = WORKLOADS[CHAIN](), torch.cuda.CUDAGraph()
    chain()
    with torch.cuda.graph(graph):
        out = chain()
    assert gpu_bench(graph.replay).median_us == pytest.approx(gpu_bench(chain).median_us, rel=0.015)
    del out


def test_a_call_without_tax_is_the_sum_of_its_records(gpu_bench: GpuBench) -> None:
    timing = gpu_bench(WORKLOADS["add 3 x 64 MiB"]())
    assert (timing.samples_us != timing.busy_us) == any(flag.startswith("traced") for flag in timing.flags)


def test_a_fused_kernel_looks_no_better_than_it_is(gpu_bench: GpuBench) -> None:
    """Traced, the two multiplications of the chain take 16 us longer, and the fused kernel nothing."""
    fused, chain = WORKLOADS[FUSED](), WORKLOADS[CHAIN]()
    expected = untraced_us(chain, 6) / untraced_us(fused, 1)
    assert gpu_bench.compare(fused, chain).speedup == pytest.approx(expected, rel=0.01)


@pytest.mark.perf(min_speedup=0.99)
def test_the_same_kernel_pays_the_same_in_both_arms(gpu_bench: GpuBench) -> None:
    comparison = gpu_bench.compare(
        {"same": lambda x, y: x * y}, torch.mul, (values(CUDA, 8192, 8192), values(CUDA, 8192, 1))
    )
    assert comparison.speedup == pytest.approx(1, abs=0.004)


def test_work_on_side_streams_keeps_its_overlap(gpu_bench: GpuBench) -> None:
    x, streams = values(CUDA, 2**20), [torch.cuda.Stream() for _ in range(2)]  # type: ignore[no-untyped-call]

    def both() -> None:
        main = torch.cuda.current_stream()
        for stream in streams:
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                torch.cuda._sleep(200_000)  # type: ignore[no-untyped-call]
                x.neg()
        for stream in streams:
            main.wait_stream(stream)

    timing = gpu_bench(both)
    assert "overlap" in timing.flags
    assert not any(flag.startswith("traced") for flag in timing.flags)
