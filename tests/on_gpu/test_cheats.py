"""The tricks that were seen in the wild, one kernel each, and the honest functions that look like them."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from pytest_gpubench import GpuBench, InvalidResult, KernelsDiffer, LimitBroken, WrongResult
from tests.on_gpu.doubling import double, double_into, torch_double

SMALL, LARGE = 2**20, 2**26
Token = Callable[[], object]
REMEMBERED = "returns what it had computed before: when the values of its inputs changed, in the same memory"


@triton.jit
def _spin(out, turns):  # type: ignore[no-untyped-def]
    value = tl.load(out)
    for _ in range(turns):
        value = value * 0.999 + 0.001
    tl.store(out, value)


# results that are remembered


def remembering(key: Callable[[torch.Tensor], object]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that computes once for each key of its input."""
    results: dict[object, torch.Tensor] = {}

    def replaying(x: torch.Tensor) -> torch.Tensor:
        known = key(x)
        if known not in results:
            results[known] = double(x)
        return results[known]

    return replaying


def first_sum(x: torch.Tensor) -> float:
    return x[:8].sum().item()


@pytest.mark.parametrize(
    "key",
    [
        lambda x: x.data_ptr(),
        lambda x: id(x),
        lambda x: (x.shape, x.dtype),
        lambda x: (x.data_ptr(), x._version),
    ],
    ids=["address", "id", "shape", "count of writes"],
)
def test_a_replay_by_what_a_tensor_is(
    gpu_bench: GpuBench, x: torch.Tensor, token: Token, key: Callable[[torch.Tensor], object]
) -> None:
    with pytest.raises(InvalidResult, match=REMEMBERED):
        gpu_bench.compare(remembering(lambda x: (token(), key(x))[1]), torch_double, (x,))


