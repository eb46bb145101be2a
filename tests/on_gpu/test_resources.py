"""Resources on the real thing: against what Triton says of its kernels, of libraries' kernels, and of other calls."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_gpubench import Timing
from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.replay.resources import with_resources
from pytest_gpubench.results.model import Resources
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.timing.measurement import Plan, measure_call
from pytest_gpubench.timing.profiler import ProfilerTimer
from tests.on_gpu.kernels import COLUMNS, ROWS, doubling_kernel, matmul_kernel, row_sum_kernel, softmax
from tests.on_gpu.replay_kernels import LIBRARY, warm_call

PLAN = Plan(cache="hot", reps=3, warmup=3, precision=0.02, max_time_s=20)


def matmul(tile: int, stages: int, warps: int = 4) -> Callable[[], object]:
    size = 1024
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty(size, size, device="cuda")
    grid = (size // tile, size // tile)
    given = {"M": tile, "N": tile, "K": 32, "num_warps": warps, "num_stages": stages}
    return lambda: matmul_kernel[grid](a, b, c, size, **given)


def doubling() -> Callable[[], object]:
    x = torch.randn(ROWS * COLUMNS, device="cuda")
    out = torch.empty_like(x)
    return lambda: doubling_kernel[(ROWS,)](x, out, x.numel(), BLOCK=1024)


def row_sums(unrolled: int) -> Callable[[], object]:
    x, out = torch.randn(ROWS, COLUMNS, device="cuda"), torch.empty(ROWS, device="cuda")
    return lambda: row_sum_kernel[(ROWS,)](x, out, COLUMNS, BLOCK=128, UNROLL=unrolled, num_warps=1)


TRITON: dict[str, Callable[[], Callable[[], object]]] = {
    "softmax of 8 warps": lambda: softmax(8),
    "softmax of 1 warp spills": lambda: softmax(1),
    "matmul of 64, 2 stages": lambda: matmul(64, 2),
    "matmul of 128, 8 warps": lambda: matmul(128, 3, 8),
    "doubling": doubling,
    "row sums unrolled": lambda: row_sums(16),
}


def timed(call: Call) -> Timing:
    device = find_device("cuda")
    timing = measure_call(call, ProfilerTimer(device, "hot"), device, PLAN, lambda timing: True, lambda text: None)
    return with_resources(timing, call, device)


def resources_of(call: Call) -> list[Resources]:
    timing = timed(call)
    assert not timing.no_resources
    assert all(each.resources for each in timing.kernels if each.kind == "kernel")
    return list(timing.resources)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(ROWS, COLUMNS, device="cuda")


@pytest.mark.parametrize("name", TRITON)
def test_tritons_numbers_are_the_drivers(name: str) -> None:
    function = TRITON[name]()
    [found] = resources_of(make_call(function))
    compiled: Any = function()
    assert found.registers == compiled.n_regs
    assert found.local_bytes == 4 * compiled.n_spills
    assert found.local_bytes or "spills" not in name
    assert found.shared_bytes == compiled.metadata.shared
    assert found.block == (32 * compiled.metadata.num_warps, 1, 1)


@pytest.mark.parametrize("name", [name for name in LIBRARY if name != "nonzero"])  # which waits
def test_kernels_of_libraries_have_resources(name: str) -> None:
    for found in resources_of(warm_call(*LIBRARY[name])):
        assert 1 <= found.registers <= 255
        assert 1 <= found.blocks_per_sm <= 32
        assert found.resident_blocks
        assert 0 <= found.tail < 1


def test_kernels_of_a_large_matmul_come_in_clusters_where_there_are_any() -> None:
    large = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    for found in resources_of(make_call(lambda: large @ large)):
        assert found.resident_blocks <= found.blocks_per_sm * sms
        assert found.resident_blocks % (found.cluster[0] * found.cluster[1] * found.cluster[2]) == 0


def test_a_backward_run_alone_has_resources(x: torch.Tensor) -> None:
    leaf = x[:64].clone().requires_grad_()
    assert resources_of(make_call(lambda: torch.nn.functional.layer_norm(leaf, (COLUMNS,)), backward="backward"))
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()


# what cannot be captured


def replay(x: torch.Tensor) -> Callable[[], object]:
    graph = torch.cuda.CUDAGraph()
    torch.softmax(x, -1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        kept.append(torch.softmax(x, -1))
    return graph.replay


def compiled_with_graphs(x: torch.Tensor) -> Callable[[], object]:
    compiled = torch.compile(lambda x: torch.nn.functional.silu(x * 2) + 1, mode="reduce-overhead")
    return lambda: compiled(x)


kept: list[torch.Tensor] = []
UNCAPTURED_CALLS: dict[str, tuple[Callable[[torch.Tensor], Callable[[], object]], str]] = {
    "item": (lambda x: lambda: x.sum().item(), "it waits for the GPU or copies to or from the host"),
    "replay": (replay, "it replays a CUDA graph, which cannot be captured in another"),
    "torch.compile with graphs": (compiled_with_graphs, "it replays a CUDA graph, which cannot be captured in another"),
}


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")  # torch's, of a capture it only warms up with
@pytest.mark.parametrize("name", UNCAPTURED_CALLS)
def test_a_call_that_cannot_be_captured_has_a_reason_and_goes_on(name: str, x: torch.Tensor) -> None:
    make, reason = UNCAPTURED_CALLS[name]
    call = make_call(make(x))
    found = timed(call)
    assert found.no_resources.startswith(f"it cannot be captured as a CUDA graph: {reason}")
    assert not found.resources
    again = timed(call)
    assert [each.name for each in again.kernels] == [each.name for each in found.kernels]
    assert len(resources_of(make_call(lambda: torch.softmax(x, -1)))) == 1


def test_what_a_call_keeps_is_what_it_computes(x: torch.Tensor) -> None:
    """A capture computes nothing, and so does one that fails halfway."""
    for last in (lambda value: value.sum(), lambda value: value.sum().item()):
        kept.clear()

        def keep(last: Callable[[torch.Tensor], object] = last) -> object:
            kept[:] = [x * 3]
            return last(kept[0])

        timed(make_call(keep))
        assert torch.equal(kept[0], x * 3)


def test_memory_is_given_back(x: torch.Tensor) -> None:
    call = make_call(lambda: torch.softmax(x, -1))
    timed(call)
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        timed(call)
    assert torch.cuda.memory_allocated() <= before
