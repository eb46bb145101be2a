"""Time what a user waits for: many small kernels take the host longer to launch than the GPU to run."""

from collections.abc import Callable

import pytest
import torch

from example_suite import ON_GPU
from pytest_gpubench import GpuBench

pytestmark = pytest.mark.skipif(not ON_GPU, reason="there is no CUDA graph without a GPU")


def chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(50):
        x = x * 1.01
    return x


def captured(
    function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that replays a CUDA graph of function(x); it reads x where it is now."""
    function(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = function(x)

    def replay(x: torch.Tensor) -> torch.Tensor:
        graph.replay()
        return out

    return replay


# the wall timer is the host's clock: launches count
@pytest.mark.perf(min_speedup=1)
def test_a_graph_saves_the_launches(gpu_bench: GpuBench) -> None:
    x = torch.randn(1024, device=gpu_bench.device)
    gpu_bench.compare({"graph": captured(chain, x)}, chain, args=(x,), timer="wall")


# the profiler, which is the default timer, counts what the GPU does: the graph runs the same kernels
def test_a_graph_runs_the_same_kernels(gpu_bench: GpuBench) -> None:
    x = torch.randn(1024, device=gpu_bench.device)
    comparison = gpu_bench.compare({"graph": captured(chain, x)}, chain, args=(x,))
    assert comparison["graph"].timing.launches == comparison.reference.launches == 50