def test_a_replay_by_what_a_tensor_holds(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    """It computes for values that it has not seen: then other kernels run than in the calls that were timed."""
    with pytest.raises(InvalidResult, match=r"when the values of the inputs changed, .* does it remember results"):
        gpu_bench.compare(remembering(first_sum), torch_double, (x,))


def test_a_replay_only_while_a_profiler_is_on(gpu_bench: GpuBench, x: torch.Tensor, token: Token) -> None:
    results: list[torch.Tensor] = []

    def replaying(x: torch.Tensor) -> torch.Tensor:
        token()
        if not torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
            results[:] = [double(x)]
        return results[0]

    with pytest.raises(InvalidResult, match=REMEMBERED):
        gpu_bench.compare(replaying, torch_double, (x,))


def test_many_results_in_one_call_handed_out_in_the_next(gpu_bench: GpuBench, x: torch.Tensor, token: Token) -> None:
    """Calls without work between calls with a lot of it do not launch the same kernels."""
    stock: list[torch.Tensor] = []

    def batching(x: torch.Tensor) -> torch.Tensor:
        token()
        if not stock:
            stock.extend(double(x) for _ in range(50))
        return stock.pop()

    with pytest.raises((KernelsDiffer, InvalidResult)) as caught:
        gpu_bench.compare(batching, torch_double, (x,))
    assert "does not launch the same kernels in every call" in str(caught.value) or REMEMBERED in str(caught.value)


# results that are computed later


class Lazy(torch.Tensor):
    """Compute when somebody looks."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            found = [one.as_subclass(torch.Tensor) * 2 if isinstance(one, cls) else one for one in args]
            return function(*found, **(kwargs or {}))


@pytest.mark.parametrize("eager_calls", [0, 1, 5])
def test_a_tensor_that_computes_when_it_is_looked_at(
    gpu_bench: GpuBench, x: torch.Tensor, token: Token, eager_calls: int
) -> None:
    calls: list[int] = []

    def lazy(x: torch.Tensor) -> torch.Tensor:
        token()
        calls.append(1)
        return double(x) if len(calls) <= eager_calls else x.as_subclass(Lazy)

    with pytest.raises((InvalidResult, KernelsDiffer)) as caught:
        gpu_bench.compare(lazy, torch_double, (x,))
    assert "is a Lazy, which may compute later" in str(caught.value) or eager_calls > 1


def test_a_thread_that_computes_after_the_call_returned(gpu_bench: GpuBench, x: torch.Tensor, token: Token) -> None:
    """Its work is wanting in the call that returned, or in the output that was returned, or in both."""
    threads: list[threading.Thread] = []
    go = threading.Event()

    def late(x: torch.Tensor) -> torch.Tensor:
        token()
        out = torch.empty_like(x)

        def compute() -> None:
            go.wait(0.002)
            double_into(out, x)

        threads.append(threading.Thread(target=compute))
        threads[-1].start()
        return out

    try:
        with pytest.raises((WrongResult, InvalidResult, KernelsDiffer)) as caught:
            gpu_bench.compare(late, torch_double, (x,))
        assert "late" in str(caught.value)
    finally:
        go.set()
        for thread in threads:
            thread.join()


# work that is left out


@pytest.mark.parametrize("right", [1, 3, 20])
def test_half_of_the_work_once_it_is_warm(gpu_bench: GpuBench, x: torch.Tensor, right: int) -> None:
    """The other half may still hold what the last call wrote there, until the values change."""
    calls: list[int] = []

    def tiring(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return double_into(torch.empty_like(x), x, x.numel() if len(calls) <= right else x.numel() // 2)

    with pytest.raises((WrongResult, InvalidResult)) as caught:
        gpu_bench.compare(tiring, torch_double, (x,))
    assert "tiring is wrong" in str(caught.value) or REMEMBERED in str(caught.value)


def test_too_fast_for_the_memory(gpu_bench: GpuBench, token: Token) -> None:
    """Without other values the output of a static buffer is right whatever was written: the time is not."""
    x = torch.randn(LARGE, device=gpu_bench.device)
    out = torch_double(x)

    def filled_before(x: torch.Tensor) -> torch.Tensor:
        token()
        return out

    with pytest.raises(InvalidResult, match=r"filled_before is faster than memory allows: .* say how much with bytes="):
        gpu_bench.compare(filled_before, torch_double, (x,), vary=False)
    with pytest.raises(InvalidResult, match=REMEMBERED):
        gpu_bench.compare(filled_before, torch_double, (x,))


def test_a_part_that_needs_no_more_is_believed(gpu_bench: GpuBench) -> None:
    """Where the reference reads a part only, so may the candidate; a full-size kernel is as fast as memory."""
    x = torch.randn(LARGE, device=gpu_bench.device)
    gpu_bench.compare({"part": lambda x: x[:1000] * 2}, lambda x: x[:1000] + x[:1000], (x,))
    gpu_bench.compare({"all": double}, torch_double, (x,))
    gpu_bench.compare({"sum": lambda x: x.view(-1, 1024).sum(1).sum()}, torch.sum, (x,), rtol=1e-2, atol=1e2)


def test_dropout_in_both_arms_is_the_same(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    drop = torch.nn.functional.dropout
    state = torch.cuda.get_rng_state()
    gpu_bench.compare({"dropped": lambda x: drop(x, 0.5) * 1.0}, lambda x: drop(x, 0.5), (x,), reps=20)
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_an_output_that_is_the_references(gpu_bench: GpuBench, x: torch.Tensor, token: Token) -> None:
    out = torch.empty_like(x)

    def borrowing(x: torch.Tensor) -> torch.Tensor:
        token()
        return out

    with pytest.raises(WrongResult, match=r"^borrowing is wrong: out: "):  # the reference's output is gone by then
        gpu_bench.compare(borrowing, lambda x: torch.mul(x, 2, out=out), (x,))


# honest functions that look like tricks


def test_a_replayed_cuda_graph_passes(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    out, graph = torch.empty_like(x), torch.cuda.CUDAGraph()
    double_into(out, x)  # compiled before it is captured
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        double_into(out, x)

    def replaying(x: torch.Tensor) -> torch.Tensor:
        graph.replay()
        return out

    comparison = gpu_bench.compare(replaying, torch_double, (x,))
    assert comparison.timing.launches == 1


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compiled_into_cuda_graphs_passes(gpu_bench: GpuBench) -> None:
    """The outputs of one call lie where the next one writes its own."""
    x = torch.randn(512, 512, device=gpu_bench.device)

    def block(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x * 2 + 1).sum(1)

    compiled = torch.compile(block, mode="reduce-overhead")
    gpu_bench.compare({"compiled": compiled}, block, (x,), rtol=1e-4, atol=1e-4)


# sizes and costs


def test_outputs_of_ten_gigabytes_are_compared_without_a_copy(gpu_bench: GpuBench) -> None:
    elements, gib = 2_500_000_000, 2**30
    free, _ = torch.cuda.mem_get_info()
    if free < 55 * gib:
        pytest.skip(f"needs 55 GiB of GPU memory, {free / gib:.0f} are free")
    x = torch.ones(1000, device=gpu_bench.device)

    def spread(x: torch.Tensor) -> torch.Tensor:
        return x.repeat(elements // 1000)

    def spread_too(x: torch.Tensor) -> torch.Tensor:
        return x.expand(elements // 1000, 1000).reshape(-1)

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    gpu_bench.compare(spread_too, spread, (x,), reps=4, warmup=1)
    outputs = 4 * elements
    most = torch.cuda.max_memory_allocated() - before
    torch.cuda.empty_cache()
    # what was checked first, the last output of each arm, and the reference's for other values
    assert most < 4 * outputs + x.nbytes + 2 * gib


@pytest.mark.perf(min_speedup=1000)
def test_arms_of_very_different_cost_are_decided(gpu_bench: GpuBench) -> None:
    cell = torch.zeros(32, device=gpu_bench.device)

    def spinning(x: torch.Tensor) -> torch.Tensor:
        _spin[(1,)](cell, 20_000_000)
        return x * 2

    x = torch.randn(32, device=gpu_bench.device)
    comparison = gpu_bench.compare(torch_double, spinning, (x,), budget_s=0.1)
    assert [verdict.outcome.value for verdict in comparison.verdicts] == ["pass"]
    assert comparison.reference.median_us > 10_000
    with pytest.raises(LimitBroken, match="is slower than torch_double"):
        gpu_bench.compare(spinning, torch_double, (x,), budget_s=0.1)
