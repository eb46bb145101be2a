"""The tricks that were seen in the wild, one kernel each, and the honest functions that look like them."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from pytest_gpubench import GpuBench, InvalidResult, KernelsDiffer, UnfairComparison, WrongResult
from tests.on_gpu.doubling import double, double_into, torch_double

SMALL, LARGE, BLOCK = 2**20, 2**26, 1024
Token = Callable[[], object]
Candidate = Callable[[torch.Tensor], torch.Tensor]
REMEMBERED = "returns what it had computed before: when the values of its inputs changed, in the same memory"


@triton.jit  # type: ignore[untyped-decorator]
def _slow(x, out, seen, count, MEMO: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute for long; with MEMO, only where the block's first elements are not those of the last call."""
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    given = tl.load(x + at, mask=at < count, other=0.0)
    mark = tl.sum(tl.load(x + program * BLOCK + tl.arange(0, 32)))
    known = tl.load(seen + program)
    if (mark != known) | (program * 0 >= MEMO):
        value = given
        for _ in range(256):
            value = value * 0.9 + given * 0.05
        tl.store(out + at, value, mask=at < count)
        tl.store(seen + program, mark)


@triton.jit  # type: ignore[untyped-decorator]
def gpu_bench_read_flush(x, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Double, under the name of another kernel."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < count), mask=at < count)


def remembering(token: Token, key: Callable[[torch.Tensor], object]) -> Candidate:
    """Return a function that computes once for each key of its input."""
    results: dict[object, torch.Tensor] = {}

    def replaying(x: torch.Tensor) -> torch.Tensor:
        token()
        known = key(x)
        if known not in results:
            results[known] = double(x)
        return results[known]

    return replaying


def idle_while_profiled(token: Token) -> Candidate:
    results: list[torch.Tensor] = []

    def replaying(x: torch.Tensor) -> torch.Tensor:
        token()
        if not torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
            results[:] = [double(x)]
        return results[0]

    return replaying


def batching(token: Token) -> Candidate:
    stock: list[torch.Tensor] = []

    def handing_out(x: torch.Tensor) -> torch.Tensor:
        token()
        if not stock:
            stock.extend(double(x) for _ in range(50))
        return stock.pop()

    return handing_out


def zeroing_later() -> Candidate:
    made = itertools.count()

    def doubling(x: torch.Tensor) -> torch.Tensor:
        out = x * 2
        if next(made) >= 5:
            double_into(x, torch.zeros_like(x))
        return out

    return doubling


TRICKS: dict[str, tuple[Callable[[Token], Candidate], str]] = {
    "remembered by writes": (lambda token: remembering(token, lambda x: (x.data_ptr(), x._version)), REMEMBERED),
    "remembered by values": (  # other kernels run for values that it has not seen
        lambda token: remembering(lambda: None, lambda x: x[:8].sum().item()),
        r"when the values of the inputs changed, .* does it remember results",
    ),
    "idle while a profiler is on": (idle_while_profiled, REMEMBERED),
    "fifty results in one call": (batching, f"does not launch the same kernels in every call|{REMEMBERED}"),
    "inputs overwritten after 5 calls": (
        lambda _: zeroing_later(),
        r"args\[0\]: the candidate overwrites it|changed args\[0\]|same kernels",
    ),
}
"""What makes each trick of a kernel of next to no work, and what is said of it."""


@pytest.mark.parametrize("name", TRICKS)
def test_a_trick_is_refused(gpu_bench: GpuBench, x: torch.Tensor, token: Token, name: str) -> None:
    make, words = TRICKS[name]
    with pytest.raises((InvalidResult, KernelsDiffer, UnfairComparison, WrongResult), match=words):
        gpu_bench.compare({"it": make(token)}, torch_double, (x,))


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


def test_a_kernel_that_knows_its_input_again(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    out, blocks = torch.empty_like(x), triton.cdiv(SMALL, BLOCK)
    own, others = (torch.full((blocks,), float("nan"), device=x.device) for _ in range(2))

    def slow(out: torch.Tensor, x: torch.Tensor, seen: torch.Tensor, memo: bool) -> torch.Tensor:
        _slow[(blocks,)](x, out, seen, SMALL, MEMO=int(memo), BLOCK=BLOCK)
        return out

    memo = {"memo": lambda x: slow(out, x, own, True)}
    comparison = gpu_bench.compare(memo, lambda x: slow(torch.empty_like(x), x, others, False), (x,), reps=40)
    assert comparison.speedup < 1.2, "what it remembers in its closure is put back before each rep"


@pytest.mark.parametrize("cache", ["cold", "hot"])
def test_no_kernel_is_left_out_for_its_name(gpu_bench: GpuBench, x: torch.Tensor, cache: Any) -> None:
    def both() -> object:
        gpu_bench_read_flush[(triton.cdiv(SMALL, BLOCK),)](x, torch.empty_like(x), SMALL, BLOCK=BLOCK)
        return x + x

    timing = gpu_bench.measure(both, reps=20, cache=cache)
    assert [each.launches for each in timing.kernels] == [1, 1]
    assert timing.kernels[0].name == "gpu_bench_read_flush"


# work that is left out


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
