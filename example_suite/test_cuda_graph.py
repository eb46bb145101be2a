"""A feed-forward block captured in a CUDA graph: measured by replaying it, its kernels come back one by one.

The limits hold on an H200.
"""

import math
from collections.abc import Callable

import pytest
import torch

from example_suite.kernels.rms_norm import rms_norm
from example_suite.kernels.swiglu import swiglu
from pytest_gpubench import GpuBench

pytestmark = pytest.mark.usefixtures("needs_gpu")

HIDDEN, INNER = 1024, 2816


class Block:
    """Normalise, widen twice, gate, and narrow again."""

    def __init__(self, device: torch.device) -> None:
        def weight(*shape: int) -> torch.Tensor:
            return torch.randn(shape, dtype=torch.bfloat16, device=device).div_(math.sqrt(shape[0]))

        self.norm = torch.ones(HIDDEN, dtype=torch.bfloat16, device=device)
        self.gate, self.up, self.down = weight(HIDDEN, INNER), weight(HIDDEN, INNER), weight(INNER, HIDDEN)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        normed = rms_norm(x, self.norm)
        return swiglu(normed @ self.gate, normed @ self.up) @ self.down


def capture(
    function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """Return a graph of function(x), and the tensor that every replay writes the result to."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function(x)  # nothing may be compiled or set up during the capture
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = function(x)
    return graph, out


def tokens(device: torch.device) -> torch.Tensor:
    return torch.randn(512, HIDDEN, dtype=torch.bfloat16, device=device)


def test_replay_matches_eager(device: torch.device) -> None:
    block, x = Block(device), tokens(device)
    graph, out = capture(block, x)
    x.copy_(tokens(device))
    graph.replay()
    torch.testing.assert_close(out, block(x), rtol=0.016, atol=0.02)


def test_replays_leave_nothing_behind(device: torch.device) -> None:
    block, x = Block(device), tokens(device)
    graph, out = capture(block, x)
    graph.replay()
    first = out.clone()
    x.zero_()
    graph.replay()
    assert not out.any()
    x.copy_(tokens(device))
    graph.replay()
    assert not torch.equal(out, first)


@pytest.mark.perf(max_rel_std=0.05)
def test_cuda_graph_is_steady(gpu_bench: GpuBench) -> None:
    block, x = Block(gpu_bench.device), tokens(gpu_bench.device)
    graph, _ = capture(block, x)
    gpu_bench.measure(block, (x,), label="block, eager")
    replayed = gpu_bench.measure(graph.replay, label="block, graph")
    gpu_bench.extra_info["launches"] = replayed.launches


# the kernels are the same: what a graph saves is the host's time, and what is judged is the GPU's
@pytest.mark.perf(min_speedup=0.97)
def test_cuda_graph_costs_no_gpu_time(gpu_bench: GpuBench) -> None:
    block, x = Block(gpu_bench.device), tokens(gpu_bench.device)
    graph, out = capture(block, x)

    def replay(x: torch.Tensor) -> torch.Tensor:
        graph.replay()  # reads x where it was when captured
        return out

    gpu_bench.compare({"graph": replay}, block, args=(x,), rtol=0.016, atol=0.02)
